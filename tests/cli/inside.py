"""Commands called inside the test's own process, and what they must leave alone.

Sinks are filled through the sink's own contract, without Spark: the tests are about what is told of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecut.cli.main import main
from truecut.config.settings import Pipeline, SinkSettings, TableSettings, copy_fingerprint
from truecut.lake import lake_of
from truecut.model.cursor import Version
from truecut.model.order import Order, TableOrder
from truecut.sinks.contract import Packet
from truecut.sinks.registry import open_sink
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.source import DuckLakeSource


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.stdout)
        assert isinstance(found, dict)
        return found


def call(*arguments: str | Path) -> Answer:
    """What `truecut ARGUMENTS` prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    handlers = logging.getLogger().handlers[:]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([str(argument) for argument in arguments])
    except SystemExit as end:
        return Answer(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        logging.getLogger().handlers[:] = handlers
    raise AssertionError("main always exits")


Tree = dict[str, tuple[int, str]]


def tree(folder: Path) -> Tree:
    """Everything below a folder: when it was last written, and what it holds."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> tuple[int, str]:
    # SQLite's shared memory holds the locks of readers, too: only that it is there counts.
    if path.is_dir() or path.name.endswith("-shm"):
        return 0, ""
    return path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Nothing below the folder is made, changed or removed in this block."""
    before = tree(folder)
    yield
    assert tree(folder) == before


def seed(pipeline: Pipeline, *names: str, before_apply: Callable[[], None] = lambda: None) -> None:
    """Give these sinks all their tables, as they are at the source's head."""
    source = DuckLakeSource(lake_of(pipeline.source.address), generation=1)
    seen = source.observe()
    reads = [TableRead(t.name, t.key, t.route_by) for t in pipeline.tables]
    window = source.plan_seed(reads, at=seen.head, parallelism=1)
    content: dict[str, list[pa.RecordBatch]] = {}
    for task in window.tasks:
        for table, batch in task.read():
            content.setdefault(str(table), []).append(batch)
    tables = {str(table.name): table for table in pipeline.tables}
    for sink in (sink for sink in pipeline.sinks if sink.name in names):
        opened = open_sink(sink, pipeline=pipeline.name)
        assert opened.recover(epoch=1, token=1).fault is None
        orders = {
            name: TableOrder(
                "replace",
                mode,
                tables[name].key,
                window.schemas[tables[name].name],
                None,
                Version(1, seen.head),
                fingerprint=copy_fingerprint(tables[name], sink),
            )
            for name, mode in sink.modes.items()
        }
        order = Order(sink.name, 1, 1, seen.head, seen.identity, orders)
        packets = [Packet(name, _share(tables[name], sink, content[name])) for name in orders]
        before_apply()
        receipt = opened.apply(order, iter(packets))
        assert receipt.outcome == "applied", receipt.fault


def _share(table: TableSettings, sink: SinkSettings, batches: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(batches)
    if sink.route is None or table.route_by is None:
        return rows
    return rows.filter(pc.equal(rows[table.route_by], sink.route))
