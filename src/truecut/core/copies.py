"""One table at one sink: whether it streams, is held or must be seeded, and where it stands.

Promises D5: nothing is read across a gap. A mirror whose place is gone is seeded anew; an append table,
and a mirror that says so, is held.
"""

from __future__ import annotations

from dataclasses import replace

from truecut.core.state import Copy, CopySettings, Delivery, SinkState
from truecut.model.cursor import NOT_CARRIED_CODE, Cursor, Hold
from truecut.model.position import Position

GAP_CODE = "TC3001"
PAUSED_CODE = "TC3002"
CHANGED_CODE = "TC3004"
BACKWARDS_CODE = "TC3005"


def copy_at(cursor: Cursor, table: str, wanted: CopySettings) -> Copy:
    """What a sink's own cursor says of one table that the pipeline wants there."""
    known = cursor.copies.get(table)
    place = cursor.position
    if known is None or place is None or not known.columns:
        return Copy("unseeded") if known is None or known.hold is None else held(known.hold)
    if known.fingerprint != wanted.fingerprint:
        message = f"the key, route or mode of {table} was changed; its copy would be replaced"
        return Copy("unseeded") if wanted.accept else held(Hold(place, CHANGED_CODE, message))
    if known.hold is None:
        return Copy("streaming", place)
    # Settings that were changed back, a table that is back in the pipeline: it goes on where it stood.
    passed = known.hold.code in (CHANGED_CODE, NOT_CARRIED_CODE)
    return Copy("streaming", known.hold.at) if passed else held(known.hold)


def gap(
    sink: SinkState, oldest: Position, *, everything: bool = False, tables: frozenset[str] | None = None
) -> SinkState:
    """D5: a streaming copy whose place is gone is seeded anew (mirror) or held (append, on_gap: stop).

    Of `tables`, or of all.
    """
    lost = {
        table: _across_gap(copy, sink.settings[table], oldest)
        for table, copy in sink.copies.items()
        if copy.status == "streaming" and (everything or fell_behind(copy, oldest))
        if tables is None or table in tables
    }
    return replace(sink, copies={**sink.copies, **lost}) if lost else sink


def _across_gap(copy: Copy, wanted: CopySettings, oldest: Position) -> Copy:
    if wanted.mode == "mirror" and wanted.on_gap == "backfill":
        return Copy("unseeded")
    place = copy.at or oldest
    message = f"the source no longer has its history after {place}; the oldest position is {oldest}"
    return held(Hold(place, GAP_CODE, message))


def backwards(sink: SinkState, cursor: Position, head: Position) -> SinkState:
    """Another source whose positions are not above the old one's: a seed would move the cursor back (D1)."""
    message = f"the source was replaced, and its head {head} is not above the sink's cursor {cursor}"
    stuck = held(Hold(cursor, BACKWARDS_CODE, message))
    return replace(sink, copies=dict.fromkeys(sink.copies, stuck))


def fell_behind(copy: Copy, oldest: Position) -> bool:
    """A window may start at `oldest` or later."""
    return copy.status == "streaming" and copy.at is not None and copy.at < oldest


def resumed(state: Delivery, copy: Copy, wanted: CopySettings) -> Copy:
    """A held table goes on from its own place where that can be read; otherwise a mirror is seeded anew.

    A mirror that stopped with an error is seeded in any case: whatever went wrong, it is repaired. An
    append table behind a gap stays held, now for the gap; resumed once more, somebody has decided that
    it shall get the whole table again as `read` rows.
    """
    code = None if copy.hold is None else copy.hold.code
    readable = copy.at is not None and state.oldest is not None and copy.at >= state.oldest
    if readable and (code == PAUSED_CODE or wanted.mode == "append"):
        return Copy("streaming", copy.at)
    if wanted.mode == "append" and code != GAP_CODE and state.oldest is not None:
        return _across_gap(copy, wanted, state.oldest)
    return Copy("unseeded")


def held(hold: Hold) -> Copy:
    """Held at the hold's place."""
    return Copy("held", hold.at, hold)


def unseeded(sink: SinkState) -> list[str]:
    """The tables that the sink has to get whole."""
    return [table for table, copy in sink.copies.items() if copy.status == "unseeded"]


def streams(sink: SinkState) -> bool:
    """Whether any table follows the log."""
    return any(copy.status == "streaming" for copy in sink.copies.values())
