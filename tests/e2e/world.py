"""A small world for end-to-end tests: a live source lake, tenants' lakes, a pipeline between them.

Sources are written and sinks are read with plain DuckDB, never through the code under test.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import yaml
from pyspark.sql import SparkSession

from tests.patience import PATIENCE_S
from tests.s3_server import S3Server
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.lake import LakeAddress, attach_sql, connect, lake_of
from truecut.runtime.control import open_control
from truecut.runtime.jobs import Jobs
from truecut.runtime.run_report import View
from truecut.runtime.runner import Runner
from truecut.runtime.settled_tables import settled
from truecut.runtime.trace import Trace
from truecut.runtime.until import Outcome, Until
from truecut.sources.registry import open_source

Rows = list[tuple[Any, ...]]


@dataclass
class World:
    """`document` is the pipeline file, as data; `save` writes it where the command line can read it."""

    folder: Path
    spark: SparkSession | None
    document: dict[str, Any]
    store: S3Server | None = None  # that some of its lakes keep their files in
    views: list[View] = field(default_factory=list)
    runs: int = 0

    @property
    def traces(self) -> Path:
        """Where every run in this world leaves its trace, for the spec to judge."""
        folder = self.folder / "traces"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    def save(self) -> Path:
        """Write the pipeline file, if it differs, in one step: runs may be reading it."""
        text = yaml.safe_dump(self.document, sort_keys=False)
        if not self.file.exists() or self.file.read_text() != text:
            draft = self.file.with_suffix(f".{threading.get_ident()}")
            draft.write_text(text)
            draft.rename(self.file)
        return self.file

    def pipeline(self) -> Pipeline:
        return settled(load(self.save(), environ=os.environ))

    # --- the source -----------------------------------------------------------------------------------

    def source(self, *statements: str) -> None:
        """Run statements against the source lake `lake`, each in a transaction of its own."""
        with self._attached(lake_of(self.pipeline().source.address), create=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def source_rows(self, query: str) -> Rows:
        with self._attached(lake_of(self.pipeline().source.address)) as connection:
            return connection.execute(query).fetchall()

    # --- the sinks ------------------------------------------------------------------------------------

    def sink_rows(self, sink: str, query: str = "FROM lake.main.events ORDER BY ALL") -> Rows:
        """A tenant's own view of its lake."""
        address = next(lake_of(s.address) for s in self.pipeline().sinks if s.name == sink)
        with self._attached(address) as connection:
            return connection.execute(query).fetchall()

    def tenant(self, sink: str, *statements: str) -> None:
        """What the tenant itself does to its lake."""
        address = next(lake_of(s.address) for s in self.pipeline().sinks if s.name == sink)
        with self._attached(address) as connection:
            for statement in statements:
                connection.execute(statement)

    def assert_mirrors(self, *, columns: str = "*", table: str = "main.events") -> None:
        """Every sink equals its share of the source, row for row."""
        for sink in self.pipeline().sinks:
            where = "" if sink.route is None else f"WHERE tenant = '{sink.route}'"
            expected = self.source_rows(f"SELECT {columns} FROM lake.{table} {where} ORDER BY ALL")
            got = self.sink_rows(sink.name, f"SELECT {columns} FROM lake.{table} ORDER BY ALL")
            assert got == expected, f"{sink.name}: {len(got)} rows, expected {len(expected)}"

    def assert_mirrors_whole(self, table: str) -> None:
        """A broadcast table is the same everywhere."""
        expected = self.source_rows(f"FROM lake.{table} ORDER BY ALL")
        for sink in self.pipeline().sinks:
            assert self.sink_rows(sink.name, f"FROM lake.{table} ORDER BY ALL") == expected, sink.name

    @contextmanager
    def _attached(self, address: LakeAddress, *, create: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        connection = _connection()
        if self.store is not None:
            self.store.reached_by(connection)
        patience = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection.execute(attach_sql(address, "lake", create=create))
                break
            except duckdb.IOException:  # a DuckDB file is locked while somebody else has it attached
                if time.monotonic() > patience:
                    raise
                time.sleep(0.02)
        try:
            yield connection
        finally:
            connection.execute("DETACH lake")

    # --- running --------------------------------------------------------------------------------------

    def runner(self, until: Until, *, accept: bool = False) -> Runner:
        pipeline = self.pipeline()
        assert self.spark is not None
        self.runs += 1
        name = f"run-{self.runs}"
        return Runner(
            pipeline,
            name=name,
            jobs=Jobs(pipeline, self.spark, runner=name),
            open_source=lambda generation: open_source(pipeline.source, generation=generation),
            control=open_control(pipeline.control, pipeline=pipeline.name),
            trace=Trace(self.traces / f"{name}.jsonl", runner=name),
            until=until,
            accept=accept,
            on_view=self.views.append,
        )

    def catch_up(self, *, timeout_s: float = PATIENCE_S, accept: bool = False) -> Outcome:
        """Run until everything the source has now is at every sink."""
        return self.runner(Until(caught_up=True, timeout_ms=int(timeout_s * 1000)), accept=accept).run()

    @contextmanager
    def running(self) -> Iterator[Runner]:
        """A live run in the background, stopped cleanly at the end of the block."""
        runner = self.runner(Until())
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            yield runner
        finally:
            runner.stop()
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive(), "a stop must end the run"


def in_store(document: dict[str, Any], server: S3Server, bucket: str, *lakes: str) -> dict[str, Any]:
    """The same pipeline, with the files of these lakes (`source`, or sinks by name) in a bucket.

    The secret stands in the environment: whoever finds it in a file has found a leak.
    """
    server.bucket(bucket)
    spec = document["spec"]
    for name, lake in [("source", spec["source"]), *((sink["name"], sink) for sink in spec["sinks"])]:
        if name in lakes:
            lake["data_path"] = f"s3://{bucket}/{name}"
            lake["storage"] = server.storage(secret="${S3_SECRET}")
    return document


_of_thread = threading.local()


def _connection() -> duckdb.DuckDBPyConnection:
    """One plain DuckDB for each thread: starting it costs more than most questions."""
    if not hasattr(_of_thread, "connection"):
        _of_thread.connection = connect()
    connection: duckdb.DuckDBPyConnection = _of_thread.connection
    return connection


def eventually(
    condition: Callable[[], bool], *, timeout_s: float = PATIENCE_S, pause_s: float = 0.25, what: str
) -> None:
    """Wait until it holds, looking every `pause_s`; fail with `what` when it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(pause_s)


def tenants_document(
    *,
    tenants: list[str],
    source: str = "sqlite:source.db",
    catalog: str = "sqlite:{tenant}.db",
    mode: Literal["mirror", "append"] = "mirror",
    **spec: Any,
) -> dict[str, Any]:
    """One table `main.events (id, tenant, …)` routed to one lake for each tenant."""
    return {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": "tenants"},
        "spec": {
            "source": {"type": "ducklake", "catalog": source, "data_path": "source-data"},
            "tables": [{"name": "main.events", "key": ["id"], "route_by": "tenant"}],
            "sinks": [
                {
                    "name": tenant,
                    "type": "ducklake",
                    "catalog": catalog.format(tenant=tenant),
                    "data_path": f"{tenant}-data",
                    "route": tenant,
                    "mode": mode,
                }
                for tenant in tenants
            ],
            "batch": {"interval": "100ms"},
            **spec,
        },
    }
