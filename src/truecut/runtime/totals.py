"""What was counted, over all runs and runners of a pipeline: rows written, rows that no sink wanted.

Owns two tables of the control store. Promises: what is added counts once for all runners; a window that is
read again, by a late sink or after a crash, adds nothing to the rows that no sink wanted, nor does a table
that is read whole once more. Rows written whose report was lost in a crash are not in the total: the sinks
know their content, this is what `status` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truecut.model.position import Position

PLACE_MAX = (1 << 64) - 1
Run = Callable[..., list[tuple[Any, ...]]]  # (sql, *rows)

TABLES = (
    "CREATE TABLE IF NOT EXISTS truecut_rows (pipeline TEXT NOT NULL, sink TEXT NOT NULL, "
    "name TEXT NOT NULL, applied BIGINT NOT NULL, backfilled BIGINT NOT NULL, "
    "PRIMARY KEY (pipeline, sink, name))",
    "CREATE TABLE IF NOT EXISTS truecut_unrouted (pipeline TEXT NOT NULL, name TEXT NOT NULL, "
    "count BIGINT NOT NULL, upto TEXT NOT NULL, PRIMARY KEY (pipeline, name))",
)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of one table at one sink; `backfilled` of them by seeds."""

    applied: int = 0
    backfilled: int = 0

    def plus(self, other: Written) -> Written:
        """Both together."""
        return Written(self.applied + other.applied, self.backfilled + other.backfilled)


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Rows of a table in `(after, upto]` that no sink wanted. A seed's window begins with its generation."""

    table: str
    rows: int
    after: Position
    upto: Position


@dataclass(frozen=True, slots=True)
class Tally:
    """What is to be added: by (sink, table), and by window."""

    written: Mapping[tuple[str, str], Written] = field(default_factory=dict)
    unrouted: Sequence[Unrouted] = ()

    def __bool__(self) -> bool:
        return bool(self.written or self.unrouted)


NOTHING = Tally()


@dataclass(frozen=True, slots=True)
class Totals:
    """What was ever added."""

    written: Mapping[tuple[str, str], Written] = field(default_factory=dict)
    unrouted: Mapping[str, int] = field(default_factory=dict)

    def by_sink(self) -> dict[str, int]:
        """Rows written to each sink."""
        applied: dict[str, int] = {}
        for (sink, _), rows in self.written.items():
            applied[sink] = applied.get(sink, 0) + rows.applied
        return applied


def start_of(generation: int) -> Position:
    """Before every position of a generation: a seed's window begins here."""
    return Position(generation - 1, PLACE_MAX)


def add(run: Run, pipeline: str, tally: Tally) -> None:
    """In the caller's transaction. A window that begins before what was counted last is not counted."""
    if tally.written:
        run(
            "INSERT INTO truecut_rows VALUES (?, ?, ?, ?, ?) ON CONFLICT (pipeline, sink, name) DO UPDATE"
            " SET applied = truecut_rows.applied + excluded.applied,"
            " backfilled = truecut_rows.backfilled + excluded.backfilled",
            *(
                (pipeline, sink, table, rows.applied, rows.backfilled)
                for (sink, table), rows in tally.written.items()
            ),
        )
    if tally.unrouted:
        run(
            "INSERT INTO truecut_unrouted VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, name) DO UPDATE"
            " SET count = truecut_unrouted.count + excluded.count, upto = excluded.upto"
            " WHERE truecut_unrouted.upto <= ?",
            *((pipeline, w.table, w.rows, str(w.upto), str(w.after)) for w in tally.unrouted),
        )


def unrouted(run: Run, pipeline: str) -> dict[str, int]:
    """Rows that no sink wanted, by table."""
    rows = run("SELECT name, count FROM truecut_unrouted WHERE pipeline = ? AND count > 0", (pipeline,))
    return {str(table): int(count) for table, count in rows}


def read(run: Run, pipeline: str) -> Totals:
    """Everything, in the caller's transaction."""
    rows = run("SELECT sink, name, applied, backfilled FROM truecut_rows WHERE pipeline = ?", (pipeline,))
    written = {(str(s), str(t)): Written(int(applied), int(filled)) for s, t, applied, filled in rows}
    return Totals(written, unrouted(run, pipeline))
