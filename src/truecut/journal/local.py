"""The local journal: one folder on one machine, one writer, any number of readers.

One thread writes: it takes whatever has been submitted since it last looked, writes it as one frame, syncs,
and only then answers (group commit). Who opens the log for writing raises its epoch first and finishes the
segment of whoever was there before; a writer looks at the epoch after each sync and before it answers. So
either the newcomer finds what was written, or the old writer does not call it written.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from truecut.errors import Fault, TruecutError, require
from truecut.failpoint import failpoint
from truecut.journal import disk, faults
from truecut.journal.contract import Entry, Outline
from truecut.journal.frame import size_of
from truecut.journal.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    Manifest,
    Segment,
    changing,
    read_manifest,
    stamp_of,
    write_manifest,
)
from truecut.journal.reader import LocalReader
from truecut.journal.record import Damaged, Record
from truecut.journal.scan import scan
from truecut.journal.segment import Reach, SegmentWriter, is_segment_name, read_start
from truecut.journal.submission import Submission, position_after
from truecut.model.position import Position

SEGMENT_BYTES_MAX = 64 << 20
FRAME_BYTES_MAX = 8 << 20
SUBMITTED_BYTES_MAX = 64 << 20
MARK_DELAY_S = 0.02  # until the mark of a log that has gone quiet is durable, too
FULL_DELAY_S = 0.5  # between two attempts while the disk is full

_LOCKS = ("writer.lock", LOCK_NAME)

_T = TypeVar("_T")

log = logging.getLogger(__name__)


class LocalJournal:
    """A log in a folder, opened for writing."""

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        take_over: bool = False,
    ) -> None:
        """Open it, and make it if it is not there. `take_over`: from a writer that may still be alive."""
        with disk.taking(folder):
            disk.make_folder(folder)
            self._lock = _lock_writer(folder, insist=not take_over)
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes_max = segment_bytes_max
        self._stamp: tuple[int, int, int] | None = None  # of the manifest, when it was last ours
        self._reader = LocalReader(folder)
        try:
            self._begin_segment(_finish_open_segment(folder, _raise_epoch(folder)))
            _remove_strays(folder, self._manifest)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError) and disk.is_full(error):
                raise faults.disk_full(folder) from error
            raise
        self._last = self._position(self._segment.reach)  # of what was submitted
        self._submitted: deque[Submission] = deque()
        self._submitted_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._broken: TruecutError | None = None
        self._hindrance: Fault | None = None
        self._writer = threading.Thread(target=self._write_until_closed, name="journal", daemon=True)
        self._writer.start()

    # --- for everybody ---

    def head(self) -> Position | None:
        """The last committed position."""
        return self._position(self._segment.reach)

    def oldest(self) -> Position | None:
        """The first position that is still there."""
        return self._reader.oldest()

    def read(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Entry]:
        """The committed records in `(after, upto]`."""
        return self._reader.read(after=after, upto=upto)

    def size(self, *, after: Position | None = None) -> int:
        """How many bytes are kept of the records behind a position, in whole segments."""
        return self._reader.size(after=after)

    def wait(self, *, after: Position | None, timeout_s: float) -> Position | None:
        """The head, as soon as it is behind `after`."""
        return self._reader.wait(after=after, timeout_s=timeout_s)

    def heads(self, *, after: Position | None, upto: Position | None = None) -> Iterator[Outline]:
        """The committed records in `(after, upto]`, without their payloads."""
        return self._reader.heads(after=after, upto=upto)

    def hindrance(self) -> Fault | None:
        """Why appends wait, while they do."""
        return self._hindrance

    def append(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Position:
        """Durable when it returns."""
        return self.submit(records, expected_last=expected_last).result()

    def submit(self, records: Sequence[Record], *, expected_last: Position | None = None) -> Future[Position]:
        """Append; answered when durable."""
        require(len(records) > 0, "an append holds a record")
        size = size_of(records)
        submission = Submission(records, size, Future())
        with self._changed:
            self._changed.wait_for(lambda: self._submitted_bytes < SUBMITTED_BYTES_MAX or self._stopped)
            if self._stopped:
                raise self._broken or faults.fenced(self._folder)
            if expected_last is not None and expected_last != self._last:
                raise faults.moved_on(expected=expected_last, last=self._last)
            if self._bytes_max is not None and self._bytes() + self._submitted_bytes + size > self._bytes_max:
                raise faults.full(self._folder, bytes_max=self._bytes_max)
            self._last = position_after(self._last, records)
            self._submitted.append(submission)
            self._submitted_bytes += size
            self._changed.notify_all()
        return submission.answer

    def trim(self, *, before: Position) -> None:
        """Remove the segments that hold only records before this one."""
        with self._changed:
            keep = [
                one for one in self._manifest.segments if one.reach is None or one.reach.last >= before.place
            ]
            gone = [one for one in self._manifest.segments if one not in keep]
            if gone:
                self._name_only(keep)
        for one in gone:
            _remove(self._folder / one.start.name)

    def _name_only(self, keep: Sequence[Segment]) -> None:
        try:
            self._replace_manifest(replace(self._manifest, segments=tuple(keep)))
        except OSError as error:
            if disk.is_full(error):  # nothing has been removed: there was no room to say so
                raise faults.disk_full(self._folder) from error
            raise faults.failed(self._folder, error.strerror or type(error).__name__) from error

    def close(self) -> None:
        """Write what was submitted, then let go; once is enough."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._writer.join()
        self._segment.close()
        os.close(self._lock)

    # --- the writing thread ---

    @property
    def _stopped(self) -> bool:
        return self._closing or self._broken is not None

    def _write_until_closed(self) -> None:
        group: list[Submission] | None = []
        marked = True  # whether the mark is durable
        try:
            while (group := self._next_group(None if marked else MARK_DELAY_S)) is not None:
                if group:
                    self._commit(group)
                else:
                    self._sync("mark")
                marked = not group
            self._sync("mark")
        except TruecutError as error:
            self._break(error, group or [])
        except OSError as error:
            self._break(faults.failed(self._folder, error.strerror or type(error).__name__), group or [])
        except Exception as error:  # a fault of ours: nobody may wait for a thread that is gone
            log.exception("the journal %s cannot go on", self._folder)
            self._break(faults.writer_failed(self._folder, type(error).__name__), group or [])

    def _next_group(self, timeout_s: float | None) -> list[Submission] | None:
        """What was submitted, as much as fits into a frame; nothing after the time-out, None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._submitted) or self._closing, timeout_s)
            if self._closing and not self._submitted:
                return None
            group: list[Submission] = []
            size = 0
            while self._submitted and (not group or size + self._submitted[0].size <= FRAME_BYTES_MAX):
                group.append(self._submitted.popleft())
                size += group[-1].size
            return group

    def _commit(self, group: list[Submission]) -> None:
        records = [record for submission in group for record in submission.records]
        if self._segment.reach.end >= self._segment_bytes_max:
            self._when_there_is_room(self._roll)
        reach = self._when_there_is_room(lambda: self._segment.write(records))
        failpoint("journal_written")
        self._sync("frame")
        failpoint("journal_synced")
        self._check_epoch()
        self._segment.publish(reach)
        failpoint("journal_published")
        number = reach.last - len(records)
        with self._changed:
            self._submitted_bytes -= sum(submission.size for submission in group)
            self._changed.notify_all()
        for submission in group:
            number += len(submission.records)
            submission.answer.set_result(Position(submission.records[-1].generation, number))

    def _when_there_is_room(self, write: Callable[[], _T]) -> _T:
        """A full disk is waited for: nothing is lost, and whoever appends waits, too."""
        while True:
            try:
                result = write()
            except OSError as error:
                if not disk.is_full(error):
                    raise
                self._segment.take_back()
                fault = faults.disk_full(self._folder)
                if self._closing:
                    raise fault from error
                self._hindrance = fault.fault
                threading.Event().wait(FULL_DELAY_S)
            else:
                self._hindrance = None
                return result

    def _sync(self, name: disk.Sync) -> None:
        """An error here is the end: the system may have dropped the pages, and would not say so again."""
        try:
            self._segment.sync(name)
        except OSError as error:
            raise faults.failed(self._folder, error.strerror or "unknown reason") from error

    def _check_epoch(self) -> None:
        if (stamp := stamp_of(self._folder)) == self._stamp:
            return
        manifest = read_manifest(self._folder)
        if manifest is None or manifest.epoch != self._manifest.epoch:
            raise faults.fenced(self._folder)
        self._stamp = stamp

    def _roll(self) -> None:
        with self._changed:
            finished = self._segment
            self._begin_segment(self._manifest.sealed(finished.reach))
        finished.close()

    def _break(self, error: TruecutError, group: list[Submission]) -> None:
        """For good. Whether the group is on the disk is unknown; nobody is told that it is."""
        with self._changed:
            self._broken = error
            pending, self._submitted = [*group, *self._submitted], deque()
            self._changed.notify_all()
        for submission in pending:
            submission.answer.set_exception(error)

    # --- segments ---

    def _begin_segment(self, before: Manifest) -> None:
        start = before.next_start()
        segment = SegmentWriter(self._folder / start.name, start)
        failpoint("journal_segment_made")
        try:
            self._replace_manifest(before.begun(start))
        except BaseException:
            segment.close()  # its files stay: perhaps the manifest names them by now
            raise
        self._segment = segment

    def _replace_manifest(self, manifest: Manifest) -> None:
        with changing(self._folder):
            found = read_manifest(self._folder)
            if found is None or found.epoch != manifest.epoch:
                raise faults.fenced(self._folder)
            write_manifest(self._folder, manifest)
            self._manifest = manifest
            self._stamp = stamp_of(self._folder)

    def _bytes(self) -> int:
        done = sum(one.reach.end for one in self._manifest.segments if one.reach is not None)
        return done + self._segment.reach.end

    @staticmethod
    def _position(reach: Reach) -> Position | None:
        return Position(reach.generation, reach.last) if reach.last else None


def _lock_writer(folder: Path, *, insist: bool) -> int:
    """A courtesy: it tells a second writer before it does harm to the first. Safety is the epoch's."""
    lock = os.open(folder / _LOCKS[0], os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if insist:
            os.close(lock)
            raise faults.in_use(folder) from None
    return lock


def _raise_epoch(folder: Path) -> Manifest:
    """From here on no older writer calls anything written."""
    with changing(folder):
        found = read_manifest(folder) or Manifest(uuid.uuid4().bytes, epoch=0)
        manifest = replace(found, epoch=found.epoch + 1)
        write_manifest(folder, manifest)
    failpoint("journal_epoch_raised")
    return manifest


def _finish_open_segment(folder: Path, manifest: Manifest) -> Manifest:
    """Where the writer before got to: decided once, by whoever comes next."""
    if manifest.open is None:
        return manifest
    start = manifest.open.start
    path = folder / start.name
    try:
        if read_start(path) != start:
            raise Damaged("it belongs to another place or log")
        scanned = scan(path, start)
        if scanned.damage is not None:
            raise Damaged(scanned.damage)
    except FileNotFoundError:
        raise faults.corrupt(path, "it is missing") from None
    except Damaged as damage:
        raise faults.corrupt(path, str(damage)) from damage
    disk.sync_file(path, "found")
    return manifest.sealed(scanned.reach)


def _remove_strays(folder: Path, manifest: Manifest) -> None:
    """Segments that were begun or trimmed by somebody who did not live to write it down."""
    _remove_all_but(folder, kept=frozenset(one.start.name for one in manifest.segments))


def _remove_all_but(folder: Path, *, kept: frozenset[str]) -> None:
    """Segments, by their names. Whatever else is called `.log` there is somebody's own."""
    for path in folder.glob("*.log"):
        if is_segment_name(path.name) and path.name not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    disk.remove(path.with_suffix(".index"))
    disk.remove(path)  # last: by its name the rest is found


def remove_log(folder: Path) -> None:
    """A log that nobody writes to or reads any more, and nothing else that is in its folder. Killed at any
    step, it leaves the log as it was, or none; then whoever calls this again removes the rest."""
    is_there = folder.is_dir() and read_manifest(folder) is not None
    if not is_there and not (folder / LOCK_NAME).exists():
        return
    disk.remove(folder / MANIFEST_NAME)
    disk.sync_folder(folder, "dropped")  # or a crash may bring it back without its segments: that is damage
    _remove_all_but(folder, kept=frozenset())
    for name in (f"{MANIFEST_NAME}.tmp", *_LOCKS):
        disk.remove(folder / name)
    disk.remove_folder(folder)
