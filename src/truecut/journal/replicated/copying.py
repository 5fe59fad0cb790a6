"""Copies of segments from other nodes, and the files that a replica consists of."""

from __future__ import annotations

from pathlib import Path

from truecut.core import segment_log as core
from truecut.failpoint import failpoint
from truecut.journal import disk, quarantine
from truecut.journal.frame import decode
from truecut.journal.record import Damaged
from truecut.journal.replicated.replica import StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.segment import SegmentWriter

ASIDE = "-copy"


class Copy:
    """A copy of a segment in the making: beside the others until it is whole. Once its state is written it is
    one, and a node that stops there puts it in its place when it starts."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        self._path = home.file_in(folder)
        disk.make(self._path.parent)
        disk.sync_folder(folder, "copy_folder")
        self._aside = self._path.with_name(f"{self._path.stem}{ASIDE}.log")
        self._made = StoredReplica(home, self._path)
        self._writer = SegmentWriter(self._aside, home.start)

    def take(self, data: memoryview) -> None:
        """The next frame; Damaged when it is not what was sent, or not the next."""
        header, records = decode(data)
        next_one = (self._home.start.log_id, self._writer.reach.last + 1, self._home.token)
        if (header.log_id, header.first, header.epoch) != next_one:
            raise Damaged("order")
        reach = self._writer.write(records)
        self._made._note_generations(header.first - self._home.first, records)
        self._writer.publish(reach)

    def finish(self, replica: core.Replica) -> StoredReplica:
        """Put it in its place; what is there and damaged is kept aside."""
        if self._writer.reach.last - self._home.first != replica.length:
            raise Damaged("length")
        self._writer.sync("copy")
        self._made._reach = self._writer.reach
        self._made._put(replica, path=self._aside)
        failpoint("node_copied")
        _put_in_place(self._aside)
        return self._made

    def close(self) -> None:
        """Let go of it, finished or not."""
        self._writer.close()
        remove(self._aside)


def remove(path: Path) -> None:
    """A replica whose records are no longer needed. The state goes last: without it there is no replica."""
    for suffix in (".index", ".log", ".state"):
        disk.remove(path.with_suffix(suffix))


def finish_copies(logs: Path) -> None:
    """Those that were whole when the node stopped are put in their place; the others are removed."""
    for state in logs.glob(f"*/*{ASIDE}.state"):
        _put_in_place(state.with_suffix(".log"))
    for path in logs.glob(f"*/*{ASIDE}.*"):
        disk.remove(path)


def _put_in_place(aside: Path) -> None:
    """What is there is kept in quarantine. The state goes last: until then it is done again."""
    place = aside.with_name(f"{aside.stem.removesuffix(ASIDE)}.log")
    if place.exists() and aside.exists():
        quarantine.keep(place)
    for suffix in (".index", ".log"):
        if aside.with_suffix(suffix).exists():
            disk.rename(aside.with_suffix(suffix), place.with_suffix(suffix))
    disk.sync_folder(place.parent, "copy_in_place")
    disk.rename(aside.with_suffix(".state"), place.with_suffix(".state"))
