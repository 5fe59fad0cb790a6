"""Everything that a log's folder holds, read and checked; and the way out when something is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from truecut.journal import faults, quarantine
from truecut.journal.manifest import Segment, changing, read_manifest, write_manifest
from truecut.journal.record import Damaged
from truecut.journal.scan import Scanned, scan
from truecut.journal.segment import Reach, read_start

UNKNOWN_LOST = 1 << 32  # numbers that are left out when nobody can say how many were used


@dataclass(frozen=True, slots=True)
class Listed:
    """One segment, or one node's copy of it, as people see it."""

    file: str
    state: str
    first: int  # the number of its first record
    last: int
    bytes: int
    torn_bytes: int = 0  # behind it: a write that a crash cut short
    lost: int = 0  # records behind it
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one segment."""

    segment: Segment
    path: Path
    reach: Reach  # of what can be read
    torn_bytes: int = 0  # behind it: a write that a crash cut short
    damage: str | None = None
    committed: int | None = None  # the last number that was called committed, where that can be told

    @property
    def records(self) -> int:
        """How many can be read."""
        return self.reach.last - self.segment.start.first + 1

    @property
    def listed(self) -> Listed:
        """For people."""
        state = "open" if self.segment.reach is None else "sealed"
        reach = (self.segment.start.first, self.reach.last, self.reach.end)
        return Listed(self.path.name, state, *reach, self.torn_bytes, self.segment.lost, self.damage)


def is_node(folder: Path) -> bool:
    """Whether it is the folder of a log node, which holds copies of segments."""
    return (folder / "node.json").exists() or (folder / "node.lock").exists()


def logs_in(folder: Path) -> list[Path]:
    """The folder itself, or those in it that hold a log."""
    candidates = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [path for path in candidates if (path / "manifest.json").exists()]


def inspect(folder: Path) -> Iterator[Found]:
    """Every segment of a log, in order, read to its end."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise faults.no_log(folder)
    for segment in manifest.segments:
        yield _look_at(segment, folder / segment.start.name)


def repair(folder: Path) -> list[Found]:
    """Cut damaged segments off before their damage; the log goes on behind it. Nothing is deleted: damaged
    files are kept in `quarantine`, too."""
    with changing(folder):
        manifest = read_manifest(folder)
        found = list(inspect(folder))
        if manifest is None or not any(one.damage for one in found):
            return []
        kept = [_cut(one) if one.damage else one.segment for one in found]
        damaged = [one for one in found if one.damage]
        for one in damaged:
            if one.path.exists():
                quarantine.keep(one.path)
        write_manifest(folder, replace(manifest, epoch=manifest.epoch + 1, segments=tuple(kept)))
    return damaged


def _look_at(segment: Segment, path: Path) -> Found:
    nothing = Reach.of_none(segment.start)
    try:
        if read_start(path) != segment.start:
            raise Damaged("it belongs to another place or log")
        scanned = scan(path, segment.start)
    except FileNotFoundError:
        return Found(segment, path, nothing, damage="it is missing")
    except Damaged as damage:
        return Found(segment, path, nothing, damage=str(damage))
    if segment.reach is None:
        return Found(segment, path, scanned.reach, scanned.torn_bytes, scanned.damage, scanned.committed)
    return _finished(segment, path, scanned)


def _finished(segment: Segment, path: Path, scanned: Scanned) -> Found:
    """Only what belongs to it counts: whoever was fenced may have written more."""
    assert segment.reach is not None
    end = segment.reach
    if scanned.reach.end < end.end:
        damage = f"it ends with record {end.last}, and can be read up to {scanned.reach.last}"
        return Found(segment, path, scanned.reach, damage=damage, committed=end.last)
    return Found(segment, path, end, committed=end.last)


def _cut(found: Found) -> Segment:
    """The segment as far as it is good."""
    used = found.reach.last + UNKNOWN_LOST if found.committed is None else found.committed
    lost = max(0, used - found.reach.last) + found.segment.lost
    return replace(found.segment, reach=found.reach, lost=lost)
