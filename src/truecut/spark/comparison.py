"""Copies compared by digests, as Spark jobs: sums of every side first, keys only where sums differ.

    pieces ──▶ digests ──▶ sums by bucket            what the driver gets of a side: 4,096 sums
    pieces ──▶ digests of some buckets ──▶ by key    how many rows differ, and the first few keys

A piece is a part of one side's content, read on an executor; no row leaves it but as digests, and the keys
that a witness needs. Trouble with a piece comes back as data.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.certificate.comparison import Difference, Odd
from truecut.certificate.digest import Buckets, Keyed, Limbs, Rows
from truecut.errors import Fault, Retry, TruecutError
from truecut.spark.session import python_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROLE = "verify"
_SUMS_DDL = "side int, payload binary"
_ROWS_DDL = "side int, bucket int, key binary, row binary"
_ROWS_SCHEMA = pa.schema(
    [("side", pa.int32()), ("bucket", pa.int32()), ("key", pa.binary()), ("row", pa.binary())]
)
ROWS_OF_A_TASK = 500_000
_FAULT = -1  # in the place of a bucket

Side = int


class Piece(Protocol):
    """A picklable part of the content of some sides."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """Whose rows it may have."""
        ...

    def digests(self, keyed: Keyed) -> Iterator[tuple[Side, Rows]]:
        """Digests of its rows, by side; TruecutError when they cannot be read."""
        ...

    def keys(self, keyed: Keyed, wanted: Collection[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The values of these keys, by their digests, as far as its rows have them."""
        ...

    def repairs(
        self, keyed: Keyed, wanted: Collection[bytes], *, place: int
    ) -> Iterator[tuple[Side, pa.Table]]:
        """Changes (`model.change`) at `place` that let go of its rows with these keys, where they are a
        sink's, and bring them, where they are a source's."""
        ...


@dataclass(frozen=True, slots=True)
class Few:
    """Sums on their way to the driver: of thousands of copies, most have rows in few buckets."""

    places: npt.NDArray[np.int64]
    sums: Limbs
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, buckets: Buckets) -> Few:
        """Without the empty ones."""
        places = np.flatnonzero(buckets.counts)
        return cls(places, buckets.sums[places], buckets.counts[places])

    def whole(self) -> Buckets:
        """With them."""
        buckets = Buckets.empty()
        buckets.sums[self.places], buckets.counts[self.places] = self.sums, self.counts
        return buckets


@dataclass(frozen=True, slots=True)
class Sums:
    """What came of it: sums for each side that could be read, and why others could not."""

    buckets: Mapping[Side, Buckets]
    faults: Mapping[Side, Fault] = field(default_factory=dict)


def sum_up(
    spark: SparkSession, pieces: Sequence[Piece], keyed: Keyed, *, tasks_max: int | None = None
) -> Sums:
    """One job over all pieces. A side none of whose pieces has a row is an empty one. `tasks_max`: how
    many read at once; None: one for each piece."""
    buckets = {side: Buckets.empty() for piece in pieces for side in piece.sides}
    faults: dict[Side, Fault] = {}
    for row in _mapped(spark, pieces, _SUMS_DDL, lambda piece: _summed(piece, keyed), tasks_max).collect():
        came = pickle.loads(row.payload)
        if isinstance(came, Fault):
            faults.setdefault(row.side, came)
        else:
            buckets[row.side].merge(came.whole())
    return Sums({side: found for side, found in buckets.items() if side not in faults}, faults)


def _summed(piece: Piece, keyed: Keyed) -> Iterator[pa.RecordBatch]:
    sums: dict[Side, Buckets] = {}
    try:
        for side, rows in piece.digests(keyed):
            sums.setdefault(side, Buckets.empty()).add(rows)
    except TruecutError as error:
        yield from (_sum(side, error.fault) for side in piece.sides)
    except Exception as error:  # noqa: BLE001 - a reader's bug must not fail the other sides
        yield from (_sum(side, unforeseen(error)) for side in piece.sides)
    else:
        yield from (_sum(side, Few.of(found)) for side, found in sums.items())


def _sum(side: Side, payload: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([side], pa.int32()), pa.array([pickle.dumps(payload)], pa.binary())],
        names=["side", "payload"],
    )


def unforeseen(error: Exception) -> Fault:
    """A reader's bug, as data."""
    # Its text may hold row values: only its class is told.
    message = f"it could not be read: unexpected {type(error).__name__}"
    return Fault("TC7051", message, "Report it if it persists.", Retry.RETRYABLE)


# --- keys that differ ---------------------------------------------------------------------------------


def differences(
    spark: SparkSession,
    pieces: Sequence[Piece],
    keyed: Keyed,
    *,
    expected: Side,
    found: Side,
    buckets: Collection[int],
    rows: int,
    limit: int,
    tasks_max: int | None = None,
) -> tuple[Difference, list[Odd]]:
    """Compare two sides key by key in these buckets: how many rows differ, and the first keys, in the order
    of their digests. `rows` is about how many there are. TruecutError where a piece cannot be read again."""
    from pyspark.sql import functions as F

    chosen = np.zeros(1 << 12, np.bool_)
    chosen[list(buckets)] = True
    own = [piece for piece in pieces if {expected, found} & set(piece.sides)]
    digests = _mapped(
        spark, own, _ROWS_DDL, lambda piece: _chosen(piece, keyed, chosen, (expected, found)), tasks_max
    ).repartition(max(1, -(-rows // ROWS_OF_A_TASK)), "bucket")
    here, there = F.col("side") == found, F.col("side") == expected
    by_key = digests.groupBy("bucket", "key").agg(
        F.sum(here.cast("int")).alias("here"),
        F.sum(there.cast("int")).alias("there"),
        F.min(F.when(here, F.col("row"))).alias("row_here"),
        F.min(F.when(there, F.col("row"))).alias("row_there"),
    )
    differs = (F.col("here") == F.col("there")) & (F.col("row_here") != F.col("row_there"))
    odd = by_key.withColumn(
        "at_sink",
        F.when(F.col("bucket") == _FAULT, "fault")
        .when(F.col("here") < F.col("there"), "missing")
        .when(F.col("here") > F.col("there"), "extra")
        .when(differs, "differs"),
    ).where(F.col("at_sink").isNotNull())
    odd = odd.withColumn("rows", F.greatest(F.abs(F.col("here") - F.col("there")), F.lit(1)))
    faults_first = F.col("at_sink") != "fault"
    first = odd.select("key", "at_sink", "rows").orderBy(faults_first, F.col("key")).limit(limit).collect()
    if first and first[0].at_sink == "fault":
        raise TruecutError.of(pickle.loads(first[0].key))
    counted: Counter[str] = Counter()
    for row in first:
        counted[row.at_sink] += row.rows
    if len(first) == limit:  # perhaps there are more: read again, to count them
        counted = _totals(odd)
    return Difference(**counted), [Odd(bytes(row.key), row.at_sink) for row in first]


def _totals(odd: DataFrame) -> Counter[str]:
    """Of each kind of difference. TruecutError where a piece cannot be read this time."""
    from pyspark.sql import functions as F

    fault = F.max(F.when(F.col("at_sink") == "fault", F.col("key")))
    totals = odd.groupBy("at_sink").agg(F.sum("rows").alias("rows"), fault.alias("fault")).collect()
    for row in totals:
        if row.fault is not None:
            raise TruecutError.of(pickle.loads(row.fault))
    return Counter({row.at_sink: int(row.rows) for row in totals})


def _chosen(
    piece: Piece, keyed: Keyed, chosen: np.ndarray[Any, Any], sides: tuple[Side, Side]
) -> Iterator[pa.RecordBatch]:
    try:
        for side, rows in piece.digests(keyed):
            if side in sides:
                wanted = chosen[rows.buckets()]
                if wanted.any():
                    yield _digests(side, Rows(rows.keys[wanted], rows.sums[wanted]))
    except TruecutError as error:
        yield _trouble(error.fault)
    except Exception as error:  # noqa: BLE001 - as in `_summed`
        yield _trouble(unforeseen(error))


def _trouble(fault: Fault) -> pa.RecordBatch:
    """In the place of digests: a row of no side, in a bucket that there is not."""
    columns: list[list[Any]] = [[-1], [_FAULT], [pickle.dumps(fault)], [b""]]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, _ROWS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROWS_SCHEMA)


def _digests(side: Side, rows: Rows) -> pa.RecordBatch:
    count = len(rows.keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, side, np.int32)),
            pa.array(rows.buckets().astype(np.int32)),
            _binary(rows.keys),
            _binary(rows.blocks()),
        ],
        schema=_ROWS_SCHEMA,
    )


def _binary(blocks: np.ndarray[Any, Any]) -> pa.Array:
    count = len(blocks)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(16)
    data = pa.py_buffer(np.ascontiguousarray(blocks).tobytes())
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def key_values(
    spark: SparkSession,
    pieces: Sequence[Piece],
    keyed: Keyed,
    wanted: Collection[bytes],
    *,
    tasks_max: int | None = None,
) -> dict[bytes, dict[str, Any]]:
    """What these few keys are, by whichever side has them. What cannot be read again is not named."""
    found: dict[bytes, dict[str, Any]] = {}
    for row in _mapped(
        spark, pieces, _SUMS_DDL, lambda piece: _keys(piece, keyed, wanted), tasks_max
    ).collect():
        found |= pickle.loads(row.payload)
    return found


def _keys(piece: Piece, keyed: Keyed, wanted: Collection[bytes]) -> Iterator[pa.RecordBatch]:
    try:
        yield _sum(0, dict(piece.keys(keyed, wanted)))
    except Exception:  # noqa: BLE001 - how many rows differ is known by now; they stay without their names
        yield _sum(0, {})


# --- the jobs -----------------------------------------------------------------------------------------


def _mapped(
    spark: SparkSession,
    pieces: Sequence[Piece],
    ddl: str,
    work: Callable[[Piece], Iterator[pa.RecordBatch]],
    tasks_max: int | None,
) -> DataFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(pieces[number])

    with python_of(spark, _ROLE):
        tasks = max(1, min(len(pieces), tasks_max or len(pieces)))
        return spark.range(0, len(pieces), 1, tasks).mapInArrow(run, ddl)
