"""A log node: the replicas in its folder, and what it does when asked. Follows `core/segment_log.py`.

A node is its folder: the identity in it is made once, and never shared by two processes. Which coordinator's
logs it holds is written down at the first meeting.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from truecut.core import segment_log as core
from truecut.journal import faults as journal_faults
from truecut.journal.disk import replace_file
from truecut.journal.document import read_document, write_document
from truecut.journal.record import Damaged
from truecut.journal.replicated import copying, faults
from truecut.journal.replicated.copying import Copy
from truecut.journal.replicated.replica import Look, StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Peer
from truecut.journal.security import Security
from truecut.journal.segment import PAGE_BYTES

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
ABANDONED_S = 5.0  # without its producer, until an open segment is reported
_PROBE_BYTES = 1 << 20
_COPY_TIMEOUT_S = 600.0

Key = tuple[str, int]  # log and segment


class Node:
    """The replicas of one folder."""

    def __init__(self, folder: Path, security: Security) -> None:
        """Take the folder; read what is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._logs = folder / "logs"
        self._logs.mkdir(exist_ok=True)
        self._security = security
        self._changing = threading.Lock()
        self._copying: set[Key] = set()
        self._full = threading.Event()
        self._lock = _lock(folder)
        try:
            self.id, self.cluster = _identity(folder)
            self._replicas = {key_of(found.home): found for found in _load(self._logs)}
        except BaseException:
            os.close(self._lock)
            raise

    # --- what a producer asks ---

    def replica_for(self, home: Home) -> StoredReplica:
        """The copy to append to, made if it is not there."""
        with self._changing:
            found = self._replicas.get(key_of(home))
            if found is None:
                found = self._replicas[key_of(home)] = self._make(home)
        return _of_log(found, home)

    def _make(self, home: Home) -> StoredReplica:
        try:
            return StoredReplica.make(home, self._logs)
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> Exception:
        """A full disk is said so, until there is room again."""
        if error.errno in TRANSIENT:
            return faults.overloaded(error.strerror or type(error).__name__)
        if error.errno not in FULL:
            return journal_faults.failed(self.folder, error.strerror or type(error).__name__)
        self._full.set()
        return journal_faults.disk_full(self.folder)

    # --- what the coordinator asks ---

    def fence(self, home: Home) -> int | None:
        """Fence and report, in one step. Where nothing was written nothing will be."""
        with self._changing:
            found = self._replicas.get(key_of(home))
            if found is None:
                found = self._replicas[key_of(home)] = StoredReplica.make_fenced(home, self._logs)
        return _of_log(found, home).fence()

    def end(self, home: Home, *, end: int) -> int | None:
        """Cut to the end, and seal. A segment that ends with nothing may never have been begun here."""
        if end == 0:
            self.fence(home)
        return self._replica(key_of(home)).end(end)

    def copy(self, home: Home, *, source: str, length: int, sealed: bool) -> int | None:
        """Take another node's entries: fenced, to help to decide; sealed, in the place of what is lost."""
        key = key_of(home)
        with self._changing:
            found = self._replicas.get(key)
            if key in self._copying:
                return None
            if found is not None and not sealed:
                stays, answer = _stays(found, length)
                if stays:
                    return answer
            self._copying.add(key)
        try:
            if found is not None and found.damage is None and sealed:
                if _of_log(found, home).end(length) == length:
                    return length  # left from before, and enough
                found.give_way()
            made = self._copied(home, source, length, sealed=sealed)
            with self._changing:
                self._replicas[key] = made
        finally:
            with self._changing:
                self._copying.discard(key)
        return length

    def _copied(self, home: Home, source: str, length: int, *, sealed: bool) -> StoredReplica:
        copy = Copy(home, self._logs)
        peer = Peer(source, self._security)
        ticket = {"log": home.log, "segment": home.segment, "after": 0, "upto": length, "withheld": True}
        try:
            if length:
                for frame in peer.get(ticket, timeout_s=_COPY_TIMEOUT_S):
                    copy.take(frame)
            return copy.finish(core.Replica("sealed", length, length) if sealed else _fenced(length))
        except Damaged as damage:
            raise faults.bad_frame(str(damage)) from damage
        except OSError as error:
            raise self.failed(error) from error
        finally:
            copy.close()
            peer.close()

    def drop(self, trimmed: Mapping[str, int]) -> None:
        """Remove the segments of each log up to a number: their records are no longer needed."""
        with self._changing:
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
                copying.keep_in_quarantine(found.path)
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

    # --- what it says of itself ---

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
                probe = self.folder / "probe"
                try:
                    replace_file(probe, bytes(_PROBE_BYTES))
                    self._full.clear()
                finally:
                    probe.unlink(missing_ok=True)
        return self._full.is_set()

    def join(self, cluster: str) -> None:
        """From here on its data belongs to this coordinator's logs."""
        if self.cluster is None:
            _write_identity(self.folder, self.id, cluster)
            self.cluster = cluster
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


def _stays(found: StoredReplica, length: int) -> tuple[bool, int | None]:
    """Whether a replica of an undecided segment is not replaced by a copy, and what is answered then."""
    if found.damage is not None:
        return True, None  # its word does not count until an end is decided
    look = found.look()
    if look.state == "fenced":
        return look.length >= length, look.length  # a copy of a shorter replica may grow
    return True, None


def _fenced(length: int) -> core.Replica:
    copied, _ = core.take_copy(core.Replica(), length=length)
    return copied


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


def _identity(folder: Path) -> tuple[str, str | None]:
    """Made once."""
    if not (folder / "node.json").exists() and not any((folder / "logs").iterdir()):
        _write_identity(folder, str(uuid.uuid4()), None)
    return read_identity(folder)


def read_identity(folder: Path) -> tuple[str, str | None]:
    """The node, and whose logs it holds. Without that nobody could say whose data this is."""
    path = folder / "node.json"
    try:
        document = read_document(path)
        return document["node"], document["cluster"]
    except FileNotFoundError:
        raise faults.identity_damaged(path, "it is missing") from None
    except OSError as error:
        raise faults.identity_damaged(path, f"it cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise faults.identity_damaged(path, "it is not what was written") from error


def _write_identity(folder: Path, node: str, cluster: str | None) -> None:
    write_document(folder / "node.json", {"node": node, "cluster": cluster})
