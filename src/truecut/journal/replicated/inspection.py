"""Every replica in a node's folder, read and checked. Nothing is changed: a damaged one is repaired by its
node, from the other replicas."""

from __future__ import annotations

from pathlib import Path

from truecut.journal.inspection import Listed
from truecut.journal.record import Damaged
from truecut.journal.replicated.copying import ASIDE
from truecut.journal.replicated.identity import read_identity
from truecut.journal.replicated.state_file import examine, read_state
from truecut.journal.segment import PAGE_BYTES


def inspect_node(folder: Path) -> dict[Path, list[Listed]]:
    """The replicas by log, each read to its end; an error when nobody can say whose folder it is."""
    read_identity(folder)
    logs = sorted(path for path in (folder / "logs").iterdir() if path.is_dir())
    return {log: [_look_at(log, segment) for segment in _segments(log)] for log in logs}


def _segments(log: Path) -> list[str]:
    """Those with a state, and those that have lost it: a segment has one before it has records."""
    files = [path for path in log.iterdir() if path.suffix in (".log", ".state")]
    known = {path.stem.removesuffix(ASIDE) for path in files if path.suffix == ".state"}
    lost = {
        path.stem
        for path in files
        if path.suffix == ".log" and not path.stem.endswith(ASIDE) and path.stat().st_size > PAGE_BYTES
    }
    return sorted(known | lost)


def _look_at(log: Path, segment: str) -> Listed:
    path = log / f"{segment}.log"
    state = _first_there(log / f"{segment}{ASIDE}.state", path.with_suffix(".state"))
    size = path.stat().st_size if path.exists() else 0
    try:
        stored = read_state(state)
    except Damaged as damage:
        return Listed(path.name, "unknown", 0, 0, size, damage=str(damage))
    home, replica = stored.home, stored.replica
    described = (path.name, replica.state, home.first + 1)
    try:
        if stored.damage is not None:
            raise Damaged(stored.damage)
        data = path if state.stem == segment else _first_there(log / f"{segment}{ASIDE}.log", path)
        scanned = examine(data, stored, every_byte=True)
    except Damaged as damage:
        return Listed(*described, home.first + replica.length, size, damage=str(damage))
    if replica.state == "sealed":
        return Listed(*described, home.first + replica.length, stored.reach.end)
    return Listed(*described, scanned.reach.last, scanned.reach.end, torn_bytes=scanned.torn_bytes)


def _first_there(path: Path, other: Path) -> Path:
    """A copy that was whole when its node stopped is put in its place when the node starts."""
    return path if path.exists() else other
