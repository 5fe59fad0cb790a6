"""What a runner reports of a sink that it has just forgotten, or does not know yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.config.pipelines import MINIMAL
from truecut.config.load import load
from truecut.core import answers
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.errors import Fault, Retry
from truecut.model.cursor import Version
from truecut.model.position import Position
from truecut.runtime.orders import wanted
from truecut.runtime.run_report import View

PLACE = Position(1, 7)
FAULT = Fault("TC4001", "locked", "Wait.", Retry.RETRYABLE)


def _view(folder: Path) -> tuple[View, SinkState]:
    (folder / "p.yaml").write_text(MINIMAL)
    pipeline = load(folder / "p.yaml", environ={})
    (sink,) = wanted(pipeline).values()
    return View(pipeline), sink


def _state(sink: SinkState) -> Delivery:
    return Delivery({"copy": sink}, identity="i", oldest=Position(1, 0), head=PLACE)


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
