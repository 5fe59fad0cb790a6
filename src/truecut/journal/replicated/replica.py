"""One node's copy of one segment: its file, its state, and the steps of the pure machine made durable.

    00000007.log     the records, in frames of this node's own: one for each sync
    00000007.state   what the copy is (open, fenced, sealed, damaged); replaced as a whole

Entries are counted from 1 within the segment; the file numbers records for the life of the log. A copy that
was open when its node stopped takes no more appends: whoever wrote to it asks for another segment. An end
cuts by saying so: what the file has behind it is never read.
"""

from __future__ import annotations

import errno
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from truecut.core import segment_log as core
from truecut.failpoint import failpoint
from truecut.journal import disk
from truecut.journal import faults as journal_faults
from truecut.journal.frame import Header, decode, parse_header, whole
from truecut.journal.record import Damaged, Record
from truecut.journal.replicated import faults
from truecut.journal.replicated.state_file import Home, Stored, examine, read_state, write_state
from truecut.journal.scan import Piece, Run, frames, offset_of, raw_frames, runs
from truecut.journal.segment import Reach, SegmentWriter


@dataclass(frozen=True, slots=True)
class Append:
    """Entries `index…` as a producer sent them, and how many it knows to be committed."""

    index: int
    records: Sequence[Record]
    known: int


@dataclass(frozen=True, slots=True)
class Look:
    """What can be said of a replica."""

    state: str
    length: int
    visible: int
    generation: int  # of the last visible record
    bytes: int


class StoredReplica:
    """For any number of threads; every step holds its lock, also while it syncs."""

    def __init__(self, home: Home, path: Path) -> None:
        self.home = home
        self.path = path
        self.damage: str | None = None
        self._replica = core.Replica()
        self._writer: SegmentWriter | None = None
        self._reach = Reach.of_none(home.start)
        self._generations: list[tuple[int, int]] = []  # from which entry on which generation
        self._writers = 0  # connected now
        self._left_at = time.monotonic()  # when the last of them went
        self._changed = threading.Condition()

    # --- how it comes to be ---

    @staticmethod
    def make(home: Home, folder: Path) -> StoredReplica:
        """Empty and open, durably."""
        path = home.file_in(folder)
        disk.make(path.parent)
        made = StoredReplica(home, path)
        made._writer = SegmentWriter(path, home.start)
        try:
            made._put(core.Replica("open"))
            disk.sync_folder(folder, "log_folder")
        except BaseException:
            made._writer.close()
            raise
        return made

    @staticmethod
    def make_fenced(home: Home, folder: Path) -> StoredReplica:
        """Nothing was ever written here, and nothing will be."""
        made = StoredReplica.make(home, folder)
        made.fence()
        return made

    @staticmethod
    def load(state_path: Path) -> StoredReplica:
        """What a node finds when it starts. Damage is found, not raised."""
        path = state_path.with_suffix(".log")
        try:
            stored = read_state(state_path)
        except Damaged as damage:
            return StoredReplica.unknown(path, str(damage))
        found = StoredReplica(stored.home, path)
        found._replica, found._reach, found.damage = stored.replica, stored.reach, stored.damage
        if stored.damage is None:
            found._look_at_file(stored)
        return found

    @staticmethod
    def unknown(path: Path, damage: str) -> StoredReplica:
        """A copy of which nobody can say what it is."""
        segment = int(path.stem) if path.stem.isdigit() else 0
        found = StoredReplica(Home(path.parent.name, "00" * 16, segment, 0, 0), path)
        found.damage = damage
        return found

    def _look_at_file(self, stored: Stored) -> None:
        try:
            examined = examine(self.path, stored, every_byte=False)
            if stored.replica.state == "sealed":
                self._generations = [(1, stored.generation)]
                return
            disk.sync_file(self.path, "found_replica")
            for _, header, records in frames(self.path, self.home.start, end=examined.reach.end):
                self._note_generations(header.first - self.home.first, records)
        except Damaged as damage:
            self._damaged(str(damage))
        except OSError as error:
            self._damaged(f"it cannot be read ({error.strerror})")
        else:
            self._reach = examined.reach
            self._replica = core.restarted(self._replica, length=examined.reach.last - self.home.first)

    # --- who writes to it ---

    @contextmanager
    def written_to(self) -> Iterator[None]:
        """While a producer is connected."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._left_at = time.monotonic()

    def abandoned_s(self) -> float:
        """For how long it has been open, and nobody was there to write to it."""
        with self._changed:
            left = self._replica.state == "open" and not self._writers and self.damage is None
            return time.monotonic() - self._left_at if left else 0.0

    # --- steps of the machine ---

    def append(self, group: Sequence[Append]) -> tuple[int, core.Taken]:
        """TakeAppend, for a group at once: one frame, one sync. The last entry that is on disk now, and what
        became of the last append that was looked at."""
        with self._changed:
            self._must_be_good()
            replica, last = self._replica, 0
            taken: core.Taken = "had already"
            records: list[Record] = []
            writable = self._writer is not None
            for one in group:
                before = replica.length
                replica, taken = core.take_append(
                    replica, index=one.index, count=len(one.records), known=one.known
                )
                if taken in ("closed", "gap") or not writable:
                    break
                last = one.index + len(one.records) - 1
                records += one.records[before - one.index + 1 :]
            if not writable:
                return 0, "closed"
            if records:
                self._write(records)
            if last:
                self._replica, _ = core.sync(replica)
                self._changed.notify_all()
            return last, taken

    def _write(self, records: list[Record]) -> None:
        assert self._writer is not None
        try:
            reach = self._writer.write(records)
        except OSError:
            self._writer.take_back()
            raise
        failpoint("node_written")
        self._sync("frame")
        failpoint("node_synced")
        self._note_generations(self._reach.last + 1 - self.home.first, records)
        self._writer.publish(reach)
        self._reach = reach

    def settle(self) -> None:
        """Make durable what the page says is durable."""
        with self._changed:
            if self._writer is not None:
                self._sync("mark")

    def know(self, known: int) -> None:
        """TakeKnown."""
        with self._changed:
            replica = core.take_known(self._replica, known=known)
            if replica != self._replica:
                self._replica = replica
                self._changed.notify_all()

    def fence(self) -> int | None:
        """TakeFence."""
        with self._changed:
            self._must_be_good()
            replica, length = core.take_fence(self._replica)
            if replica != self._replica:
                self._stop_writing()
                self._put(replica)
            failpoint("node_fenced")
            return length

    def end(self, end: int) -> int | None:
        """TakeEnd."""
        with self._changed:
            self._must_be_good()
            replica, told = core.take_end(self._replica, end=end)
            if replica != self._replica:
                self._stop_writing()
                self._put(replica)
            failpoint("node_ended")
            return told

    def as_is(self) -> core.Replica:
        """What the machine is to decide upon."""
        with self._changed:
            return self._replica if self.damage is None else core.Replica("damaged")

    def give_way(self) -> None:
        """Another copy comes in its place: this one says and writes nothing more."""
        with self._changed:
            if self.damage is None:
                self._stop_writing()
                self.damage = "another copy takes its place"

    # --- reading ---

    def look(self, *, beyond: int = -1, wait_s: float = 0.0) -> Look:
        """What it is; waits for more to be visible than `beyond`, or for the end."""
        with self._changed:
            self._must_be_good()
            self._changed.wait_for(
                lambda: self._replica.visible > beyond or self._replica.state == "sealed", wait_s
            )
            replica = self._replica
            generation = self._generation_at(replica.visible)
            return Look(replica.state, replica.length, replica.visible, generation, self._reach.end)

    def heads(self, *, after: int, upto: int) -> Iterator[bytes]:
        """As `read`, each frame without its payloads."""
        for data in self.read(after=after, upto=upto):
            yield data[: parse_header(data).heads_end]

    def read(self, *, after: int, upto: int, withheld: bool = False) -> Iterator[bytes]:
        """Frames with the entries in `(after, upto]`, as far as they may be read; the first may reach back.
        `withheld`: all entries of a fenced copy, for another node."""
        first, last, end = self._readable(after, upto, withheld=withheld)
        if first > last:
            return
        with self._damage_noted():
            offset = offset_of(self.path, self.home.start, first, end=end)
            for header, data in raw_frames(self.path, self.home.start, offset=offset, end=end):
                if header.last >= first:
                    yield data if header.last <= last else _cut(header, data, last)
                if header.last >= last:
                    return
            raise Damaged(f"it ends before record {last}")

    def pieces(self, *, after: int, upto: int) -> Iterator[Piece]:
        """As `read`, as places in the file where that is possible. Payloads are not checked."""
        first, last, end = self._readable(after, upto)
        if first > last:
            return
        with self._damage_noted():
            offset = offset_of(self.path, self.home.start, first, end=end)
            bounds = {"offset": offset, "end": end, "first": first, "last": last}
            for header, piece in runs(self.path, self.home.start, **bounds):
                yield piece if isinstance(piece, Run) else _cut(header, piece, last)

    def _readable(self, after: int, upto: int, *, withheld: bool = False) -> tuple[int, int, int]:
        """The first and the last record of these entries that may be read, and where the file's end is."""
        with self._changed:
            self._must_be_good()
            replica = self._replica
            if withheld and replica.state not in ("fenced", "sealed"):
                raise faults.not_fenced(self.home.log, self.home.segment)
            upto = min(upto, replica.length if withheld else replica.visible)
            return self.home.first + after + 1, self.home.first + upto, self._reach.end

    @contextmanager
    def _damage_noted(self) -> Iterator[None]:
        """Whatever is found wrong while it is read is remembered, and said."""
        try:
            yield
            return
        except FileNotFoundError:
            damage = "its file is missing"
        except Damaged as found:
            damage = str(found)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            damage = "it cannot be read"
        with self._changed:
            self._damaged(damage)
        raise faults.replica_damaged(self.home.log, self.home.segment)

    # --- within the lock ---

    def _put(self, replica: core.Replica, damage: str | None = None, path: Path | None = None) -> None:
        """The state, durable before anybody hears of it."""
        generation = self._generation_at(replica.length)
        stored = Stored(self.home, replica, self._reach, generation, damage)
        write_state((path or self.path).with_suffix(".state"), stored)
        with self._changed:
            self._replica = replica
            self._changed.notify_all()

    def _damaged(self, what: str) -> None:
        """It is not served any more, also after a restart, until it has been copied from another node."""
        if self.damage is None:
            self.damage = what
            with suppress(OSError):  # a disk that is full, too: it will be found again
                self._stop_writing()
                self._put(self._replica, damage=what)

    def _must_be_good(self) -> None:
        if self.damage is not None:
            raise faults.replica_damaged(self.home.log, self.home.segment)

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _sync(self, name: disk.Sync) -> None:
        """An error here is the end of the node: what is on the disk is known only when it is read anew."""
        assert self._writer is not None
        try:
            self._writer.sync(name)
        except OSError as error:
            raise journal_faults.failed(self.path.parent, error.strerror or "unknown reason") from error

    def _note_generations(self, index: int, records: Sequence[Record]) -> None:
        for place, record in enumerate(records, start=index):
            if not self._generations or self._generations[-1][1] != record.generation:
                self._generations.append((place, record.generation))

    def _generation_at(self, index: int) -> int:
        found = bisect_right(self._generations, (index, 1 << 32))
        return self._generations[found - 1][1] if found else 0


def _cut(header: Header, data: bytes, last: int) -> bytes:
    _, records = decode(memoryview(data))
    kept = records[: last - header.first + 1]
    return whole(kept, log_id=header.log_id, first=header.first, epoch=header.epoch)
