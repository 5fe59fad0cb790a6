"""What `status` says of a pipeline that nobody runs: by where each table was left, and what is paused now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.pipelines import MINIMAL
from truecut.config.load import load
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.heads import Heads
from truecut.runtime.pauses import Pauses
from truecut.runtime.standing import Standing
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
