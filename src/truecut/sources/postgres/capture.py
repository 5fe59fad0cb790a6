"""The loop of capture: read the source's log, make it durable in the journal, release it at the source.

Owns the session with one source. Promises: the source is released up to a place only when the journal has
everything that committed before it (C1); a gap between the journal and the source's log is found before
anything behind it is appended, and begins a new generation (C3). It reads in gulps while there is a backlog,
as a stream when it has caught up, and changes between the two by itself.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from truecut.core.capture import Mode, Retained, Verdict, WalBudget, next_mode
from truecut.errors import require
from truecut.failpoint import failpoint
from truecut.journal.contract import Journal
from truecut.sources.postgres import faults, journaled, lineage, server
from truecut.sources.postgres.backlog import Gulp
from truecut.sources.postgres.capture_progress import Progress
from truecut.sources.postgres.lineage import Look, Place, Slot
from truecut.sources.postgres.messages import Unreadable, lsn_text
from truecut.sources.postgres.reassembly import Streams
from truecut.sources.postgres.schemas import Catalog
from truecut.sources.postgres.server import Address
from truecut.sources.postgres.spool import Spool
from truecut.sources.postgres.tail import Tail
from truecut.sources.postgres.transactions import BLOCK_BYTES, Elsewhere, Transactions, Unfinished
from truecut.sources.postgres.witness_slot import WitnessSlot
from truecut.sources.postgres.writer import APPEND_BYTES, UNDER_WAY_MAX, Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are looked at, and how much goes at once."""

    look_s: float = 10.0  # at the slot and the publication; an idle source gets a heartbeat as often
    wait_s: float = 1.0  # for something to come, before anybody is asked whether to stop
    free_s: float = 15.0  # until a slot that was just let go is free
    append_bytes: int = APPEND_BYTES
    block_bytes: int = BLOCK_BYTES


class Capture:
    """One source into one journal, which is open for writing."""

    def __init__(
        self,
        address: Address,
        journal: Journal,
        *,
        check: Callable[[], None] = lambda: None,
        generation_min: int = 1,
        budget: WalBudget | None = None,
        pace: Pace | None = None,
        spool_folder: Path | None = None,
        witness: WitnessSlot | None = None,
    ) -> None:
        """`check` raises when the lease is no longer ours; it is asked before every durable step."""
        self.progress = Progress()
        self._address = address
        self._journal = journal
        self._check = check
        self._generation_min = generation_min
        self._budget = budget
        self._pace = pace or Pace()
        self._spool = partial(Spool, spool_folder)
        self.witness = witness

    def run(self, stop: Callable[[bool], bool]) -> None:
        """Until `stop(drained)` says so, which is told whether everything that was there has been read.
        Raises what it cannot go on with; everything durable stays, and another run goes on."""
        reason: str | None = None
        while (reason := self._session(stop, reason)) is not None:
            log.warning("the source's log does not go on where the journal ends: %s", reason)

    def _session(self, stop: Callable[[bool], bool], reason: str | None) -> str | None:
        """Returns why the next one begins a generation; None at the end."""
        session = _Session(self, self._address, self._journal, self._check, self._pace, self._spool)
        try:
            session.begin(self._generation_min, reason)
            session.read(stop)
        except Unreadable as error:
            raise faults.unreadable(lsn_text(self.progress.durable), str(error)) from error
        except _Gap as gap:
            session.writer.settle()  # the next session begins where the journal ends
            return str(gap)
        except Elsewhere as other:
            return f"it sends {other}, where the journal has begun with another transaction"
        finally:
            session.close()
        return None

    def weigh(self, slot: Slot) -> Verdict:
        """What the source keeps for us, against the budget."""
        sample = Retained(time.monotonic(), slot.retained_bytes, slot.safe_bytes)
        self.progress.weighed(sample, self._budget, released=slot.confirmed)
        return self.progress.verdict

    @property
    def bytes_max(self) -> int:
        """Of the budget."""
        return self._budget.bytes_max if self._budget else 0


class _Session:
    """From one connection to its end."""

    def __init__(
        self,
        capture: Capture,
        address: Address,
        journal: Journal,
        check: Callable[[], None],
        pace: Pace,
        spool: Callable[[], Spool],
    ) -> None:
        self._capture = capture
        self._address = address
        self._journal = journal
        self._check = check
        self._pace = pace
        self._spool = spool
        self._identity = server.identify(address)
        self._ask = server.connect(address)
        try:
            server.require_same(self._ask, address, self._identity)
            self._look = server.look(self._ask, address, self._identity)
        except BaseException:
            self._ask.close()
            raise
        self._looked_s = 0.0
        self._writer: Writer | None = None
        self._unfinished: Unfinished | None = None

    @property
    def writer(self) -> Writer:
        require(self._writer is not None, "a session has begun")
        assert self._writer is not None
        return self._writer

    def close(self) -> None:
        self._ask.close()

    # --- where to go on ---

    def begin(self, generation_min: int, reason: str | None) -> None:
        """Go on where the journal ends, or begin a generation; `reason`: why there must be one."""
        self._check()  # whoever slept until here would end the sessions of its successor
        server.end_others(self._ask, self._address)
        self._wait_until_free()
        server.publish_more(self._ask, self._address)
        self._look_again()
        ending = journaled.ending(self._journal)
        self._check_slot(self._look)
        known = ending.place
        if known is None:
            self._require_all_published()
        generation = max(generation_min, ending.head.generation if ending.head else 0)
        if known is not None:
            reason = lineage.gap(self._without_dropped(known), self._look) or reason
        if known is None or reason is not None:
            generation += reason is not None
            place = self._first_place(reason, known)
            known = replace(place, lsn=0)
        else:
            self._unfinished = ending.unfinished
            place = self._refreshed(known)
            if self._unfinished is not None:  # its last parts bring the next marker
                known = replace(known, timeline=place.timeline)
        catalog = Catalog(self._ask, self._address)
        self._writer = Writer(
            self._journal,
            catalog,
            known,
            generation=generation,
            check=self._check,
            append_bytes=self._pace.append_bytes,
        )
        self._tend_witness()
        self._announce(place, reason)
        self._require_all_published()  # behind the gap that it may have been: mended, it is another one
        failpoint("capture_begun")

    def _require_all_published(self) -> None:
        if operations := server.kept_back(self._ask, self._address):
            raise faults.kept_back(self._address.publication, operations)

    def _announce(self, place: Place, reason: str | None) -> None:
        """A new generation begins with a marker, before anything of it."""
        if reason is not None:
            log.warning("gap at the source: %s; a new generation begins at %s", reason, lsn_text(place.lsn))
            self._capture.progress.gap = reason
        if self._unfinished is None:
            self.writer.flush(place)
            self.writer.settle()
        self._capture.progress.durable = place.lsn

    def _first_place(self, reason: str | None, known: Place | None) -> Place:
        """With a publication that was there before the slot: what a slot holds of the time before its
        publication cannot be read. A slot that was never ours, on another server, is not dropped."""
        self._check()
        fresh = reason is not None and known is not None and known.system == self._look.system
        if self._look.publication is None:
            server.create_publication(self._ask, self._address)
            failpoint("capture_publication_made")
            fresh = True
        if fresh and self._look.slot is not None:
            server.drop_slot(self._ask, self._address)
        self._tend_witness()  # before the first place that a copy may begin at
        if fresh or self._look.slot is None:
            server.create_slot(self._ask, self._address)
            failpoint("capture_slot_made")
        self._look_again()
        slot, publication = self._look.slot, self._look.publication
        require(slot is not None and publication is not None, "slot and publication are there")
        assert slot is not None
        assert publication is not None
        return Place(
            slot.confirmed,
            self._look.system,
            self._look.timeline,
            self._look.database,
            self._address.slot,
            slot.confirmed,
            publication,
            self._look.xid_next,
            reason,
            secrets.token_hex(8),
        )

    def _refreshed(self, place: Place) -> Place:
        """The same place, with what may have changed beside it."""
        look = self._look
        publication = look.publication or place.publication
        return replace(
            place, timeline=look.timeline, publication=publication, xid_near=look.xid_next, gap=None
        )

    def _check_slot(self, look: Look) -> None:
        slot = look.slot
        if slot is None:
            return
        if slot.plugin != server.PLUGIN:
            raise faults.wrong_slot(self._address.slot, f"has the plugin {slot.plugin}, not {server.PLUGIN}")
        if slot.database != look.database:
            raise faults.wrong_slot(self._address.slot, f"is of the database {slot.database}")
        if slot.two_phase:
            raise faults.wrong_slot(self._address.slot, faults.TWO_PHASE)

    def _wait_until_free(self) -> None:
        """A session that was ended, by us or by its own death, holds the slot a moment longer."""
        deadline = time.monotonic() + self._pace.free_s
        while True:
            self._look_again()
            slot = self._look.slot
            if slot is None or slot.active_pid is None:
                return
            if time.monotonic() > deadline:
                raise faults.slot_in_use(self._address.slot, slot.active_pid)
            time.sleep(0.02)

    def _look_again(self) -> None:
        self._look = server.look(self._ask, self._address, self._identity)
        self._looked_s = time.monotonic()

    def _without_dropped(self, known: Place) -> Place:
        """A table that was dropped is out of the publication, and nothing of it is missing: what was written
        to it before is still sent. It stops alone."""
        now = self._look.publication
        missing = {} if now is None else known.publication.missing(now)
        if not missing:
            return known
        there = server.existing(self._ask, self._address, list(missing))
        dropped = [name for oid, name in missing.items() if oid not in there]
        return replace(known, publication=known.publication.without(dropped))

    def _require_no_gap(self) -> None:
        """C3: asked after the slot was read from, and before anything of it is appended."""
        self._look_again()
        reason = lineage.gap(self._without_dropped(self.writer.place), self._look)
        if reason is not None:
            raise _Gap(reason)

    # --- reading ---

    def read(self, stop: Callable[[bool], bool]) -> None:
        """In gulps and as a stream, by turns."""
        mode = Mode.BACKLOG
        try:
            while not stop(False):
                self._capture.progress.mode = mode
                if mode is Mode.BACKLOG:
                    drained = self._gulp()
                    if drained and stop(True):
                        return
                    mode = next_mode(mode, drained=drained, bytes_behind=0)
                else:
                    mode = self._tail(stop)
        except _GiveUp as over:
            self._wait_until_free()
            self._check()
            server.drop_slot(self._ask, self._address)
            held = over.held_bytes
            raise faults.slot_given_up(
                self._address.slot, held_bytes=held, bytes_max=self._capture.bytes_max
            ) from None

    def _gulp(self) -> bool:
        """One gulp into the journal, then released. Returns whether that was all there was."""
        self._look_again()
        self._weigh()
        place = self._refreshed(self.writer.place)
        if self._look.flushed <= place.lsn and self._unfinished is None:
            return True
        begun = self._unfinished.commit_lsn + 1 if self._unfinished else 0
        gulp = Gulp(after=place.lsn, flushed=self._look.flushed, at_least=begun)
        transactions = self._transactions()
        checked = False
        reading = server.connect(self._address)
        try:
            server.require_same(reading, self._address, self._identity)
            for portion in gulp.portions(reading, self._address):
                if not checked:
                    self._require_no_gap()
                    failpoint("capture_read")
                checked = True
                for block in transactions.take(portion):
                    self.writer.take(block)
        finally:
            reading.close()
        if not checked:
            self._require_no_gap()
        transactions.close()
        if transactions.resuming:
            raise Elsewhere("nothing")
        reached = max(transactions.position, gulp.upto) if gulp.drained else transactions.position
        self.writer.flush(replace(self._refreshed(self.writer.place), lsn=reached))
        self.writer.settle()
        self._release()
        return gulp.drained and gulp.upto >= self._look.flushed

    def _release(self) -> None:
        """C1: the journal has it."""
        self._check()
        self._capture.progress.durable = self.writer.durable
        if self._look.slot is None or self.writer.durable > self._look.slot.confirmed:
            server.advance(self._ask, self._address, self.writer.durable)
            self._capture.progress.released = self.writer.durable
            failpoint("capture_released")

    def _transactions(self) -> Transactions:
        unfinished, self._unfinished = self._unfinished, None
        return Transactions(
            after=self.writer.place.lsn,
            unfinished=unfinished,
            spool=self._spool,
            block_bytes=self._pace.block_bytes,
        )

    def _tail(self, stop: Callable[[bool], bool]) -> Mode:
        """As a stream, until it is too far behind, or over."""
        tail = Tail(self._address, after=self.writer.durable, identity=self._identity)
        streams, transactions = Streams(self._spool), self._transactions()
        mode = Mode.TAIL
        try:
            self._require_no_gap()
            while mode is Mode.TAIL and not stop(False):
                self._hear(tail, streams, transactions)
                mode = self._now_and_then(transactions)
            self.writer.settle()
            tail.confirm(self.writer.durable, now=True)
        finally:
            tail.close()
            streams.close()
            transactions.close()
        self._wait_until_free()
        return mode

    def _hear(self, tail: Tail, streams: Streams, transactions: Transactions) -> None:
        wait_s = 0.005 if self.writer.waiting() else self._pace.wait_s
        heard = tail.hear(durable=self.writer.durable, timeout_s=wait_s)
        for plain in streams.take(heard.messages):
            for block in transactions.take(plain):
                self.writer.take(block)
        if heard.messages:
            failpoint("capture_read")
            self.writer.flush(replace(self.writer.place, lsn=transactions.position, gap=None))
        elif heard.idle_at is not None:
            transactions.position = max(transactions.position, heard.idle_at)
        self.writer.settle(UNDER_WAY_MAX)
        self._capture.progress.durable = self.writer.durable

    def _now_and_then(self, transactions: Transactions) -> Mode:
        if time.monotonic() - self._looked_s < self._pace.look_s:
            return Mode.TAIL
        self._require_no_gap()
        self._check()
        behind = max(0, self._look.flushed - transactions.position)
        self._capture.progress.bytes_behind = behind
        self._weigh()
        server.beat(self._ask, self._address)
        self.writer.flush(replace(self._refreshed(self.writer.place), lsn=transactions.position))
        return next_mode(Mode.TAIL, drained=False, bytes_behind=behind)

    def _tend_witness(self) -> None:
        if self._capture.witness is not None:
            self._capture.witness.tend(self._ask, self._address)

    def _weigh(self) -> None:
        self._tend_witness()
        slot = self._look.slot
        if slot is None:  # a gap, which is found in its turn
            return
        verdict = self._capture.weigh(slot)
        if verdict is Verdict.WARN:
            log.warning("the source keeps %s bytes of its log for us, over its budget", slot.retained_bytes)
        if verdict is Verdict.GIVE_UP:
            raise _GiveUp(slot.retained_bytes)


class _Gap(Exception):
    """Found while reading: the session ends, and the next one begins a generation."""


class _GiveUp(Exception):
    """The budget is used up."""

    def __init__(self, held_bytes: int) -> None:
        super().__init__(held_bytes)
        self.held_bytes = held_bytes
