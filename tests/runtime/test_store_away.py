"""A run and its control store: it asks for little, and outlives the store's absence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import eventually
from tests.postgres_server import postgres_server
from tests.runtime.quiet import StillSource, ToldJobs, pipeline_in, running
from truecut.config.secret import Secret
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.pauses import pause
from truecut.runtime.run_report import View

LEASE_S = 3


class Watched:
    """A database that remembers which tables were written, and how many transactions there were."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.written: Counter[str] = Counter()
        self.transactions = 0

    @contextmanager
    def transaction(self, pipeline: str, *, reading: bool = False) -> Iterator[None]:
        self.transactions += 1
        with self._database.transaction(pipeline, reading=reading):
            yield

    def run(self, sql: str, *rows: Sequence[object]) -> list[tuple[Any, ...]]:
        if not sql.startswith("SELECT"):
            self.written[next(word for word in sql.split() if word.startswith("truecut_"))] += 1
        found: list[tuple[Any, ...]] = self._database.run(sql, *rows)
        return found

    def now_us(self) -> int:
        return int(self._database.now_us())

    def close(self) -> None:
        self._database.close()


def test_an_idle_run_writes_nothing_but_its_heartbeat(tmp_path: Path) -> None:
    """However often it looks at a source that stands still."""
    pipeline = pipeline_in(tmp_path, lease={"duration": "1h"})
    pause(pipeline.state)
    first = open_control(pipeline.control, pipeline=pipeline.name)
    watched = Watched(first._db)
    views: list[View] = []
    source = StillSource()
    with (
        closing(ControlStore(watched, pipeline=pipeline.name)) as control,
        running(pipeline, control, source, ToldJobs(), views.append),
    ):
        eventually(lambda: source.looks >= 30 and len(views) >= 3, what="it has looked at the source")
        asked, written = watched.transactions, dict(watched.written)
    assert written == {"truecut_runner": 1, "truecut_lease": 2, "truecut_source": 1}
    assert asked <= 6


def test_a_run_outlives_a_restart_of_its_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While the store is away, leases run out and nothing is started; afterwards they are claimed anew, with
    larger tokens. That the store is away is said once, and that it is back."""
    with postgres_server() as server:
        address = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        pipeline = pipeline_in(tmp_path, lease={"duration": f"{LEASE_S}s"}, control=address)
        jobs, views = ToldJobs(), list[View]()
        with (
            closing(open_control(Secret(address), pipeline=pipeline.name)) as control,
            running(pipeline, control, StillSource(), jobs, views.append),
        ):
            eventually(lambda: len(jobs.tokens) == 2 == len(views[-1].sinks), what="both sinks are ours")
            server.stop()
            eventually(lambda: bool(views) and not views[-1].sinks, what="the leases have run out")
            assert views[-1].control_fault is not None
            before = {sink: list(tokens) for sink, tokens in jobs.tokens.items()}
            server.start()
            eventually(lambda: all(_larger(before[s], jobs.tokens[s]) for s in before), what="claimed anew")
            eventually(lambda: views[-1].control_fault is None, what="the store is back")
        held = server.psql("SELECT count(*) FROM truecut_lease WHERE owner IS NOT NULL")
    assert held == "0", "a clean stop gives everything back"
    said = [record for record in caplog.records if record.message.startswith("the control store")]
    assert [record.__dict__["facts"].code for record in said] == ["TC5011", ""]
    assert said[1].message == "the control store answers again"


def _larger(before: list[int], now: list[int]) -> bool:
    return now[-1] > max(before)
