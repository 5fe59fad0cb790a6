"""Whether sinks can be written: what each kind of sink says of its own, who shares folders, space on disks.

Works on what a look at the sinks has brought, however many there are; tries folders, leaves nothing in them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from truecut.config.kinds import SINKS
from truecut.config.settings import Pipeline
from truecut.errors import Fault
from truecut.folders import nearest, not_writable
from truecut.model.finding import Check, Finding
from truecut.sinks.contract import SinkLook

MIB = 1 << 20
SPACE_NONE_BYTES = 64 * MIB  # a run would stop soon
SPACE_LOW_BYTES = 1024 * MIB


def check_sinks(pipeline: Pipeline, looks: Mapping[str, SinkLook]) -> Check:
    """Each sink, as its kind judges."""
    findings = [f for sink in pipeline.sinks for f in SINKS[sink.type].unfit(sink, looks[sink.name])]
    unfit = len({finding.object for finding in findings})
    total = len(pipeline.sinks)
    return Check("sinks", f"{total - unfit:,} of {total:,} are fit", findings)


# --- who shares what ----------------------------------------------------------------------------------


def check_layout(pipeline: Pipeline) -> Check:
    """Two lakes must not keep their files in one folder, nor one inside the other's."""
    owners = _folders(pipeline)
    findings = [
        Finding(name, _shared_folder(name, other, folder), "warning")
        for folder, names in owners.items()
        for name, other in _clashes(folder, names, owners)
    ]
    return Check("data folders", f"{len(owners):,} in all", findings)


def _folders(pipeline: Pipeline) -> dict[PurePath, list[str]]:
    """Folder → the lakes in it, each lake once."""
    folders: dict[str, str] = {}
    lakes = [("source", pipeline.source.address), *((sink.name, sink.address) for sink in pipeline.sinks)]
    known: set[tuple[PurePath, object]] = set()
    owners: dict[PurePath, list[str]] = {}
    for name, address in lakes:
        data = address.data_folder()
        if data is None:
            continue
        folder = Path(os.path.realpath(data)) if isinstance(data, Path) else data
        lake = folder, address.identity(folders)
        if lake not in known:
            known.add(lake)
            owners.setdefault(folder, []).append(name)
    return owners


def _clashes(
    folder: PurePath, names: list[str], owners: Mapping[PurePath, list[str]]
) -> Iterator[tuple[str, str]]:
    for name in names[1:]:
        yield name, names[0]
    above = next((parent for parent in folder.parents if parent in owners), None)
    if above is not None:
        for name in names:
            yield name, owners[above][0]


def _shared_folder(name: str, other: str, folder: PurePath) -> Fault:
    place = folder if isinstance(folder, Path) else str(folder).replace(":/", "://", 1)
    return Fault(
        "TC4020",
        f"{name} keeps its files in {place}, where {other} keeps its own; a clean-up of orphaned"
        " files in one lake would delete the other's",
        "Give each a `data_path` of its own, none inside another.",
    )


# --- space --------------------------------------------------------------------------------------------


def check_space(pipeline: Pipeline) -> Check:
    """Room on every disk that is written to, each disk once."""
    disks: dict[int, Path] = {}
    folders = [pipeline.state, *(path for sink in pipeline.sinks for path in sink.address.folders())]
    for folder in folders:
        place = nearest(folder)
        if not_writable(folder) is None:  # one that is not is told elsewhere, and its room means nothing
            disks.setdefault(os.stat(place).st_dev, place)
    usage = {place: shutil.disk_usage(place) for place in disks.values()}
    free = {place: told.free for place, told in usage.items() if told.total}  # none in all: it does not tell
    findings = [
        Finding(str(place), _little_space(place, room), "error" if room < SPACE_NONE_BYTES else "warning")
        for place, room in free.items()
        if room < SPACE_LOW_BYTES
    ]
    if not free:
        why = "no disk tells how much it has" if usage else "no folder can be written to"
        return Check("disk space", f"not looked at: {why}")
    least = min(free.values())
    return Check("disk space", f"at least {least // MIB:,} MiB free on each disk", findings)


def _little_space(place: Path, free: int) -> Fault:
    return Fault(
        "TC5030",
        f"the disk of {place} has only {free // MIB:,} MiB left",
        "Free space, or move `state` or the sink's `data_path` to another disk.",
    )
