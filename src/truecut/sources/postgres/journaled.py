"""Captured changes as journal records, and where a journal that holds them ends.

An append is: the schemas that its changes are of, the changes, and a marker that says how far the source's
own log is in the journal by now. A transaction too large for one append has its schemas in front, its parts
in several appends, and the marker behind its last part. So the schemas of any change are found between it
and the marker before it, and trimming whole segments never takes them away alone.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truecut.journal.contract import JournalReader, Outline
from truecut.journal.decoding import table_hash
from truecut.journal.record import Kind, Record
from truecut.model.position import UNTOLD, Position, SourcePosition
from truecut.sources.postgres import framing
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.lineage import Place
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.transactions import Block, Unfinished

SCHEMA_CODEC = "pgrelation/1"
MARKER_CODEC = "pgplace/1"
_WRITTEN = "written_ms"  # by capture's clock: for people, not for order


@dataclass(frozen=True, slots=True)
class Ending:
    """Where the journal ends, in its own count and in the source's."""

    head: Position | None = None
    place: Place | None = None  # None: nothing of any source is in it
    unfinished: Unfinished | None = None
    marker: Position | None = None  # that says so: whoever trims keeps it, and all behind it


def marker(place: Place, *, generation: int) -> Record:
    """How far the source's log is in the journal."""
    document = {**place.document(), _WRITTEN: time.time_ns() // 1_000_000}
    payload = json.dumps(document, sort_keys=True).encode()
    told = SourcePosition(wire.lsn_text(place.lsn))
    return Record(payload, Kind.MARKER, MARKER_CODEC, generation, rows=0, source_position=told)


def schema(relation: Relation, *, generation: int) -> Record:
    """A relation, under an id that its content gives."""
    payload = json.dumps(relation.document(), sort_keys=True).encode()
    ids = (table_hash(str(relation.name)) << 32 | zlib.crc32(payload),)
    return Record(payload, Kind.SCHEMA, SCHEMA_CODEC, generation, ids, rows=0)


def changes(block: Block, schemas: Iterable[int], *, generation: int) -> Record:
    """A block, beside the ids of its schemas."""
    return Record(
        framing.encode(block.messages),
        Kind.CHANGES,
        framing.CODEC,
        generation,
        tuple(dict.fromkeys(schemas)),
        block.part,
        block.end is not None,
        block.rows,
        UNTOLD if block.end is None else SourcePosition(wire.lsn_text(block.end)),
    )


def ending(reader: JournalReader) -> Ending:
    """Read off its last few records."""
    head = reader.head()
    found = None if head is None else last_marker(reader, head)
    if head is None or found is None:
        return Ending(head)
    marked, parts = found
    known, at = place_at(reader, marked, head)[0], _outline(reader, marked, head).position
    return Ending(head, known, _unfinished(reader, head, parts), at)


def last_marker(reader: JournalReader, head: Position) -> tuple[int, int] | None:
    """Its place, and how many parts of an unfinished transaction are behind it."""
    place, parts = head.place, 0
    while place > 0:
        found = _outline(reader, place, head)
        if found.head.record.kind is Kind.MARKER:
            return place, parts
        if found.head.record.kind is Kind.CHANGES and not found.head.record.last:
            parts = found.head.record.part + 1
            place -= parts
        else:
            place -= 1
    return None


def place_at(reader: JournalReader, place: int, head: Position) -> tuple[Place, int]:
    """What the marker there says, and when it was written, in ms."""
    return said(_record(reader, place, head).payload)


def said(payload: bytes) -> tuple[Place, int]:
    """What a marker says, and when it was written, in ms."""
    document = json.loads(payload)
    written_ms = int(document.pop(_WRITTEN, 0))
    return Place.of(document), written_ms


def _unfinished(reader: JournalReader, head: Position, parts: int) -> Unfinished | None:
    """What the parts at the end of the journal hold."""
    if not parts:
        return None
    count, begin = 0, None
    for place in range(head.place - parts + 1, head.place + 1):
        messages = messages_of(_record(reader, place, head).payload)
        begin = begin or wire.begin(messages[0])
        count += sum(one[0] not in wire.UNCOUNTED for one in messages)
    assert begin is not None
    return Unfinished(begin.commit_lsn, begin.xid, parts, count)


def messages_of(payload: bytes) -> Sequence[bytes]:
    """The messages of a record of changes."""
    offsets, data = framing.decode(payload)
    places = offsets.tolist()
    return [data[places[n] : places[n + 1]] for n in range(len(places) - 1)]


def _outline(reader: JournalReader, place: int, head: Position) -> Outline:
    return next(reader.heads(after=_before(place, head), upto=Position(head.generation, place)))


def _record(reader: JournalReader, place: int, head: Position) -> Record:
    return next(reader.read(after=_before(place, head), upto=Position(head.generation, place))).record


def _before(place: int, head: Position) -> Position:
    return Position(head.generation, place - 1)
