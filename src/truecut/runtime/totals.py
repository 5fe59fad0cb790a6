"""What was counted, over all runs and runners of a pipeline: rows written, rows that no sink wanted.

Owns three tables of the control store. Promises: what is added counts once for all runners, also when the
store's answer was lost and it is told again: each runner numbers its tallies, and the store knows the last
one of each. A window that is read again, by a late sink or after a crash, adds nothing to the rows that no
sink wanted, nor does a table that is read whole once more. Rows written whose report was lost in a crash are
not in the total: the sinks know their content, this is what `status` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truecut.model.position import Position

PLACE_MAX = (1 << 64) - 1
Run = Callable[..., list[tuple[Any, ...]]]  # (sql, *rows)

FORGET_MS = 7 * 24 * 3_600_000  # a runner that has not told anything for so long has nothing to tell again

TABLES = (
    "CREATE TABLE IF NOT EXISTS truecut_tally (pipeline TEXT NOT NULL, runner TEXT NOT NULL, "
    "number BIGINT NOT NULL, told_ms BIGINT NOT NULL, PRIMARY KEY (pipeline, runner))",
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
    """What is to be added: by (sink, table), and by window; the `number`th that this runner tells."""

    written: Mapping[tuple[str, str], Written] = field(default_factory=dict)
    unrouted: Sequence[Unrouted] = ()
    runner: str = ""
    number: int = 0

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


def add(run: Run, pipeline: str, tally: Tally, *, now_ms: int) -> None:
    """In the caller's transaction. A tally that was added before is not added again, nor is a window that
    begins before what was counted last."""
    if not tally or not _is_new(run, pipeline, tally, now_ms):
        return
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


def _is_new(run: Run, pipeline: str, tally: Tally, now_ms: int) -> bool:
    """Whether the store does not know it; from now on it does."""
    known = run(
        "SELECT number FROM truecut_tally WHERE pipeline = ? AND runner = ?", (pipeline, tally.runner)
    )
    if known and int(known[0][0]) >= tally.number:
        return False
    run(
        "INSERT INTO truecut_tally VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, runner) DO UPDATE"
        " SET number = excluded.number, told_ms = excluded.told_ms",
        (pipeline, tally.runner, tally.number, now_ms),
    )
    return True


def signed_off(run: Run, pipeline: str, runner: str, *, now_ms: int) -> None:
    """In the caller's transaction: this runner tells nothing any more, and so do those of long ago."""
    run(
        "DELETE FROM truecut_tally WHERE pipeline = ? AND (runner = ? OR told_ms < ?)",
        (pipeline, runner, now_ms - FORGET_MS),
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
