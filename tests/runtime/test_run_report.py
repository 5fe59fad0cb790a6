"""What a runner reports of a sink that it has just forgotten, or does not know yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.config.pipelines import MINIMAL
from truecut.config.load import load
from truecut.core import answers, delivery
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold, Version
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.orders import wanted
from truecut.runtime.pauses import Pauses
from truecut.runtime.run_report import View
from truecut.runtime.status_document import status_document
from truecut.runtime.timetable import Clock
from truecut.sources.contract import Observation

PLACE, EARLIER = Position(1, 7), Position(1, 6)
FAULT = Fault("TC4001", "locked", "Wait.", Retry.RETRYABLE)


class Still(Clock):
    """It is always the same time."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms


def _view(folder: Path, *, now_ms: int = 0) -> tuple[View, SinkState]:
    (folder / "p.yaml").write_text(MINIMAL)
    pipeline = load(folder / "p.yaml", environ={})
    (sink,) = wanted(pipeline).values()
    return View(pipeline, Still(now_ms)), sink


def _state(sink: SinkState) -> Delivery:
    return Delivery({"copy": sink}, identity="i", oldest=Position(1, 0), head=PLACE)


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ("", "Remove the cause, then run `truecut resume FILE --table {table}`."),
        ("Add a sink.", "Add a sink. Then run `truecut resume FILE --table {table}`."),
        (
            "Mend it; then truecut resume FILE --table {table}",
            "Mend it; then truecut resume FILE --table {table}",
        ),
    ],
)
def test_a_held_table_says_what_its_code_says(fix: str, said: str, tmp_path: Path) -> None:
    """The remedy of the code is kept with the hold, also in the sink, and ends with how the table goes on."""
    view, sink = _view(tmp_path)
    table = next(iter(sink.settings))
    hold = Hold("TC3003", "it has rows that match no sink", fix.format(table=table))
    kept = CopyState("mirror", "", (), at=PLACE, hold=hold)
    read = Cursor.from_json(Cursor(PLACE, 1, {table: kept}).to_json(), position=PLACE, token=1)
    assert read.copies[table].hold == hold
    copy = Copy("held", at=PLACE, edition=1, source_identity="i", hold=hold)
    view.refresh(_state(replace(sink, phase="ready", token=1, cursor=PLACE, copies={table: copy})))
    line = view.sinks["copy"]
    assert line.error is not None
    assert line.error["fix"] == line.tables[table]["error"]["fix"] == said.format(table=table)


def test_a_sink_that_fails_keeps_what_it_had(tmp_path: Path) -> None:
    """Its copies are where they were, or further: a lock for a moment does not make them never seeded."""
    view, sink = _view(tmp_path)
    table = next(iter(sink.settings))
    streaming = Copy("streaming", at=PLACE, edition=1, source_identity="i", durable=Version(1, PLACE))
    ready = replace(sink, phase="ready", token=1, cursor=PLACE, copies={table: streaming})
    view.refresh(_state(ready))
    (known,) = view.changed_sinks().values()
    view.refresh(_state(answers.failed(ready, FAULT, 0)))
    (report,) = view.changed_sinks().values()
    assert (report["state"], report["error"]["code"], report["lag_ms"]) == ("failed", "TC4001", None)
    assert (report["cursor"], report["tables"]) == (known["cursor"], known["tables"])


def test_a_copy_that_is_read_again_is_seen_to_be(tmp_path: Path) -> None:
    """It has rows, and a place that counts no more: sink, table and copy say `backfilling`, while the seed is
    under way and before it."""
    view, sink = _view(tmp_path)
    (table,) = sink.settings
    streaming = Copy("streaming", at=PLACE, edition=1, source_identity="i", durable=Version(1, PLACE))
    ready = replace(sink, phase="ready", token=1, cursor=PLACE, copies={table: streaming})
    lost = delivery.observe(_state(ready), identity="j", oldest=Position(2, 0), head=Position(2, 4))
    seeding, effects = delivery.start_seed(lost, now_ms=0)
    assert effects
    told: dict[str, dict[str, Any]] = {}
    for state in (_state(ready), lost, seeding):
        view.refresh(state)
        told |= view.changed_sinks()
        reports = Reports(running=True, runners={}, sinks=told)
        document = status_document(view.pipeline, reports, Pauses())
        seen = {document[part][0]["state"] for part in ("sinks", "tables", "copies")}
        assert seen == ({"current", "streaming"} if state.identity == "i" else {"backfilling"})


@pytest.mark.parametrize(
    ("at", "head_seen_at_ms", "lag_ms"),
    [
        (PLACE, 4_000, 0),
        (EARLIER, 4_000, 5_000),
        (EARLIER, None, None),  # nobody has told when the head was committed
        (None, 4_000, None),  # to be seeded
    ],
)
def test_a_lag_that_nobody_knows_is_not_nothing(
    tmp_path: Path, at: Position | None, head_seen_at_ms: int | None, lag_ms: int | None
) -> None:
    """Unknown is not 0; a sink lags since the first commit that it lacks."""
    view, sink = _view(tmp_path, now_ms=9_000)
    if head_seen_at_ms is not None:
        view.observed(Observation("i", Position(1, 0), PLACE, head_seen_at_ms))
    table = next(iter(sink.settings))
    copy = Copy("unseeded") if at is None else Copy("streaming", at=at, edition=1, source_identity="i")
    view.refresh(_state(replace(sink, phase="ready", token=1, cursor=None, copies={table: copy})))
    assert view.sinks["copy"].lag_ms == lag_ms


def test_a_sink_whose_cursor_was_not_read_yet_is_not_reported(tmp_path: Path) -> None:
    """The runner before us has told more than we know."""
    view, sink = _view(tmp_path)
    view.refresh(_state(replace(sink, phase="acquired", token=1)))
    assert view.changed_sinks() == {}


def test_a_sink_that_was_never_reached_is_told_to_be_retired(tmp_path: Path) -> None:
    """Otherwise the journal would be kept for it for ever."""
    view, sink = _view(tmp_path)
    view.refresh(_state(answers.failed(replace(sink, phase="acquired", token=1), FAULT, 0)))
    assert view.changed_sinks()["copy"]["state"] == "failed"
    view.pipeline = replace(view.pipeline, sinks=())
    assert view.retire(["copy", "of nobody"]) == {"of nobody"}
    told = view.changed_sinks()
    assert {name: (line["state"], line["error"]) for name, line in told.items()} == {
        "copy": ("retired", None)
    }


def test_what_no_certificate_claims_is_told_since_when(tmp_path: Path) -> None:
    """From the commit of the first head beyond the certified place, also when the sink has had it for long;
    with nothing uncertified, what the copy itself lacks. A copy that was never certified has no figure."""
    view, sink = _view(tmp_path, now_ms=9_000)
    table = next(iter(sink.settings))
    for head, committed_at_ms in ((EARLIER, 1_000), (PLACE, 4_000)):
        view.observed(Observation("i", Position(1, 0), head, committed_at_ms))

    def lag_ms(copy: Copy, certified: Position | None) -> int | None:
        ready = replace(sink, phase="ready", token=1, cursor=copy.at, copies={table: copy})
        row = {"at": str(certified), "verdict": "unknown" if certified is None else "certified"}
        view.refresh(_state(ready), {(table, "copy"): row})
        return view.certified_lag_ms.get((table, "copy"))

    applied = Copy("streaming", at=PLACE, edition=1, source_identity="i", durable=Version(1, PLACE))
    assert lag_ms(applied, EARLIER) == 5_000
    assert lag_ms(applied, EARLIER) == 5_000, "the head is remembered though every sink has it"
    assert lag_ms(applied, PLACE) == 0
    assert lag_ms(replace(applied, durable=Version(1, EARLIER)), EARLIER) == 0, "nothing came for it"
    assert lag_ms(applied, None) is None
