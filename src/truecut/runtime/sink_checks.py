"""Whether sinks can be written: their lakes, their folders, the space on their disks, who shares what.

Works on what a look at the sinks has brought, however many there are; asks the file system, writes nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from truecut.config.identity import Identities
from truecut.config.settings import Pipeline, SinkSettings
from truecut.errors import Fault
from truecut.lake import LakeAddress, fault_of
from truecut.runtime.finding import Check, Finding
from truecut.runtime.look import SinkLook

MIB = 1 << 20
SPACE_NONE_BYTES = 64 * MIB  # a run would stop soon
SPACE_LOW_BYTES = 1024 * MIB


def check_sinks(pipeline: Pipeline, looks: Mapping[str, SinkLook]) -> Check:
    """Each sink's lake and folders."""
    findings = [f for sink in pipeline.sinks for f in _sink(sink, looks[sink.name])]
    unfit = len({finding.object for finding in findings})
    total = len(pipeline.sinks)
    return Check("sinks", f"{total - unfit:,} of {total:,} are fit", findings)


def _sink(sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
    if look.fault is not None:
        yield Finding(sink.name, look.fault)
        return
    if not look.exists and sink.address.kind != "duckdb" and sink.address.data_path is None:
        refusal = duckdb.InvalidInputException("data_path is not set")  # as DuckLake itself will say
        yield Finding(sink.name, fault_of(refusal, what=f"sink {sink.name}"))
    denied = filter(None, map(not_writable, _folders_of(sink.address)))
    trouble = next(denied, None) or _read_only(sink.address)
    if trouble is not None:
        yield Finding(sink.name, fault_of(trouble, what=f"sink {sink.name}"))
    for fault in look.refusals(sink).values():
        yield Finding(sink.name, fault)


def _folders_of(address: LakeAddress) -> Iterator[Path]:
    """What has to be writable on this machine: the catalog's folder, and the data's."""
    target = address.target.reveal()
    if address.kind != "postgres" and "://" not in target:
        yield Path(target).parent
    data = _data_path(address)
    if data is not None:
        yield data


def _read_only(address: LakeAddress) -> OSError | None:
    """A catalog that is there, but not for us to write."""
    path = address.target.reveal()
    if address.kind == "postgres" or not os.path.exists(path) or os.access(path, os.W_OK):
        return None
    return _denied()


def _data_path(address: LakeAddress) -> Path | None:
    """Where the lake's files go, as far as the address alone tells."""
    data, target = address.data_path, address.target.reveal()
    if data is None:
        # DuckLake's own default; a catalog that knows another place keeps it.
        return Path(f"{target}.files") if address.kind == "duckdb" and "://" not in target else None
    return None if "://" in data else Path(data)


def not_writable(folder: Path) -> OSError | None:
    """Why nothing can be written into a folder, or why it cannot be made."""
    place = _nearest(folder)
    if not place.is_dir():
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return None if os.access(place, os.W_OK | os.X_OK) else _denied()


def _denied() -> OSError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest of its parents that exists."""
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), Path("/"))


# --- who shares what ----------------------------------------------------------------------------------


def check_layout(pipeline: Pipeline) -> Check:
    """Two lakes must not keep their files in one folder, nor one inside the other's."""
    owners = _folders(pipeline)
    findings = [
        Finding(name, _shared_folder(name, other, folder), "warning")
        for folder, names in owners.items()
        for name, other in _clashes(folder, names, owners)
    ]
    return Check("data folders", f"{len(owners):,} folders", findings)


def _folders(pipeline: Pipeline) -> dict[Path, list[str]]:
    """Folder → the lakes in it, each lake once."""
    identities = Identities()
    lakes = [("source", pipeline.source.address), *((sink.name, sink.address) for sink in pipeline.sinks)]
    known: set[tuple[Path, object]] = set()
    owners: dict[Path, list[str]] = {}
    for name, address in lakes:
        data = _data_path(address)
        if data is None:
            continue
        folder = Path(os.path.realpath(data))
        if (folder, identities.of(address)) not in known:
            known.add((folder, identities.of(address)))
            owners.setdefault(folder, []).append(name)
    return owners


def _clashes(folder: Path, names: list[str], owners: Mapping[Path, list[str]]) -> Iterator[tuple[str, str]]:
    for name in names[1:]:
        yield name, names[0]
    above = next((parent for parent in folder.parents if parent in owners), None)
    if above is not None:
        for name in names:
            yield name, owners[above][0]


def _shared_folder(name: str, other: str, folder: Path) -> Fault:
    return Fault(
        "TC4020",
        f"{name} keeps its files in {folder}, where {other} keeps its own; DuckLake's clean-up of orphaned"
        " files in one lake would delete the other's",
        "Give each catalog a `data_path` of its own, none inside another.",
    )


# --- space --------------------------------------------------------------------------------------------


def check_space(pipeline: Pipeline) -> Check:
    """Room on every disk that is written to, each disk once."""
    disks: dict[int, Path] = {}
    folders = [pipeline.state, *(path for sink in pipeline.sinks for path in _folders_of(sink.address))]
    for folder in folders:
        place = _nearest(folder)
        disks.setdefault(os.stat(place).st_dev, place)
    free = {place: shutil.disk_usage(place).free for place in disks.values()}
    findings = [
        Finding(str(place), _little_space(place, room), "error" if room < SPACE_NONE_BYTES else "warning")
        for place, room in free.items()
        if room < SPACE_LOW_BYTES
    ]
    least = min(free.values(), default=0)
    return Check("disk space", f"at least {least // MIB:,} MiB free on {len(free)} disk(s)", findings)


def _little_space(place: Path, free: int) -> Fault:
    return Fault(
        "TC5030",
        f"the disk of {place} has only {free // MIB:,} MiB left",
        "Free space, or move `state` or the sink's `data_path` to another disk.",
    )
