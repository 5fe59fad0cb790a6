"""A log node: the replicas in its folder, and what it does when asked. Follows `core/segment_log.py`.

A node is its folder: the identity in it is made once, and never shared by two processes. Which coordinator's
logs it holds is written down at the first meeting, and of each log how far it ever had something (L7): before
that is durable, nobody hears of a new replica.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from truecut.core import segment_log as core
from truecut.journal import disk, quarantine
from truecut.journal import faults as journal_faults
from truecut.journal.record import Damaged
from truecut.journal.replicated import copying, faults
from truecut.journal.replicated.copying import Copy
from truecut.journal.replicated.identity import find_identity, write_identity
from truecut.journal.replicated.replica import Look, StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Peer
from truecut.journal.scan import Piece
from truecut.journal.security import Security
from truecut.journal.segment import PAGE_BYTES

TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
ABANDONED_S = 5.0  # without its producer, until an open segment is reported
_PROBE_BYTES = 1 << 20
_COPY_TIMEOUT_S = 600.0

Key = tuple[str, int]  # log and segment


class Node:
    """The replicas of one folder."""

    def __init__(self, folder: Path, security: Security) -> None:
        """Take the folder; read what is there."""
        self.folder = folder
        self._logs = folder / "logs"
        with disk.taking(folder):
            disk.make_folder(self._logs)
            self._lock = _lock(folder)
        self._security = security
        self._changing = threading.Lock()
        self._copying: set[Key] = set()
        self._full = threading.Event()
        try:
            self._identity = find_identity(folder)
            self._replicas = {key_of(found.home): found for found in _load(self._logs)}
            self._remember(_highest(self._replicas))
        except BaseException:
            os.close(self._lock)
            raise

    # --- what a producer asks ---

    def replica_for(self, home: Home) -> StoredReplica:
        """The copy to append to, begun if there never was one."""
        with self._changing:
            found = self._replicas.get(key_of(home))
            if found is None:
                if self._absent(home).state == "missing":
                    raise faults.segment_over(home.log, home.segment)
                found = self._begin(home, StoredReplica.make)
        return _of_log(found, home)

    def _absent(self, home: Home) -> core.Replica:
        return core.absent(segment=home.segment, held=self._identity.held.get(home.log, 0))

    def _begin(self, home: Home, make: Callable[[Home, Path], StoredReplica]) -> StoredReplica:
        """Within the lock. It is there before it is remembered, and remembered before anybody hears of it: a
        crash in between leaves an empty replica, never one that seems lost."""
        try:
            made = make(home, self._logs)
            self._remember({home.log: home.segment})
        except OSError as error:
            raise self.failed(error) from error
        self._replicas[key_of(home)] = made
        return made

    def _remember(self, segments: Mapping[str, int]) -> None:
        identity = self._identity.reaching(segments)
        if identity is not self._identity:
            write_identity(self.folder, identity)
            self._identity = identity

    def failed(self, error: OSError) -> Exception:
        """A full disk is said so, until there is room again."""
        if error.errno in TRANSIENT:
            return faults.overloaded(error.strerror or type(error).__name__)
        if not disk.is_full(error):
            return journal_faults.failed(self.folder, error.strerror or type(error).__name__)
        self._full.set()
        return journal_faults.disk_full(self.folder)

    # --- what the coordinator asks ---

    def fence(self, home: Home) -> int | None:
        """Fence and report, in one step. Where nothing was written nothing will be."""
        with self._changing:
            found = self._replicas.get(key_of(home))
            if found is None:
                _, length = core.take_fence(self._absent(home))
                found = self._lost(home) if length is None else self._begin(home, StoredReplica.make_fenced)
        return _of_log(found, home).fence()

    def end(self, home: Home, *, end: int) -> int | None:
        """Cut to the end, and seal. A segment that ends with nothing may never have been begun here."""
        with self._changing:
            found = self._replicas.get(key_of(home))
            if found is None:
                replica, told = core.take_end(self._absent(home), end=end)
                if told is not None:
                    found = self._begin(home, StoredReplica.make_fenced)
                elif replica.state == "damaged":
                    found = self._lost(home)
                else:
                    raise faults.not_there(*key_of(home))
        return _of_log(found, home).end(end)

    def _lost(self, home: Home) -> StoredReplica:
        """Found out by asking for it. It says so from here on, until another one takes its place."""
        lost = StoredReplica.unknown(home.file_in(self._logs), "its files are missing")
        self._replicas[key_of(home)] = lost
        return lost

    def copy(self, home: Home, *, source: str, length: int, sealed: bool) -> int | None:
        """Take another node's entries: fenced, to help to decide; sealed, in the place of what is lost."""
        key = key_of(home)
        with self._changing:
            if key in self._copying:
                return None
            found = self._replicas.get(key)
            before = self._absent(home) if found is None else _of_log(found, home).as_is()
            told: int | None
            if sealed:
                replica, wanted = core.take_replacement(before, end=length)
            else:
                replica, told = core.take_copy(before, length=length)
                if told is None and found is None:
                    self._lost(home)
                if told is None or replica is before:
                    return told
                wanted = True
            self._copying.add(key)
        try:
            if not wanted:
                return self.end(home, end=length)  # left from before, and enough
            if found is not None and sealed:
                found.give_way()
            made = self._copied(home, source, replica)
            with self._changing:
                self._remember({home.log: home.segment})
                self._replicas[key] = made
        except OSError as error:
            raise self.failed(error) from error
        finally:
            with self._changing:
                self._copying.discard(key)
        return replica.length

    def _copied(self, home: Home, source: str, replica: core.Replica) -> StoredReplica:
        copy = Copy(home, self._logs)
        peer = Peer(source, self._security)
        upto = replica.length
        ticket = {"log": home.log, "segment": home.segment, "after": 0, "upto": upto, "withheld": True}
        try:
            if upto:
                for frame in peer.get(ticket, timeout_s=_COPY_TIMEOUT_S):
                    copy.take(frame)
            return copy.finish(replica)
        except Damaged as damage:
            raise faults.bad_frame(str(damage)) from damage
        finally:
            copy.close()
            peer.close()

    def drop(self, trimmed: Mapping[str, int]) -> None:
        """Drop: remove the segments of each log up to a number. Their records are no longer needed; that they
        were there is not forgotten."""
        with self._changing:
            self._remember(trimmed)
            gone = [key for key in self._replicas if key[1] <= trimmed.get(key[0], 0)]
            removed = [self._replicas.pop(key) for key in gone]
        for one in removed:
            copying.remove(one.path)

    def forget(self, keys: Iterable[Key]) -> None:
        """Damaged replicas that others have taken the place of: kept in quarantine, and nothing else."""
        for key in keys:
            with self._changing:
                found = self._replicas.get(key)
                if found is None or found.damage is None or key in self._copying:
                    continue
                del self._replicas[key]
            if found.path.exists():
                quarantine.keep(found.path)
            copying.remove(found.path)

    # --- what readers ask ---

    def look(self, key: Key, *, beyond: int, wait_s: float) -> Look:
        """How far it can be read."""
        return self._replica(key).look(beyond=beyond, wait_s=wait_s)

    def heads(self, key: Key, *, after: int, upto: int) -> Iterator[bytes]:
        """The heads of frames with these entries."""
        return self._replica(key).heads(after=after, upto=upto)

    def read(self, key: Key, *, after: int, upto: int, withheld: bool) -> Iterator[bytes]:
        """Frames with these entries."""
        return self._replica(key).read(after=after, upto=upto, withheld=withheld)

    def pieces(self, key: Key, *, after: int, upto: int) -> tuple[Home, Callable[[], Iterator[Piece]]]:
        """Whose segment it is, and what to send of it: frames with these entries, payloads unchecked."""
        replica = self._replica(key)
        return replica.home, lambda: replica.pieces(after=after, upto=upto)

    # --- what it says of itself ---

    @property
    def id(self) -> str:
        """Which node it is."""
        return self._identity.node

    @property
    def cluster(self) -> str | None:
        """Whose logs it holds; None before it has met a coordinator."""
        return self._identity.cluster

    def damaged(self) -> list[Key]:
        """Which of its replicas are."""
        with self._changing:
            return sorted(key for key, found in self._replicas.items() if found.damage is not None)

    def has(self) -> list[Key]:
        """All its replicas."""
        with self._changing:
            return sorted(self._replicas)

    def abandoned(self) -> list[Key]:
        """Which of its replicas wait for a producer that is gone."""
        with self._changing:
            return sorted(key for key, found in self._replicas.items() if found.abandoned_s() > ABANDONED_S)

    def full(self) -> bool:
        """Whether the disk is; found out by writing to it, once it has been."""
        if self._full.is_set():
            with suppress(OSError):
                self._probe(self.folder / "probe")
                self._full.clear()
        return self._full.is_set()

    @staticmethod
    def _probe(path: Path) -> None:
        """Not synced: nobody needs it, and room is given to what is written."""
        descriptor = disk.create(path)
        try:
            disk.write_at(descriptor, 0, [bytes(_PROBE_BYTES)])
        finally:
            os.close(descriptor)
            disk.remove(path)

    def join(self, cluster: str) -> None:
        """From here on its data belongs to this coordinator's logs."""
        with self._changing:
            if self.cluster is None:
                joined = replace(self._identity, cluster=cluster)
                write_identity(self.folder, joined)
                self._identity = joined
            elif self.cluster != cluster:
                raise faults.other_cluster(self.id)

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._lock)

    def _replica(self, key: Key) -> StoredReplica:
        with self._changing:
            found = self._replicas.get(key)
        if found is None:
            raise faults.not_there(*key)
        return found


def key_of(home: Home) -> Key:
    """Log and segment."""
    return home.log, home.segment


def _highest(keys: Iterable[Key]) -> dict[str, int]:
    """The highest segment of each log."""
    found: dict[str, int] = {}
    for log, segment in keys:
        found[log] = max(segment, found.get(log, 0))
    return found


def _of_log(found: StoredReplica, home: Home) -> StoredReplica:
    if found.damage is None and found.home != home:
        raise faults.other_log(home.log, home.segment)
    return found


def _lock(folder: Path) -> int:
    lock = os.open(folder / "node.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise faults.folder_in_use(folder) from None
    return lock


def _load(logs: Path) -> Iterator[StoredReplica]:
    """Every replica; what was begun and never became one is removed."""
    for folder in (logs, *(path for path in logs.iterdir() if path.is_dir())):
        disk.sync_folder(folder, "found_names")
    copying.finish_copies(logs)
    for path in sorted(logs.glob("*/*.log")):
        if path.with_suffix(".state").exists():
            continue
        if path.stat().st_size > PAGE_BYTES:  # a replica has a state before it has records
            yield StoredReplica.unknown(path, "its state is missing")
        else:
            copying.remove(path)
    for path in sorted(logs.glob("*/*.state")):
        yield StoredReplica.load(path)
