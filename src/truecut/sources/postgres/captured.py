"""What of a server's log is in the journal, found by the server's own places.

A marker says that everything which committed before its LSN stands before it, and that nothing behind it did.
So a range of LSNs is a range of records between two markers, found by halving, and read section by section: a
section ends with its marker, and holds the schemas of all its changes. Promises: only the last generation is
looked at; nothing is read across a gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from truecut.errors import require
from truecut.journal.contract import JournalReader, Outline
from truecut.journal.record import Kind
from truecut.model.position import UNTOLD, Position
from truecut.sources.postgres import journaled
from truecut.sources.postgres.lineage import Place
from truecut.sources.postgres.messages import lsn_of

REMEMBERED_MAX = 256
FRESH_S = 1.0  # a head that has not moved is not looked behind more often
BACK, BACK_MAX = 1024, 64  # records at once, and how often, when one looks back


class Mark(NamedTuple):
    """A marker: its record's place in the journal, and how far the server's log is there."""

    record: int
    lsn: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The last generation of the journal, from its first marker that is still there to its last."""

    generation: int  # the journal's own
    first: Mark
    last: Mark
    place: Place  # what the last marker says
    written_ms: int  # when

    @property
    def identity(self) -> str:
        """Of what was captured. A journal that was lost begins another one: nobody can tell what is missing
        between the two."""
        of = self.place
        parts = [of.system, of.database, of.slot, f"{of.slot_since:X}", str(self.generation), of.begun]
        return "/".join(parts if of.begun else parts[:-1])


@dataclass(slots=True)
class Section:
    """The records up to a marker."""

    end: Mark
    schemas: Sequence[Outline] = ()
    changes: Sequence[Outline] = ()


@dataclass(slots=True)
class CapturedLog:
    """One journal, with what was found in it before."""

    reader: JournalReader
    _last: tuple[Position, float, Extent] | None = None  # head, when
    _first: tuple[tuple[int, int], Mark] | None = None  # of (oldest record, generation)
    _marks: dict[int, Mark] = field(default_factory=dict)  # by what was asked for
    _servers: dict[tuple[str, int], str] = field(default_factory=dict)  # by log and place
    _seen: set[tuple[str, Mark]] = field(default_factory=set)  # markers that are there, of which log

    def extent(self) -> Extent | None:
        """What there is now; None before anything was captured."""
        head = self.reader.head()
        if self._last is not None and self._last[0] == head and time.monotonic() < self._last[1] + FRESH_S:
            return self._last[2]
        found = None if head is None else journaled.last_marker(self.reader, head)
        if head is None or found is None:
            return None
        place, written_ms = journaled.place_at(self.reader, found[0], head)
        generation = next(self._heads(found[0], found[0])).head.generation
        last = Mark(found[0], place.lsn)
        extent = Extent(generation, self._first_mark(generation, last), last, place, written_ms)
        if self._last is not None and not self._goes_on(self._last[2], extent):
            self._first = None
            self._marks.clear()
            self._seen.clear()
            extent = replace(extent, first=self._first_mark(generation, last))
        self._last = head, time.monotonic(), extent
        return extent

    def before(self, extent: Extent, lsn: int) -> Mark:
        """The last marker at or before an LSN, which must not be before the first."""
        require(extent.first.lsn <= lsn, "what is asked for is in the journal")
        if lsn in self._marks and self._marks[lsn].record >= extent.first.record:
            return self._marks[lsn]
        low, high = extent.first, extent.last.record
        while low.record < high:
            middle = (low.record + high + 1) // 2
            found = self._mark_from(middle, extent.last.record)
            if found is None or found.lsn > lsn:
                high = middle - 1
            else:
                low = found
        self.remember(lsn, low)
        return low

    def server_behind(self, extent: Extent, place: int) -> str | None:
        """At which server what comes right behind a place was read (`Place.server`); None: it was not yet."""
        if extent.last.lsn - 1 < place:
            return None
        asked = extent.identity, place
        if asked not in self._servers:
            record = extent.first.record - 1
            if extent.first.lsn <= place:
                record = self.before(extent, place).record
            mark = self._mark_from(record + 1, extent.last.record)
            require(mark is not None, "a marker stands behind whatever the journal has")
            assert mark is not None
            self._servers[asked] = journaled.said(self.payload(mark.record))[0].server
        return self._servers[asked]

    def has(self, extent: Extent, mark: Mark) -> bool:
        """Whether this very marker is there. In a journal that was put back to an earlier state, and has gone
        on since, a record's number means something else."""
        if not extent.first.record <= mark.record <= extent.last.record:
            return False
        if (extent.identity, mark) not in self._seen:
            if self._mark_from(mark.record, mark.record) != mark:
                return False
            self._seen.add((extent.identity, mark))
        return True

    def marked(self, record: int) -> Mark:
        """The marker that this record is."""
        return self._mark(next(self._heads(record, record)))

    def remember(self, lsn: int, mark: Mark) -> None:
        """For whoever asks for this LSN: the next window begins where the last one ended."""
        while len(self._marks) >= REMEMBERED_MAX:
            del self._marks[next(iter(self._marks))]
        self._marks[lsn] = mark

    def sections(self, extent: Extent, after: Mark) -> Iterator[Section]:
        """Everything behind a marker, up to the last one."""
        schemas: list[Outline] = []
        changes: list[Outline] = []
        for one in self._heads(after.record + 1, extent.last.record):
            kind = one.head.record.kind
            if kind is Kind.SCHEMA:
                schemas.append(one)
            elif kind is Kind.CHANGES:
                changes.append(one)
            elif kind is Kind.MARKER:
                yield Section(self._mark(one), schemas, changes)
                schemas, changes = [], []

    def schemas_before(self, extent: Extent, mark: Mark) -> Iterator[Outline]:
        """Schema records up to a marker, the last one first; not further back than is worth it."""
        last = mark.record
        for _ in range(BACK_MAX):
            first = max(extent.first.record, last - BACK + 1)
            found = [one for one in self._heads(first, last) if one.head.record.kind is Kind.SCHEMA]
            yield from reversed(found)
            last = first - 1
            if last < extent.first.record:
                return

    def payload(self, record: int) -> bytes:
        """Of one record."""
        return next(self.reader.read(after=_at(record - 1), upto=_at(record))).record.payload

    # --- leaves ---------------------------------------------------------------------------------------

    def _goes_on(self, known: Extent, now: Extent) -> bool:
        """Whether the numbers of records mean what they meant at the last look: what was the last marker then
        is still there, or trimmed. A journal that was put back has others behind where it was put to."""
        if known.identity != now.identity or known.last.record > now.last.record:
            return False
        if known.last.record < now.first.record:
            return True
        return self._mark_from(known.last.record, known.last.record) == known.last

    def _first_mark(self, generation: int, last: Mark) -> Mark:
        oldest = self.reader.oldest()
        require(oldest is not None, "a journal with a head has a first record")
        assert oldest is not None
        if self._first is None or self._first[0] != (oldest.place, generation):
            begin = self._generation_begin(oldest, generation, last)
            self._first = (oldest.place, generation), self._mark_from(begin, last.record) or last
        return self._first[1]

    def _generation_begin(self, oldest: Position, generation: int, last: Mark) -> int:
        """The first record of it: generations never fall along the log."""
        low, high = oldest.place, last.record
        while low < high:
            middle = (low + high) // 2
            if next(self._heads(middle, middle)).head.generation < generation:
                low = middle + 1
            else:
                high = middle
        return low

    def _mark_from(self, record: int, upto: int) -> Mark | None:
        """The first marker at or behind a record."""
        found = (one for one in self._heads(record, upto) if one.head.record.kind is Kind.MARKER)
        return next((self._mark(one) for one in found), None)

    def _mark(self, one: Outline) -> Mark:
        told = one.head.record.source_position
        require(told != UNTOLD, "a marker says how far the source is")
        return Mark(one.position.place, lsn_of(told))

    def _heads(self, first: int, last: int) -> Iterator[Outline]:
        return self.reader.heads(after=_at(first - 1), upto=_at(last))


def _at(record: int) -> Position:
    """Bounds count by their places alone."""
    return Position(0, record)
