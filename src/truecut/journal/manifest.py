"""What a log consists of: its segments, which of them are finished and where, and who may write.

One small file, replaced as a whole. It changes when a writer opens the log, begins a segment or trims; each
change is made by whoever holds its lock and still has the newest epoch.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from truecut.journal import disk, faults
from truecut.journal.document import read_document, write_document
from truecut.journal.segment import Reach, Start

MANIFEST_NAME = "manifest.json"
LOCK_NAME = "manifest.lock"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment; `reach` is its end once that is decided, which happens once. Damage can cut it shorter:
    then as many records behind it are lost, and their numbers are not used again."""

    start: Start
    reach: Reach | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments in order; only the last may be without an end."""

    log_id: bytes
    epoch: int  # of the newest writer
    segments: tuple[Segment, ...] = ()

    @property
    def open(self) -> Segment | None:
        """The segment that is being written."""
        return self.segments[-1] if self.segments and self.segments[-1].reach is None else None

    def sealed(self, reach: Reach) -> Manifest:
        """With the end of the open segment decided. One that holds nothing is left out, unless it is the only
        one: it says where the log goes on."""
        *before, last = self.segments
        empty = reach.last < last.start.first  # and what it began with is what the next will begin with
        return replace(self, segments=(*before, *([] if before and empty else [replace(last, reach=reach)])))

    def next_start(self) -> Start:
        """What the next segment begins with."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.reach is None:
            return Start(self.log_id, first=1, epoch=self.epoch, generation=0, previous_crc=0)
        reach = last.reach
        first = reach.last + last.lost + 1
        return Start(self.log_id, first, self.epoch, reach.generation, reach.crc)

    def begun(self, start: Start) -> Manifest:
        """With a new open segment."""
        return replace(self, segments=(*self.segments, Segment(start)))


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is no log; an error where there is one that cannot be trusted."""
    path = folder / MANIFEST_NAME
    try:
        return _manifest(read_document(path))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise faults.corrupt(path, "it is not what was written") from error


def stamp_of(folder: Path) -> tuple[int, int, int]:
    """Changes whenever the manifest does."""
    found = os.stat(folder / MANIFEST_NAME)
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Nobody else changes the manifest during the block."""
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Within `changing`."""
    document = {
        "log": manifest.log_id.hex(),
        "epoch": manifest.epoch,
        "segments": [_document(segment) for segment in manifest.segments],
    }
    write_document(folder / MANIFEST_NAME, document, disk.MANIFEST)


def _document(segment: Segment) -> dict[str, Any]:
    start = {key: value for key, value in asdict(segment.start).items() if key != "log_id"}
    reach = None if segment.reach is None else asdict(segment.reach)
    return start | {"reach": reach, "lost": segment.lost}


def _manifest(document: dict[str, Any]) -> Manifest:
    log_id = bytes.fromhex(document["log"])
    segments = []
    for found in document["segments"]:
        reach, lost = found.pop("reach"), found.pop("lost")
        end = None if reach is None else Reach(**reach)
        segments.append(Segment(Start(log_id=log_id, **found), end, lost))
    return Manifest(log_id, document["epoch"], tuple(segments))
