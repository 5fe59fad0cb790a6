"""Spark's classes as the JVM maps them into memory, loaded and checked once: class-data sharing.

`python -m truecut.spark.archive` makes the archive: a JVM runs jobs like a wave's and keeps what it has
loaded. Later ones need half of the CPU time until their first job is done. Promises: an archive is used only
with the Java and the jars that it was made with (the JVM checks that, too, and does without one that does not
fit); what it lacks is loaded as ever.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DUMP_S = 600.0  # what the JVM may take to write it


def folders() -> Iterator[Path]:
    """Where archives are looked for: with the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix) / "share" / "truecut"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    yield Path(cache) / "truecut"


def options(java_version: str) -> str:
    """What a JVM has to be told to use the archive; nothing if there is none."""
    paths = (folder / _name(java_version) for folder in folders())
    found = next((path for path in paths if path.is_file()), None)
    # The options are one text, split at blanks.
    return "" if found is None or " " in str(found) else f" -XX:SharedArchiveFile={found}"


def _name(java_version: str) -> str:
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home()) / "jars"
    made_with = f"{java_version}\n{jars}\n{jars.stat().st_mtime_ns if jars.exists() else ''}"
    return f"spark-{hashlib.sha256(made_with.encode()).hexdigest()[:16]}.jsa"


def make() -> Path | None:
    """Make the archive where there is none; None when no folder can be written, or this Java makes none."""
    from truecut.spark.session import check_java

    name = _name(check_java())
    for folder in folders():
        if (folder / name).is_file():
            return folder / name
        with suppress(OSError), tempfile.TemporaryDirectory(prefix="truecut-archive-") as scratch:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{name}.{os.getpid()}"
            try:
                _record(part, Path(scratch))
                part.chmod(0o644)
                part.rename(folder / name)  # whoever starts meanwhile finds all of it or nothing
            finally:
                part.unlink(missing_ok=True)
            return folder / name
    return None


def _record(path: Path, scratch: Path) -> None:
    from truecut.spark.session import Starting, java_options

    recorded = {"spark.driver.extraJavaOptions": f"{java_options()} -XX:ArchiveClassesAtExit={path}"}
    starting = Starting(app="archive", master=None, conf=recorded, scratch=scratch)
    try:
        session = starting.session()
        _rehearse(session)
        session.stop()
    finally:
        starting.end(patience_s=DUMP_S)


def _rehearse(spark: SparkSession) -> None:
    """Both forms of a wave, without its content."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    form = "slot int, payload binary"
    few = spark.range(0, 4, 1, 2).selectExpr("CAST(id AS INT) slot", "CAST('' AS BINARY) payload")
    few.coalesce(1).mapInArrow(same, form).collect()
    packets = few.mapInArrow(same, form).repartitionById(2, "slot").sortWithinPartitions("slot")
    packets.mapInArrow(same, form).collect()


if __name__ == "__main__":
    made = make()
    print("Spark starts without an archive of its classes" if made is None else made)
