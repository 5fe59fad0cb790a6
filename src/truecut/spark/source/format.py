"""`format("truecut")`: a log as a Spark data source, for batches and for streams.

    from truecut.spark.source import TruecutSource
    spark.dataSource.register(TruecutSource)
    spark.read.format("truecut").load("/var/lib/journal/shop").show()

Reads only, and keeps no state: what has been read is the reader's to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from truecut.journal.extent import last_whole
from truecut.journal.opening import open_reader
from truecut.spark.source import schema as schemas
from truecut.spark.source.faults import wrong_option
from truecut.spark.source.options import Options, parse
from truecut.spark.source.ranges import Range, Reading, check_reach, divide, first_after
from truecut.spark.source.stream import TruecutStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let the session know the format."""
    spark.dataSource.register(TruecutSource)


class TruecutSource(DataSource):
    """See docs/spark.md for the options and columns."""

    @classmethod
    def name(cls) -> str:
        """As in `format("truecut")`."""
        return "truecut"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse(options)

    def schema(self) -> StructType:
        """Unless one is given."""
        options = self._parsed
        if options.table is None:
            return schemas.UNTYPED
        with closing(open_reader(options.where)) as reader:
            return schemas.discovered(reader, table=options.table, upto=options.upto)

    def reader(self, schema: StructType) -> TruecutReader:
        """For `spark.read`."""
        return TruecutReader(self._parsed.for_batch(), self._reading(schema))

    def streamReader(self, schema: StructType) -> TruecutStreamReader:
        """For `spark.readStream`."""
        return TruecutStreamReader(self._parsed.for_stream(), self._reading(schema))

    def _reading(self, schema: StructType) -> Reading:
        options = self._parsed
        return Reading(options.where, options.table, schemas.checked(schema, table=options.table))


class TruecutReader(DataSourceReader):
    """A range of the log, once."""

    def __init__(self, options: Options, reading: Reading) -> None:
        self._options = options
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        """From the oldest record to the last whole transaction, unless told otherwise."""
        with closing(open_reader(self._reading.where)) as reader:
            after = self._options.after or first_after(reader)
            upto = self._options.upto or last_whole(reader, after=after) or after
            if upto < after:
                raise wrong_option("upto", f"it is before {after}", fix='Give one that follows "after".')
            check_reach(reader, after=after, upto=upto)
            return [*divide(reader, after=after, upto=upto)] or [Range(after, after)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task, on an executor."""
        return self._reading.read(partition)
