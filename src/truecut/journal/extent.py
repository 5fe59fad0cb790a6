"""How far to read: whole transactions, as many as fit a limit, found from the heads of the records.

Promises: a range that ends at an extent never splits a transaction; the first transaction always fits,
however large it is; no payload is read.
"""

from __future__ import annotations

from truecut.journal.contract import JournalReader, Outline
from truecut.model.position import Position

SAMPLES = 16


def extent(
    reader: JournalReader,
    *,
    after: Position | None,
    upto: Position | None = None,
    rows_max: int | None = None,
    bytes_max: int | None = None,
) -> Position | None:
    """Where the whole transactions behind `after` end that fit the limits; None while there is none."""
    if rows_max is None and bytes_max is None:
        return last_whole(reader, after=after, upto=upto)
    end: Position | None = None
    rows = size = 0
    for position, head in reader.heads(after=after, upto=upto):
        rows += head.record.rows
        size += head.payload_bytes
        over = (rows_max is not None and rows > rows_max) or (bytes_max is not None and size > bytes_max)
        if over and end is not None:
            return end
        if head.record.last:
            end = position
    return end


def last_whole(
    reader: JournalReader, *, after: Position | None, upto: Position | None = None
) -> Position | None:
    """Where the last whole transaction behind `after` ends. Looks at few heads: those of an unfinished
    transaction say how many parts stand before them."""
    head = reader.head()
    if head is None:
        return None
    place = head.place if upto is None else min(upto.place, head.place)
    first = 0 if after is None else after.place
    while place > first:
        position, found = _outline(reader, place, head)
        if found.record.last:
            return position
        place -= found.record.part + 1
    return None


def estimate_bytes(reader: JournalReader, *, after: int, upto: Position) -> int:
    """About how many bytes of payload the records behind the number `after` hold: all are looked at where
    they are few, some otherwise. Good enough to divide work by."""
    count = upto.place - after
    places = [after + 1 + n * (count - 1) // max(1, SAMPLES - 1) for n in range(SAMPLES)]
    if count <= SAMPLES:
        places = list(range(after + 1, upto.place + 1))
    sizes = [_outline(reader, place, upto).head.payload_bytes for place in places]
    return sum(sizes) * count // max(1, len(sizes))


def before(position: Position) -> Position:
    """Just before it: `after` this, the position itself is the first."""
    return Position(position.generation, position.place - 1)


def _outline(reader: JournalReader, place: int, limit: Position) -> Outline:
    return next(
        reader.heads(after=Position(limit.generation, place - 1), upto=Position(limit.generation, place))
    )
