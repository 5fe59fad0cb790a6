"""The journal's disk: the calls by which its files and folders are made, written, synced, renamed, removed.

Nothing is durable before its sync: not what was written, not the name of a file or folder that was made, not
a rename. So each sync says what it is for, and no other is made. Tests put a disk in the place of these calls
that forgets whatever was not synced; each of the names, taken away, has to be missed. Reading is not here:
it sees what a crash may still forget, so whoever decides by what was read syncs it first.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from truecut.journal import faults

Sync = Literal[
    "folder",  # the name of a log's, a node's or a coordinator's folder
    "segment",  # a new segment's first page
    "segment_name",
    "frame",  # what was appended
    "mark",  # how much is committed, once a log has gone quiet
    "found",  # what a killed writer may have left in memory only, before an end is written down
    "manifest",
    "manifest_name",
    "dropped",  # a log's end, before its segments go
    "quarantine",  # what is damaged, before another file comes in its place
    "quarantine_name",
    "identity",  # of a node
    "identity_name",
    "state",  # of a replica
    "state_name",
    "log_folder",  # the name of a log's first replica's folder
    "found_replica",  # what a killed node may have left in memory only, before it tells of it
    "found_names",
    "copy",  # the records of a copy, before its state says that it is whole
    "copy_folder",
    "copy_in_place",  # its records, before its state follows
    "registry_made",  # the coordinator's word that there is a registry
    "registry_found",  # what a killed coordinator had committed, before anybody acts upon it
]
SYNCS: tuple[Sync, ...] = get_args(Sync)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SyncFailed(OSError):
    """What was written may or may not be on the disk. It is never tried again: the system may have dropped
    it, and would not say so twice."""


def is_full(error: OSError) -> bool:
    """Whether room is all that is missing."""
    return error.errno in _FULL and not isinstance(error, SyncFailed)


class Replacing(NamedTuple):
    """The syncs of a file that is replaced as a whole."""

    content: Sync
    name: Sync


MANIFEST = Replacing("manifest", "manifest_name")
IDENTITY = Replacing("identity", "identity_name")
STATE = Replacing("state", "state_name")

# --- files --------------------------------------------------------------------------------------------


def create(path: Path) -> int:
    """A new, empty file."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)


def open_or_create(path: Path) -> int:
    """A file that keeps what it holds."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def write_at(descriptor: int, offset: int, parts: Sequence[bytes]) -> None:
    """All of it, however often the system stops half-way."""
    for low in range(0, len(parts), os.sysconf("SC_IOV_MAX")):
        pending = [memoryview(part) for part in parts[low : low + os.sysconf("SC_IOV_MAX")] if part]
        while pending:
            written = os.pwritev(descriptor, pending, offset)
            offset += written
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if pending:
                pending[0] = pending[0][written:]


def truncate(descriptor: int, size: int) -> None:
    """Forget what is behind."""
    os.ftruncate(descriptor, size)


def sync(descriptor: int, name: Sync) -> None:
    """Make durable what was written to a file."""
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, name) from error


def sync_file(path: Path, name: Sync) -> None:
    """The same, of a file that somebody else has written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor, name)
    finally:
        os.close(descriptor)


# --- names --------------------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """One folder, if it is not there."""
    folder.mkdir(exist_ok=True)


def rename(path: Path, other: Path) -> None:
    """In one step; what the other name stood for is gone."""
    os.replace(path, other)


def link(path: Path, other: Path) -> None:
    """A second name for a file."""
    os.link(path, other)


def remove(path: Path) -> None:
    """If it is there. Only a log's end is synced: what else a crash brings back is removed by whoever finds
    it."""
    path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """If nothing is in it: what is left there is somebody else's."""
    with suppress(OSError):
        folder.rmdir()


def sync_folder(folder: Path, name: Sync) -> None:
    """Make names durable that were made, changed or removed in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, name) from error
    finally:
        os.close(descriptor)


# --- made of these ------------------------------------------------------------------------------------


def replace_file(path: Path, data: bytes, syncs: Replacing) -> None:
    """Atomic and durable: whoever reads the path finds the old content or the new one."""
    aside = path.with_name(f"{path.name}.tmp")
    descriptor = create(aside)
    try:
        write_at(descriptor, 0, [data])
        sync(descriptor, syncs.content)
    finally:
        os.close(descriptor)
    rename(aside, path)
    sync_folder(path.parent, syncs.name)


@contextmanager
def taking(folder: Path) -> Iterator[None]:
    """While a process takes a folder for itself: what the system refuses is told in our words."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise faults.disk_full(folder) from error
        raise faults.unfit_folder(folder, error.strerror or type(error).__name__) from error


def make_folder(folder: Path) -> None:
    """With the folders above it, all durable. Those that are there are synced, too: whoever made them may
    have been killed before. A folder that may not be read is nobody's who writes here."""
    folder = folder.absolute()
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        make(one)
    for below, above in zip((folder, *folder.parents), folder.parents, strict=False):
        if below.stat().st_dev != above.stat().st_dev or not os.access(above, os.R_OK):
            return
        sync_folder(above, "folder")


def sync_commits(database: sqlite3.Connection) -> None:
    """What stands for a sync in SQLite: from here on a commit is on the disk when it returns."""
    database.execute("PRAGMA synchronous = FULL")
