"""What `status` says of a pipeline that nobody runs: by where each table was left, and what is paused now; of
sinks that came into its file, or were taken out, while somebody does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.pipelines import MINIMAL
from truecut.config.load import load
from truecut.model.position import Position
from truecut.runtime.capture_report import Captured
from truecut.runtime.control import Reports
from truecut.runtime.head_times import Heads
from truecut.runtime.health import complaints
from truecut.runtime.pauses import Pauses
from truecut.runtime.source_standing import Standing
from truecut.runtime.status_document import status_document
from truecut.sources.contract import Observation

TABLE = "main.events"
HEAD, EARLIER = Position(1, 9), Position(1, 5)


def sink_of(folder: Path, report: dict[str, Any], pauses: Pauses) -> tuple[str, int | None]:
    """State and lag of the one sink; the source's commit 6 was a second after the epoch."""
    file = folder / "p.yaml"
    file.write_text(MINIMAL)
    pipeline = load(file, environ={})
    (sink,) = pipeline.sinks
    heads = Heads()
    heads.add(Position(1, 6), 1_000)
    heads.add(HEAD, 2_000)
    standing = Standing(Observation("x", Position(1, 0), HEAD, 2_000), heads=heads)
    told = {"cursor": str(HEAD), "position": str(HEAD), "lag_ms": 0, "error": None, **report}
    reports = Reports(running=False, runners={}, sinks={sink.name: told})
    (line,) = status_document(pipeline, reports, pauses, standing)["sinks"]
    return line["state"], line["lag_ms"]


@pytest.mark.parametrize(
    ("left", "at", "paused", "state"),
    [
        ("current", HEAD, False, "current"),
        ("current", EARLIER, False, "behind"),  # its table was paused when it was left
        ("current", EARLIER, True, "current"),  # and still is: that is the table's line to tell
        ("paused", HEAD, False, "current"),
        ("paused", EARLIER, False, "behind"),
    ],
)
def test_what_was_paused_when_it_was_left_counts_again(
    tmp_path: Path, left: str, at: Position, paused: bool, state: str
) -> None:
    """A position leaves out what is paused: nobody who runs it has brought it up to date."""
    tables = {TABLE: {"status": "streaming", "at": str(at), "error": None}}
    pauses = Pauses(tables=frozenset({TABLE} if paused else ()))
    found, lag_ms = sink_of(tmp_path, {"state": left, "tables": tables}, pauses)
    assert (found, lag_ms == 0) == (state, state == "current")


def test_a_table_that_nobody_has_told_of_is_not_there(tmp_path: Path) -> None:
    """It came into the file since the last run."""
    assert sink_of(tmp_path, {"state": "current", "tables": {}}, Pauses()) == ("behind", None)


def told_of(folder: Path, *, sinks: dict[str, dict[str, Any]], owners: dict[str, str]) -> dict[str, Any]:
    """The document's sinks by name, while a run goes on that has these leases."""
    file = folder / "p.yaml"
    file.write_text(MINIMAL)
    reports = Reports(running=True, runners={"r": {}}, sinks=sinks, owners=owners)
    document = status_document(load(file, environ={}), reports, Pauses())
    return {sink["name"]: sink for sink in document["sinks"]}


def test_a_removed_sink_is_retired_when_no_run_delivers_to_it_any_more(tmp_path: Path) -> None:
    """Its line was taken out of the file while a run goes on: until that one has let it go, it is what it is,
    and nobody's concern."""
    left = {"state": "behind", "cursor": str(HEAD), "lag_ms": 9_000, "error": None, "tables": {}}
    gone = told_of(tmp_path, sinks={"gone": left}, owners={"gone": "r"})["gone"]
    assert (gone["state"], gone["lag_ms"], gone["in_file"]) == ("behind", 9_000, False)
    assert "the run that delivers to it has not seen that yet" in gone["note"]
    assert not any("gone" in found for found in complaints({"copies": [], "sinks": [gone]}, lag_max_ms=0))
    gone = told_of(tmp_path, sinks={"gone": left}, owners={})["gone"]
    assert (gone["state"], gone["lag_ms"], gone["in_file"], gone["note"]) == ("retired", None, False, None)


def test_an_added_sink_is_said_to_wait_until_a_run_takes_it_up(tmp_path: Path) -> None:
    """It is behind, nobody knows how far, and the note says why."""
    ((name, added),) = told_of(tmp_path, sinks={}, owners={}).items()
    assert (added["state"], added["lag_ms"]) == ("behind", None)
    assert "no run has taken it up yet" in added["note"]
    assert told_of(tmp_path, sinks={}, owners={name: "r"})[name]["note"] is None, "a run is about to seed it"


@pytest.mark.parametrize(
    ("durable", "state"),
    [(Position(1, 0), "failed"), (Position(1, 3), "detached"), (Position(1, 5), "failed")],
)
def test_a_sink_is_detached_where_the_journal_went_on_without_a_copy(
    tmp_path: Path, durable: Position, state: str
) -> None:
    """Not where a copy is held that was never made: it waits for nothing in the journal."""
    file = tmp_path / "p.yaml"
    file.write_text(MINIMAL)
    pipeline = load(file, environ={})
    (sink,) = pipeline.sinks
    copy = {"status": "held", "at": str(durable), "durable": str(durable), "error": None}
    told = {"state": "failed", "cursor": None, "position": None, "lag_ms": 0, "error": None}
    reports = Reports(running=False, runners={}, sinks={sink.name: {**told, "tables": {TABLE: copy}}})
    standing = Standing(Observation("x", Position(1, 4), HEAD, 2_000), heads=Heads())
    captured = Captured(state="stopped")
    document = status_document(pipeline, reports, Pauses(), standing, capture=captured)
    (line,) = document["sinks"]
    assert line["state"] == state
    said = [found for found in complaints(document, lag_max_ms=10**9) if found.startswith("sink ")]
    assert [found for found in said if "is detached" in found] == (
        [f"sink {sink.name} is detached: the journal went on without it"] if state == "detached" else []
    )
    assert said, "neither is well"
