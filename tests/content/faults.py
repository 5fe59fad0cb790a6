"""Plausible bugs of what carries content, each as one replaced leaf. Production code knows none.

`injected(monkeypatch, name)` switches one on and tells the theme of the lives that show it, and what they
say then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from truecut.sinks.ducklake import inlining
from truecut.sinks.ducklake import schema as sink_schema
from truecut.sources.ducklake import schema, widening, window
from truecut.sources.ducklake.attach import Lake
from truecut.sources.ducklake.catalog import ColumnVersion
from truecut.sources.ducklake.window import WindowPlanner

_added = sink_schema._added
_column = schema._column
_plan = WindowPlanner.plan

DIFFERS = "not at the source, not at the sink|types differ|was dropped and still has values"


def _always(*_: Any, **__: Any) -> bool:
    return True


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _no_clauses(*_: Any) -> list[str]:
    return []


def _added_without_default(column: Any, *, taken: bool) -> list[str]:
    return _added(replace(column, initial=None), taken=taken)


def _fields_by_name(column: ColumnVersion, present: Sequence[ColumnVersion]) -> Any:
    """The parts of a nested column are who they are called."""
    made = _column(column, present)
    return replace(made, parts=tuple(replace(part, id=_number(part.name)) for part in made.parts))


def _number(name: str) -> int:
    return int.from_bytes(name.encode(), "big")


def _altered_is_not_told(planner: WindowPlanner, *args: Any, **how: Any) -> Any:
    """Columns reach those who get rows."""
    return replace(_plan(planner, *args, **how), altered=frozenset())


def _inlined_as_it_comes(columns: Iterable[Any]) -> bool:
    return True


def _always_damaged(lake: Lake, *_: Any) -> list[range]:
    """Whatever maintenance has touched is said to be unreadable."""
    said = f"SELECT changes_made FROM {lake.metadata}.ducklake_snapshot_changes"
    kinds = " ".join(row[0] for row in lake.connection.execute(said).fetchall() if row[0])
    words = ("flushed", "merge", "rewrite", "compact")
    return [range(1 << 62)] if any(word in kinds for word in words) else []


FAULTS: dict[str, tuple[str, str, Callable[[pytest.MonkeyPatch], None]]] = {
    "every_widening_follows": (
        "types",
        DIFFERS,
        lambda patch: patch.setattr(widening, "_follows", _always),
    ),
    # Most of them are then taken for another gap, which is not the true reason.
    "respelled_stay": (
        "routes",
        DIFFERS + "|held for TC3033",
        lambda patch: patch.setattr(schema, "_reads_the_same", _always),
    ),
    "displaced_stay": ("routes", DIFFERS, lambda patch: patch.setattr(schema, "displaced", _nothing)),
    "inlined_as_it_comes": (
        "columns",
        DIFFERS,
        lambda patch: patch.setattr(inlining, "inlines_exactly", _inlined_as_it_comes),
    ),
    "fields_by_name": ("columns", DIFFERS, lambda patch: patch.setattr(schema, "_column", _fields_by_name)),
    "no_default": (
        "columns",
        DIFFERS,
        lambda patch: patch.setattr(sink_schema, "_added", _added_without_default),
    ),
    "dropped_keep_their_values": (
        "columns",
        "was dropped and still has values",
        lambda patch: patch.setattr(sink_schema, "_emptied", _no_clauses),
    ),
    "always_damaged": (
        "upkeep",
        "held for (TC2011|TC3026)",
        lambda patch: patch.setattr(window, "unreadable", _always_damaged),
    ),
    "columns_come_with_rows": (
        "columns",
        DIFFERS,
        lambda patch: patch.setattr(WindowPlanner, "plan", _altered_is_not_told),
    ),
}


def injected(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[str, str]:
    """The theme and the words of the lives that show it."""
    theme, shown, inject = FAULTS[name]
    inject(monkeypatch)
    return theme, shown
