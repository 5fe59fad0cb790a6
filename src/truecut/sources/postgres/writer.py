"""Blocks on their way into the journal: grouped into appends, each with its schemas and its marker.

Promises: appends are in order, and only as long as the lease is ours and the journal ends where we left it
(C2); `durable` never says more than the journal has answered (C1); what is under way is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from truecut.failpoint import failpoint
from truecut.journal.contract import Journal
from truecut.journal.record import Record
from truecut.journal.submission import position_after
from truecut.model.position import Position
from truecut.sources.postgres import journaled
from truecut.sources.postgres.lineage import Place
from truecut.sources.postgres.schemas import Catalog
from truecut.sources.postgres.transactions import Announcement, Block

APPEND_BYTES = 4 << 20
UNDER_WAY_MAX = 8


@dataclass(slots=True)
class _Group:
    """Blocks of one append."""

    blocks: list[Block]
    size: int = 0

    def add(self, block: Block) -> None:
        self.blocks.append(block)
        self.size += sum(map(len, block.messages))


class Writer:
    """Of one session with the source."""

    def __init__(
        self,
        journal: Journal,
        catalog: Catalog,
        place: Place,
        *,
        generation: int,
        check: Callable[[], None],
        append_bytes: int = APPEND_BYTES,
    ) -> None:
        self.place = place  # what the last append says, durable or not
        self.durable = place.lsn
        self._journal = journal
        self._catalog = catalog
        self._generation = generation
        self._check = check
        self._append_bytes = append_bytes
        self._last: Position | None = journal.head()
        self._group = _Group([])
        self._under_way: deque[tuple[Future[Position], int]] = deque()
        self._schemas: dict[Announcement, Record] = {}
        self._in_front: set[int] = set()  # schemas before the first part of the transaction that is under way
        self._late: dict[int, Record] = {}

    def take(self, block: Block) -> None:
        """Sooner or later it is appended; `flush` makes it sooner."""
        if block.part == 0 and block.end is None:  # a large one: its schemas go in front of all its parts
            self._append_group()
        self._group.add(block)
        if self._group.size >= self._append_bytes or (block.part and block.end is not None):
            self._append_group()

    def flush(self, place: Place) -> None:
        """Append what is there, with a marker that says how far the source is; nothing when nothing moved."""
        moved = replace(place, xid_near=self.place.xid_near) != self.place
        if self._group.blocks and self._group.blocks[-1].end is None:
            self._append_group()
        if self._group.blocks or moved:
            self._append([*self._records(), journaled.marker(place, generation=self._generation)], place)

    def settle(self, count_max: int = 0) -> None:
        """Wait until no more than so many appends are under way."""
        while self._under_way and (len(self._under_way) > count_max or self._under_way[0][0].done()):
            answer, lsn = self._under_way.popleft()
            answer.result()
            self.durable = max(self.durable, lsn)
            failpoint("capture_appended")

    def waiting(self) -> bool:
        """Whether something is under way."""
        return bool(self._under_way)

    def _append_group(self) -> None:
        if not self._group.blocks:
            return
        end = self._group.blocks[-1].end
        if end is None:  # in the middle of a transaction
            self._append(self._records(), self.place)
            failpoint("capture_part_appended")
            return
        place = replace(self.place, lsn=end, gap=None)
        self._append([*self._records(), journaled.marker(place, generation=self._generation)], place)

    def _append(self, records: list[Record], place: Place) -> None:
        self._check()
        future = self._journal.submit(records, expected_last=self._last)  # C2
        self._last = position_after(self._last, records)
        self._under_way.append((future, place.lsn))
        self.place = place
        self.settle(UNDER_WAY_MAX)

    def _records(self) -> list[Record]:
        group, self._group = self._group, _Group([])
        self._catalog.forget()  # what it said before may be older than what was announced since
        front: dict[int, Record] = {}
        behind = []
        for block in group.blocks:
            named = {one.schemas[0]: one for one in map(self._schema, block.relations)}
            behind.append(journaled.changes(block, named, generation=self._generation))
            if block.part:
                self._late.update({id: one for id, one in named.items() if id not in self._in_front})
            else:
                front.update(named)
                front.update({one.schemas[0]: one for one in map(self._schema, block.whole)})
                self._in_front = set(front)
        self._keep_newest(group)
        return [*front.values(), *behind, *self._late_ones(group)]

    def _late_ones(self, group: _Group) -> list[Record]:
        """Of a transaction that is gone on with after a crash: the catalog may say something else by now than
        the schemas in front of it, and nothing may stand between its parts."""
        if not group.blocks or group.blocks[-1].end is None:
            return []
        late, self._late = self._late, {}
        return list(late.values())

    def _schema(self, announcement: Announcement) -> Record:
        if announcement not in self._schemas:
            relation = self._catalog.describe(announcement.messages[-1])
            self._schemas[announcement] = journaled.schema(relation, generation=self._generation)
        return self._schemas[announcement]

    def _keep_newest(self, group: _Group) -> None:
        """Behind a transaction nobody asks for what its relations were before."""
        if group.blocks and group.blocks[-1].end is not None:
            newest = {one.oid: one for one in self._schemas}
            self._schemas = {one: self._schemas[one] for one in newest.values()}
