"""A pipeline on this machine for measuring: one source lake, many sinks, one Spark session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from tests.s3_server import s3_server
from truecut.config.kinds import worker_modules
from truecut.config.secret import Secret
from truecut.config.settings import (
    BatchSettings,
    CertificateSettings,
    Pipeline,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from truecut.lake import LakeAddress, attach, connect, lake_of, parse_address
from truecut.model.table import TableName
from truecut.object_store import Storage, StorageSection, settle
from truecut.runtime.control import open_control
from truecut.runtime.jobs import Jobs
from truecut.runtime.run_report import View
from truecut.runtime.runner import Runner
from truecut.runtime.trace import Trace
from truecut.runtime.until import Until
from truecut.sources.contract import Observation
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.spark.session import open_session

TABLE = "main.events"
COLUMNS = (
    "id BIGINT, tenant VARCHAR, a BIGINT, b BIGINT, c DOUBLE, d VARCHAR, e VARCHAR, changed_at TIMESTAMP"
)


@dataclass
class Curtain:
    """While it is drawn, new commits of the source stay unseen."""

    drawn: bool = False


class Stage(DuckLakeSource):
    """A source behind a curtain."""

    def __init__(self, curtain: Curtain, address: LakeAddress, *, generation: int) -> None:
        super().__init__(address, generation=generation)
        self._curtain = curtain
        self._last: Observation | None = None

    def observe(self) -> Observation:
        """What was seen last, while the curtain is drawn."""
        if not self._curtain.drawn or self._last is None:
            self._last = super().observe()
        return self._last


@dataclass
class Rig:
    """The pipeline, its source connection and its Spark session."""

    pipeline: Pipeline
    source: duckdb.DuckDBPyConnection
    spark: SparkSession
    view: View | None = None
    curtain: Curtain = field(default_factory=Curtain)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is committed in the block reaches the pipeline at its end, at once."""
        self.curtain.drawn = True
        try:
            yield
        finally:
            self.curtain.drawn = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """The pipeline runs while the block does; the block begins when every sink is current."""
        runner = self._runner()
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        try:
            self.wait_until_current()
            yield
        finally:
            runner.stop()
            thread.join()

    def wait_until_current(self, *, timeout_s: float = 900) -> None:
        """Every sink has everything that the source had at the time of the call."""
        found = self.source.execute("FROM lake.current_snapshot()").fetchone()
        assert found is not None
        deadline = time.monotonic() + timeout_s
        while not self.has_reached(found[0]):
            assert time.monotonic() < deadline, "the pipeline did not catch up"
            time.sleep(0.03)

    def has_reached(self, snapshot: int) -> bool:
        """Whether every sink has committed it, or had nothing to commit."""
        lines = {} if self.view is None else self.view.sinks
        places = [line.position for line in lines.values()]
        return len(places) == len(self.pipeline.sinks) and all(
            place is not None and int(place.split("-")[1], 16) >= snapshot for place in places
        )

    def _runner(self) -> Runner:
        def show(view: View) -> None:
            self.view = view

        pipeline = self.pipeline
        name = f"bench-{time.monotonic_ns()}"
        return Runner(
            pipeline,
            name=name,
            jobs=Jobs(pipeline, self.spark, runner=name),
            open_source=lambda generation: Stage(
                self.curtain, lake_of(pipeline.source.address), generation=generation
            ),
            control=open_control(pipeline.control, pipeline=pipeline.name),
            trace=Trace(None),
            until=Until(),
            on_view=show,
        )


@dataclass(frozen=True)
class Data:
    """Where lakes keep their files: below a folder, or in a bucket."""

    prefix: str = ""
    storage: Storage | None = None

    def lake(self, catalog: str, name: str, folder: Path) -> LakeAddress:
        """One with its files in a place of that name."""
        return parse_address(catalog, self.prefix + name, base=folder, storage=self.storage)


ON_DISK = Data()


def data_in(stack: ExitStack, *, s3: bool) -> Data:
    """On the disk, or in an object store that is started for it, on this machine."""
    if not s3:
        return ON_DISK
    server = stack.enter_context(s3_server())
    server.bucket("bench")
    return Data("s3://bench/", settle(StorageSection(**server.storage()), "s3://bench/"))


def lakes_in(folder: Path, count: int, data: Data = ON_DISK) -> list[LakeAddress]:
    """Sinks on SQLite catalogs."""
    return [data.lake(f"sqlite:lakes/t{n}.db", f"lakes/t{n}", folder) for n in range(count)]


@contextmanager
def rig(
    folder: Path,
    *,
    lakes: Sequence[LakeAddress],
    routed: bool,
    workers: int | None = None,
    data: Data = ON_DISK,
    certificate: CertificateSettings | None = None,
) -> Iterator[Rig]:
    """A pipeline into these lakes; routed: each gets its own tenant's rows, otherwise all get everything."""
    source = data.lake("sqlite:source.db", "source-data", folder)
    table = TableSettings(
        TableName.parse(TABLE), ("id",), "tenant" if routed else None, not routed, "count", "backfill"
    )
    pipeline = Pipeline(
        name="bench",
        path=folder / "pipeline.yaml",
        source=SourceSettings("ducklake", source),
        tables=(table,),
        sinks=tuple(_sink(n, address, routed=routed) for n, address in enumerate(lakes)),
        batch=BatchSettings(rows_max=500_000, bytes_max=64 << 20, interval_ms=100, deadline_ms=120_000),
        lease_ms=60_000,
        control=Secret(str(folder / "control.db")),
        state=folder / "state",
        spark=SparkSettings(None, {}),
        certificate=certificate,
    )
    connection = connect(threads=2)
    attach(connection, source, "lake", create=True)
    connection.execute(f"CREATE TABLE lake.{TABLE} ({COLUMNS})")
    master = None if workers is None else f"local[{workers}]"
    spark = open_session(
        app="bench",
        master=master,
        conf={},
        scratch=folder / "state",
        worker_modules=worker_modules("ducklake", ["ducklake", "postgres"]),
    )
    try:
        yield Rig(pipeline, connection, spark)
    finally:
        spark.stop()
        connection.close()


def _sink(n: int, address: LakeAddress, *, routed: bool) -> SinkSettings:
    return SinkSettings(
        name=f"t{n}",
        type="ducklake",
        address=address,
        route=f"t{n}" if routed else None,
        existing="refuse",
        modes={TABLE: "mirror"},
    )
