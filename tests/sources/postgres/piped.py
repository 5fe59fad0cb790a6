"""A database with a pipeline on it: captured into a journal, read by its windows, and judged at frontiers.

A frontier is the consistent point of a temporary slot: its exported snapshot shows exactly what committed
before it, to plain SQL."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.patience import PATIENCE_S
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.runtime.capture_start import capture
from truecut.runtime.settled_tables import settled
from truecut.sources.contract import Source, Stopped, TableRead, Window, WindowLimits
from truecut.sources.registry import open_source

Row = tuple[Any, ...]
WIDE = WindowLimits(rows_max=1_000_000, bytes_max=1 << 40)
MIRROR: frozenset[Mode] = frozenset({"mirror"})
BOTH: frozenset[Mode] = frozenset({"mirror", "append"})


@dataclass
class Piped:
    """One pipeline without sinks that are written to: its windows are applied by the test itself."""

    folder: Path
    conninfo: str
    document: dict[str, Any]
    stop: threading.Event = field(default_factory=threading.Event)

    def pipeline(self) -> Pipeline:
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(self.document))
        return settled(load(file, environ=os.environ))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, autocommit=True)

    def close(self) -> None:
        """The server has few slots."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE database = current_database()"
            )

    def capture(self) -> None:
        """Everything that has committed by now, into the journal."""
        capture(self.pipeline(), owner="test", stop=self.stop, once=True)

    def source(self) -> Source:
        return open_source(self.pipeline().source, generation=1)

    def source_seen(self) -> Source:
        """As a new process has it, after its first look."""
        source = self.source()
        source.observe()
        return source

    def begin(self, source: Source) -> Position:
        """Captured from here on, and every table known."""
        self.capture()
        deadline = time.monotonic() + PATIENCE_S
        while (seen := source.observe()).unready:  # a message of no transaction is not in the log at once
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
            self.capture()
        return seen.head

    def reads(self, modes: frozenset[Mode]) -> Mapping[TableName, tuple[TableRead, frozenset[Mode]]]:
        return {
            table.name: (TableRead(table.name, table.key, table.route_by), modes)
            for table in self.pipeline().tables
        }

    def window(
        self, source: Source, after: Position, upto: Position, limits: WindowLimits = WIDE, **how: Any
    ) -> Window:
        reads = self.reads(how.get("modes", MIRROR))
        places = {name: (read, after, modes) for name, (read, modes) in reads.items()}
        return source.plan_window(places, upto_max=upto, limits=limits, parallelism=2)


@contextmanager
def frontier(conninfo: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """(its LSN, a session that sees the database as it was there)."""
    with psycopg.connect(f"{conninfo} replication=database", autocommit=True) as slots:
        made = slots.execute(
            b"CREATE_REPLICATION_SLOT frontier TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
        ).fetchone()
        assert made is not None
        with psycopg.connect(conninfo) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{made[2]}'".encode())
            yield made[1], connection


def pipeline_document(
    name: str,
    conninfo: str,
    tables: Sequence[Mapping[str, Any]],
    *,
    sinks: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    lake = {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake-data"}
    return {
        "apiVersion": "truecut/v1",
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": {
            "source": {"type": "postgres", "dsn": conninfo},
            "tables": [dict(table) for table in tables],
            "sinks": [dict(sink) for sink in sinks] or [lake],
            **spec,
        },
    }


class Mirror:
    """Tables as the changes of windows make them: events one by one, absent values from the row before."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self.keys = keys
        self.rows: dict[str, dict[Row, dict[str, Any]]] = {table: {} for table in keys}
        self.stopped: dict[str, str] = {}
        self.ids: set[tuple[int, int]] = set()

    def apply(self, window: Window) -> None:
        events: dict[str, list[dict[str, Any]]] = {}
        for task in window.tasks:
            try:
                for name, batch in task.read():
                    events.setdefault(str(name), []).extend(batch.to_pylist())
            except Stopped as stopped:
                self.stopped |= {str(name): fault.code for name, fault in stopped.faults.items()}
        for table, found in events.items():
            for event in sorted(found, key=lambda one: (one[change.PLACE], one[change.SEQ])):
                self._event(table, event)

    def _event(self, table: str, event: dict[str, Any]) -> None:
        rows, op = self.rows[table], event[change.OP]
        number = (event[change.PLACE], event[change.SEQ])
        assert number not in self.ids, "each change is given once"
        self.ids.add(number)
        values = {name: value for name, value in event.items() if not name.startswith(change.PREFIX)}
        key = tuple(values[name] for name in self.keys[table])
        if op == change.TRUNCATE:
            rows.clear()
        elif op == change.DELETE:
            self.moved = rows.pop(key)
        else:
            assert (key in rows) == (op == change.UPDATE)
            before = rows.get(key) or getattr(self, "moved", {})
            absent = event.get(change.UNCHANGED) or ()
            rows[key] = {name: before[name] if name in absent else values[name] for name in values}

    def content(self, table: str, columns: Sequence[str]) -> list[Row]:
        found = [tuple(row.get(name) for name in columns) for row in self.rows[table].values()]
        return sorted(found, key=repr)
