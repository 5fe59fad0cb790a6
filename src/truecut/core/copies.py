"""One table at one sink: whether it streams, is held or must be seeded, and where it stands.

Promises D5: nothing is read across a gap. A mirror whose place is gone is seeded anew; an append table,
and a mirror that says so, is held. And D8: a look at the source that is older than a copy says nothing of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from truecut.core.state import Copy, CopySettings, Delivery, SinkState
from truecut.model.cursor import SHAPE_CODES, UNTOLD_CODES, CopyState, Hold
from truecut.model.position import Position

GAP_CODE = "TC3001"
CHANGED_CODE = "TC3004"


def copy_at(state: Delivery, table: str, known: CopyState | None, wanted: CopySettings) -> Copy:
    """What a sink's own cursor says of one table that the pipeline wants there, in today's history."""
    copy = recorded(table, known, wanted)
    return copy if state.head is None else placed(state, copy, wanted)


def recorded(table: str, known: CopyState | None, wanted: CopySettings) -> Copy:
    """What a sink's own cursor says, whatever the source has become since."""
    if known is None:
        return Copy("unseeded")
    copy = Copy(
        "streaming",
        known.at,
        known.edition,
        resumed=known.resumed,
        source_identity=known.source_identity,
        durable=known.version,
        shaped=not known.columns or known.fingerprint == wanted.fingerprint,
    )
    # A hold for changed settings passes when they were changed back: it goes on where it stood.
    if known.hold is not None and known.hold.code != CHANGED_CODE:
        return held(copy, known.hold)
    if not known.columns:
        return unseeded(copy)
    return copy if copy.shaped else _reshaped(table, copy, wanted)


def _reshaped(table: str, copy: Copy, wanted: CopySettings) -> Copy:
    """Its rows have another shape: they are replaced, if somebody has agreed to that."""
    if wanted.accept:
        return unseeded(copy)
    message = f"the key, route or mode of {table} was changed; its copy would be replaced"
    return held(copy, Hold(CHANGED_CODE, message))


def placed(state: Delivery, copy: Copy, wanted: CopySettings) -> Copy:
    """D5: a streaming copy whose place is gone is seeded anew (mirror) or held (append, on_gap: stop).

    What a wave is under way for is judged when it ends.
    """
    if copy.status != "streaming" or copy.wave is not None:
        return copy
    if beyond(state, copy) or readable(state, copy):
        return copy
    return across_gap(copy, wanted, _expired(state, copy))


def beyond(state: Delivery, copy: Copy) -> bool:
    """D8: our look at the source is older than the copy: of an earlier generation, or of another source that
    bears the same number. The next look judges it."""
    if state.head is None or copy.durable is None or not copy.durable.edition:
        return False
    known = copy.durable.at.generation
    other = copy.source_identity != state.identity
    return known > state.head.generation or (known == state.head.generation and other)


def outrun(state: Delivery, sink: SinkState) -> bool:
    """Whether nothing can be said of this sink, nor sent to it, before the source was looked at again."""
    return any(beyond(state, copy) for copy in sink.copies.values())


def readable(state: Delivery, copy: Copy) -> bool:
    """A window may start at `oldest` or later, in the history that the place is of."""
    if state.oldest is None:
        return True
    return copy.at is not None and copy.source_identity == state.identity and copy.at >= state.oldest


def across_gap(copy: Copy, wanted: CopySettings, why: Hold) -> Copy:
    """Its place cannot be read."""
    if wanted.mode == "mirror" and wanted.on_gap == "backfill":
        return unseeded(copy)
    return held(copy, why)


def _expired(state: Delivery, copy: Copy) -> Hold:
    place, oldest = copy.at, state.oldest
    message = f"the source no longer has its history after {place}; the oldest position is {oldest}"
    return Hold(GAP_CODE, message)


def resumed(state: Delivery, table: str, copy: Copy, wanted: CopySettings, *, asked: int) -> Copy:
    """A request is taken up. A held append table goes on from its own place where that can be read; a
    mirror is seeded anew.

    A mirror that stopped with an error is seeded in any case: whatever went wrong, it is repaired. An
    append table behind a gap stays held, now for the gap; resumed once more, somebody has decided that
    it shall get the whole table again as `read` rows; so has whoever resumes one whose columns could not be
    followed. Changed settings are accepted, not resumed: nothing
    streams into rows of another shape.
    """
    copy = replace(copy, resumed=asked)
    if copy.status != "held" or copy.hold is None:
        return copy
    if not copy.shaped:
        return _reshaped(table, copy, wanted)
    if wanted.mode == "mirror" or copy.edition == 0 or _is_cut_off(copy):
        return unseeded(copy)
    if readable(state, copy):
        return replace(copy, status="streaming", hold=None)
    return across_gap(copy, wanted, _expired(state, copy))


def again(state: Delivery, table: str, copy: Copy, wanted: CopySettings, *, asked: int) -> Copy:
    """A request to read the table again is taken up.

    A mirror is replaced, whatever became of it. An append table keeps its place: its `read` rows are those of
    that place, so no change is told twice and none is missed. One that had to stop is resumed first; behind a
    gap, or where its columns could not be followed, nothing is left to be told, and it is read at the head.
    Changed settings are accepted, not asked for.
    """
    taken = replace(copy, resumed=asked)
    if copy.status == "held" and not copy.shaped:
        return _reshaped(table, taken, wanted)
    if wanted.mode == "mirror" or copy.hold is not None:
        stopped = wanted.mode == "append" and copy.edition > 0 and not _is_cut_off(copy)
        return copy if stopped else unseeded(taken)
    return replace(taken, status="unseeded")


def _is_cut_off(copy: Copy) -> bool:
    """Held where nothing can be followed from."""
    return copy.hold is not None and copy.hold.code in {GAP_CODE, *SHAPE_CODES, *UNTOLD_CODES}


def untaken(copy: Copy) -> Copy:
    """One that was to be read again at its own place, and could not, goes on as before: the request is taken
    up another time."""
    if copy.status != "unseeded" or copy.at is None or copy.durable is None:
        return copy
    return replace(copy, status="streaming", resumed=copy.durable.resumed)


def held(copy: Copy, hold: Hold) -> Copy:
    """Held where it stands."""
    return replace(copy, status="held", hold=hold)


def unseeded(copy: Copy) -> Copy:
    """To be seeded, wherever it stood."""
    return replace(copy, status="unseeded", at=None, hold=None)


def differs(copy: Copy) -> bool:
    """Whether we know more of it than the sink does. A copy that is to be seeded is told by its seed."""
    return copy.status != "unseeded" and copy.wave is None and copy.version != copy.durable


def to_seed(
    sink: SinkState, head: Position, *, now_ms: int, unready: Container[str] = ()
) -> list[tuple[Position, tuple[str, ...]]]:
    """The tables that the sink has to get whole, and now; and where: at the head, or where a copy stands that
    goes on from there. A place never moves back (D1)."""
    found: dict[Position, list[str]] = {}
    for table, copy in sink.copies.items():
        at = head if copy.at is None else copy.at
        wanted = copy.status == "unseeded" and table not in unready and _may_be_read(sink, table, now_ms)
        if wanted and at <= head and (copy.durable is None or copy.durable.at <= at):
            found.setdefault(at, []).append(table)
    return [(at, group) for at, tables in found.items() for group in _together(sink, tables)]


def wanted_whole(sinks: Iterable[SinkState]) -> frozenset[str]:
    """The tables that one of these sinks has to get whole, now or later."""
    found = ((table, copy) for sink in sinks for table, copy in sink.copies.items())
    return frozenset(table for table, copy in found if copy.status == "unseeded")


def lacking(sink: SinkState, head: Position, *, now_ms: int) -> list[tuple[Position, tuple[str, ...]]]:
    """What the sink lacks: a place, and tables that stand there, before the head."""
    found: dict[Position, list[str]] = {}
    for table, copy in sink.copies.items():
        streaming = copy.status == "streaming" and _may_be_read(sink, table, now_ms)
        if streaming and copy.at is not None and copy.at < head:
            found.setdefault(copy.at, []).append(table)
    return [(place, group) for place, tables in found.items() for group in _together(sink, tables)]


def _may_be_read(sink: SinkState, table: str, now_ms: int) -> bool:
    copy = sink.copies[table]
    return copy.wave is None and table not in sink.paused_tables and copy.retry_at_ms <= now_ms


def _together(sink: SinkState, tables: list[str]) -> list[tuple[str, ...]]:
    """What is read at once. A table that could not be read is tried alone, until it can: what hinders it
    hinders no other."""
    sound = tuple(sorted(table for table in tables if not sink.copies[table].failures))
    alone = [(table,) for table in sorted(tables) if sink.copies[table].failures]
    return ([sound] if sound else []) + alone
