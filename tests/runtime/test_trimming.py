"""What of a journal is kept for whom, decided from what the sinks have told; and what is then on disk."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.runtime.quiet import pipeline_in
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.config.settings import Pipeline
from truecut.journal.local import LocalJournal
from truecut.model.position import Position
from truecut.runtime import trimming
from truecut.runtime.control import Reports, open_control
from truecut.runtime.control_readonly import Known
from truecut.runtime.trimming import Trimming, needed_from

_numbers = itertools.count(1)


@pytest.fixture
def piped(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    name = f"trimmed_{next(_numbers)}"
    conninfo = postgres.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sinks = [
        {"name": name, "type": "ducklake", "catalog": f"sqlite:{name}.db", "data_path": f"{name}-data"}
        for name in ("quick", "slow")
    ]
    document = pipeline_document(name, conninfo, [{"name": "public.t", "backfill": "none"}], sinks=sinks)
    made = Piped(tmp_path, conninfo, document)
    yield made
    made.close()


def fill(piped: Piped) -> list[Position]:
    """Four portions of changes, each in segments of its own: the heads behind them."""
    source, heads = piped.source(), []
    piped.capture()
    heads.append(source.observe().head)
    for portion in range(4):
        with piped.connect() as connection:
            connection.execute(
                "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(%s::int, %s) n",
                (portion * 1000, portion * 1000 + 99),
            )
        piped.capture()  # whoever opens a journal begins a segment
        heads.append(source.observe().head)
    return heads


def tell(pipeline: Pipeline, identity: str, places: dict[str, Position | None], **more: Any) -> None:
    """As runners report."""
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.generation(identity)
    control.report_sinks(
        {
            sink: {
                "tables": {
                    "public.t": {
                        "status": "streaming",
                        "durable": None if at is None else str(at),
                        **more.get(sink, {}),
                    }
                }
            }
            for sink, at in places.items()
        }
    )
    control.close()


def kept_from(piped: Piped, pipeline: Pipeline, came: set[str] | None = None) -> Position:
    """Trim once, as the writer does; where the journal begins then."""
    journal = LocalJournal(pipeline.state / "journal", take_over=True)
    trimming = Trimming(pipeline, journal, came)
    try:
        trimming.trim()
    finally:
        trimming.close()
        journal.close()
    return piped.source().observe().oldest


def test_what_every_sink_has_is_trimmed_and_nothing_else(piped: Piped) -> None:
    """As far as the slowest has it durably, in whole segments; nothing before the runners have told of each
    sink; a window from where the slowest stands can still be read."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    begin = piped.source().observe().oldest
    assert kept_from(piped, pipeline) == begin
    tell(pipeline, identity, {"quick": heads[4]})
    assert kept_from(piped, pipeline) == begin
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[2]})
    oldest = kept_from(piped, pipeline)
    assert begin < oldest <= heads[2]
    window = piped.window(piped.source(), heads[2], heads[4])
    assert not window.lost
    assert sum(batch.num_rows for task in window.tasks for _, batch in task.read()) == 200


def test_a_sink_that_holds_back_too_much_is_let_go(piped: Piped) -> None:
    """The others' share alone counts then; where the sink stands is gone, and that is told as lost."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[0]})
    assert kept_from(piped, pipeline) <= heads[0]
    sinks = tuple(replace(sink, hold_bytes_max=30_000) for sink in pipeline.sinks)
    assert kept_from(piped, replace(pipeline, sinks=sinks)) > heads[0]
    assert piped.window(piped.source(), heads[0], heads[4]).lost


def test_sinks_that_came_and_went_while_it_runs_count_by_what_the_runs_say(piped: Piped) -> None:
    """One that a run has retired holds nothing back; one that a run has taken up, of which this process does
    not know, does: from its lease on nothing is trimmed before it has told where it stands."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    begin = piped.source().observe().oldest
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.claim("r", ["new"], duration_ms=600_000, count_max=1)
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[4]})
    assert kept_from(piped, pipeline) == begin
    tell(pipeline, identity, {"new": heads[1]})
    assert begin < (oldest := kept_from(piped, pipeline)) <= heads[1]
    control.report_sinks({"slow": {"state": "retired", "tables": {}}})
    tell(pipeline, identity, {"new": heads[3]})
    assert oldest < kept_from(piped, pipeline) <= heads[3]
    control.close()


def test_a_sink_that_came_is_kept_for_while_nobody_has_it(tmp_path: Path) -> None:
    """Its runner was killed, or let it go: somebody will have it again, unless it was retired."""
    pipeline = pipeline_in(tmp_path)
    extent = cast(Any, SimpleNamespace(identity="i", head=100))

    def told(place: int, state: str = "behind") -> dict[str, Any]:
        copy = {"status": "streaming", "durable": str(Position(1, place))}
        return {"state": state, "tables": dict.fromkeys(map(str, (t.name for t in pipeline.tables)), copy)}

    def needed(state: str = "behind", **owners: str) -> dict[str, int | None]:
        sinks = {"t0": told(100), "t1": told(100), "came": told(10, state)}
        reports = Reports(running=True, runners={}, sinks=sinks, owners=owners)
        return needed_from(pipeline, Known(True, {"i": 1}), reports, extent, {"came"})

    everything = {"t0": 100, "t1": 100}
    assert needed() == needed(came="r") == {**everything, "came": 10}
    assert needed("retired") == everything
    assert needed("retired", came="r") == {**everything, "came": 10}


def test_what_was_had_is_remembered(piped: Piped) -> None:
    """By whoever trims, and by whoever does after it in the same process."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.claim("r", ["new"], duration_ms=600_000, count_max=1)
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[4], "new": heads[1]})
    came: set[str] = set()
    oldest = kept_from(piped, pipeline, came)
    control.leave("r")
    assert kept_from(piped, pipeline, came) == oldest <= heads[1]
    control.close()


def test_whatever_goes_wrong_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody has thought of, too: it would end the thread, and the journal would fill up."""
    tries: list[int] = []
    again = threading.Event()

    def trim(_: Trimming) -> None:
        tries.append(1)
        if len(tries) > 1:
            again.set()
        raise ValueError("secret")

    monkeypatch.setattr(trimming, "TRIM_S", 0.001)
    monkeypatch.setattr(Trimming, "trim", trim)
    with closing(LocalJournal(tmp_path / "journal", take_over=True)) as journal:
        one = Trimming(pipeline_in(tmp_path), journal)
        assert again.wait(PATIENCE_S)
        one.close()
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("trouble", [{"status": "unseeded"}, {"again": True}])
def test_a_table_that_is_read_keeps_the_journal(tmp_path: Path, trouble: dict[str, Any]) -> None:
    """Its units are spliced with the log since they were read, from a place that only they know: also where
    its copy follows the log meanwhile, because somebody wants it read again."""
    pipeline = pipeline_in(tmp_path)
    table = str(pipeline.tables[0].name)
    extent = cast("Any", SimpleNamespace(identity="one", head=99))
    known = Known(exists=True, generations={"one": 1})
    told = {"status": "streaming", "durable": str(Position(1, 50))}
    for more, needed in (({}, 50), (trouble, None)):
        sinks = {sink.name: {"tables": {table: {**told, **more}}} for sink in pipeline.sinks}
        reports = Reports(running=True, runners={}, sinks=sinks)
        assert set(needed_from(pipeline, known, reports, extent).values()) == {needed}


def test_a_held_table_that_was_never_copied_keeps_nothing_of_the_journal(tmp_path: Path) -> None:
    """It has no place in the log that anybody could go on from: resumed, it is copied whole."""
    pipeline = pipeline_in(tmp_path)
    table = str(pipeline.tables[0].name)
    extent = cast("Any", SimpleNamespace(identity="one", head=99))
    known = Known(exists=True, generations={"one": 1})
    told = {"status": "held", "durable": str(Position(1, 0))}
    sinks = {sink.name: {"tables": {table: told}} for sink in pipeline.sinks}
    reports = Reports(running=True, runners={}, sinks=sinks)
    assert set(needed_from(pipeline, known, reports, extent).values()) == {99}


def test_a_place_of_another_generation_keeps_nothing_of_the_journal(tmp_path: Path) -> None:
    """It lies in a log that has ended: its number says nothing of this one. The copy is made anew."""
    pipeline = pipeline_in(tmp_path)
    table = str(pipeline.tables[0].name)
    extent = cast("Any", SimpleNamespace(identity="one", head=99))
    known = Known(exists=True, generations={"one": 2})
    for at, needed in ((Position(2, 50), 50), (Position(1, 50), 99)):
        told = {"status": "streaming", "durable": str(at)}
        sinks = {sink.name: {"tables": {table: told}} for sink in pipeline.sinks}
        reports = Reports(running=True, runners={}, sinks=sinks)
        assert set(needed_from(pipeline, known, reports, extent).values()) == {needed}
