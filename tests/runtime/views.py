"""A runner's view, made without a runner: what its parts tell is what a loop would have told them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.config.pipelines import MINIMAL
from truecut.config.load import load
from truecut.model.position import Position
from truecut.runtime.run_report import SinkView, View

TABLE = "main.events"


def view_of(folder: Path, lines: Mapping[str, dict[str, Any]], *, seen_at_ms: int | None = 1) -> View:
    """The view of a pipeline with these sinks; each by what differs from one that is current."""
    file = folder / "p.yaml"
    file.write_text(MINIMAL)
    view = View(load(file, environ={}))
    view.head = Position(1, 9)
    view.seen_at_ms = seen_at_ms
    view.sinks = {name: line(name, **given) for name, given in lines.items()}
    return view


def line(name: str, *, status: str = "streaming", rows: int = 0, **given: Any) -> SinkView:
    """One sink."""
    copy = {"status": status, "at": str(Position(1, 9)), "error": None, "resumed": 0, "rows_applied": rows}
    settled: dict[str, Any] = {"state": "current", "cursor": "c", "position": "p", "lag_ms": 0, "error": None}
    return SinkView(name=name, rows_applied=rows, tables={TABLE: copy}, **{**settled, **given})
