"""What is known of the units of each table: durable, beside the files that hold their rows.

    <folder>/<table>/again.<request>                  editions that were begun before it are of no use
    <folder>/<table>/paused                           no further unit is read now
    <folder>/<table>/<edition>/awaited.<log>.<oid>    whose transactions have to end before it may be planned
    <folder>/<table>/<edition>/plan.json              how the table is read, its log replayed from where
    <folder>/<table>/<edition>/<unit>.<reading>.json  a unit that was read: its evidence, its file
    <folder>/<table>/<edition>/<unit>.<reading>.torn  that reading is void: where a value was missing
    <folder>/<table>/<edition>/void                   the edition is of no use any more, and why
    <folder>/<table>/<edition>/shared                 the snapshot of all pages, of a table without a key
    <folder>/<table>/<edition>/fault                  the table cannot be read before somebody mends it
    <folder>/<table>/footing.json                     since where the log tells all of it (`standpoint`)

A record stands in the same folder as its file, not in the control store: executors write both, nobody has to
carry the one to the other, and neither can be lost without it being seen. Losing the folder costs another
reading, never data. Promises: a record appears whole or not at all, after its file (C3); whoever records
first wins, so two readers of one unit are harmless; kill -9 leaves at most a file that no record names.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from truecut.core.visibility import Snapshot
from truecut.errors import Fault
from truecut.failpoint import failpoint
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.postgres import unit_files
from truecut.sources.postgres.unit_files import AGAIN, AWAITED, FAULT, PAUSED, PLAN, SHARED, VOID
from truecut.sources.postgres.units import Plan


@dataclass(frozen=True, slots=True)
class Settled:
    """A snapshot, and where the log begins that it, or any later one, may not have seen."""

    snapshot: Snapshot
    lo: int  # every transaction that committed at or before this place is seen
    after: Position  # the journal's records up to this marker hold no other
    log: str  # whose records: no other log's
    mark: int  # the LSN that the marker says
    hi: int = 0  # every transaction that the snapshot sees committed at or before this place
    server: str = ""  # where that was asked (`lineage.server_name`); "" where nobody noted it

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        return {**asdict(self), "snapshot": str(self.snapshot), "after": str(self.after)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Settled:
        """Read what `document` gave."""
        return cls(
            Snapshot.parse(document["snapshot"]),
            document["lo"],
            Position.parse(document["after"]),
            document.get("log", ""),
            document.get("mark", 0),
            document.get("hi", 0),
            document.get("server", ""),
        )


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """A unit that was read: the evidence of the splice, and where its rows are."""

    file: str
    snapshot: Snapshot
    hi: int  # every transaction that the snapshot sees committed at or before this place
    rows: int
    digest: str
    server: str = ""  # where it was read (`lineage.server_name`); "" where nobody noted it

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        return {
            "file": self.file,
            "snapshot": str(self.snapshot),
            "hi": self.hi,
            "rows": self.rows,
            "digest": self.digest,
            "server": self.server,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> UnitRecord:
        """Read what `document` gave."""
        return cls(**{**document, "snapshot": Snapshot.parse(document["snapshot"])})


@dataclass(frozen=True)
class Edition:
    """One reading of a whole table. A small value that goes to executors."""

    folder: Path
    number: int

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / PLAN).read_text())
        return found

    @cached_property
    def plan(self) -> Plan:
        """How the table is read."""
        return Plan.of(self._document["plan"])

    @cached_property
    def settled(self) -> Settled:
        """From where the log is replayed, whatever the unit."""
        return Settled.of(self._document["settled"])

    @property
    def generation(self) -> int:
        """Of the journal's records."""
        return self.settled.after.generation

    @property
    def void(self) -> str | None:
        """Why it is of no use any more."""
        try:
            return (self.folder / VOID).read_text()
        except FileNotFoundError:
            return (
                None if self._document.get("asked", 0) >= _asked(self.folder.parent) else "it was asked for"
            )

    @property
    def is_paused(self) -> bool:
        """Whether no further unit of the table is to be read now."""
        return (self.folder.parent / PAUSED).exists()

    def make_void(self, why: str) -> None:
        """Whatever is read next is of another edition. One that was forgotten meanwhile needs no saying."""
        with suppress(FileNotFoundError):
            _publish(self.folder / VOID, why)

    def share(self, name: str | None = None) -> str | None:
        """The snapshot under which all pages of a table without a key are read: whoever names one first
        decides. None: nobody has."""
        if name is not None:
            _publish(self.folder / SHARED, name)
        try:
            return (self.folder / SHARED).read_text()
        except FileNotFoundError:
            return None

    @property
    def fault(self) -> Fault | None:
        """Why the table cannot be read before somebody has mended it."""
        try:
            code, message, fix = json.loads((self.folder / FAULT).read_text())
        except FileNotFoundError:
            return None
        return Fault(code, message, fix)

    def fail(self, fault: Fault) -> None:
        """Its rows cannot be read as they are."""
        _publish(self.folder / FAULT, json.dumps([fault.code, fault.message, fault.fix]))

    def record(self, unit: int) -> UnitRecord | None:
        """Of the reading that counts; None while there is none."""
        try:
            return _read_record(self._record(unit, self.reading(unit)))
        except FileNotFoundError:
            return None

    def records(self) -> list[UnitRecord | None]:
        """Of all units, in the order of their ranges."""
        names = set(os.listdir(self.folder))
        found: list[UnitRecord | None] = []
        for unit in range(len(self.plan.parts)):
            number = 1
            while self._torn(unit, number).name in names:
                number += 1
            path = self._record(unit, number)
            found.append(_read_record(path) if path.name in names else None)
        return found

    def reading(self, unit: int) -> int:
        """Which reading of a unit counts: the first that was not found torn."""
        number = 1
        while self._torn(unit, number).exists():
            number += 1
        return number

    def floor(self, unit: int) -> int | None:
        """C5: the place up to which a unit's snapshot has to see everything."""
        number = self.reading(unit)
        return None if number == 1 else int(self._torn(unit, number - 1).read_text())

    def new_file(self, unit: int) -> Path:
        """For the rows of one attempt."""
        return self.folder / f"{unit:06d}.{self.reading(unit)}.{uuid.uuid4().hex}.arrow"

    def path(self, record: UnitRecord) -> Path:
        """Where its rows are."""
        return self.folder / record.file

    def finished(self, unit: int, record: UnitRecord) -> None:
        """C3: the rows are on disk, and now its record. One that came too late takes its file away."""
        number = int(record.file.split(".")[1])
        _sync_folder(self.folder)
        if not _publish(self._record(unit, number), json.dumps(record.document())):
            self.path(record).unlink(missing_ok=True)
        failpoint("unit_recorded")

    def tear(self, unit: int, *, reading: int, floor: int) -> None:
        """C5: the reading is void, because a value was missing there. Of an edition that was forgotten
        meanwhile all readings are."""
        with suppress(FileNotFoundError):
            _publish(self._torn(unit, reading), str(floor))

    def _record(self, unit: int, reading: int) -> Path:
        return self.folder / f"{unit:06d}.{reading}.json"

    def _torn(self, unit: int, reading: int) -> Path:
        return self.folder / f"{unit:06d}.{reading}.torn"


@dataclass(frozen=True, slots=True)
class UnitLedger:
    """All tables of a pipeline. A folder that driver and executors share."""

    folder: Path

    def current(self, table: TableName) -> Edition | None:
        """The newest edition that was planned, void or not."""
        return max(_planned(self.folder_of(table)), key=lambda one: one.number, default=None)

    def settled(self, log: str) -> Settled | None:
        """The latest that is known of a log: whatever comes next may go on from it."""
        editions = [one for table in unit_files.tables(self.folder) for one in _planned(table)]
        found = [one.settled for one in editions if one.settled.log == log]
        return max(found, key=lambda one: one.after, default=None)

    def awaited(self, table: TableName, *, log: str, oid: int) -> frozenset[int] | None:
        """The transactions that have to end before the next edition; None: nobody has looked. Of another
        log, or of another table of that name, they say nothing."""
        try:
            text = (self._following(table).folder / _awaited(log, oid)).read_text()
        except FileNotFoundError:
            return None
        return frozenset(json.loads(text))

    def await_first(self, table: TableName, writers: frozenset[int], *, log: str, oid: int) -> frozenset[int]:
        """These have to end first, or those of whoever has looked before us: otherwise a table that somebody
        always writes to would never be read."""
        folder = self._following(table).folder
        folder.mkdir(parents=True, exist_ok=True)
        _publish(folder / _awaited(log, oid), json.dumps(sorted(writers)))
        return self.awaited(table, log=log, oid=oid) or frozenset()

    def is_awaiting(self, table: TableName) -> bool:
        """Whether the next edition waits for the end of transactions."""
        return any(self._following(table).folder.glob(f"{AWAITED}.*"))

    def ask_again(self, table: TableName, asked: int) -> None:
        """Whatever was read before this request is of no use. Requests are numbered in their order."""
        folder = self.folder_of(table)
        folder.mkdir(parents=True, exist_ok=True)
        _publish(folder / f"{AGAIN}.{asked}", "")
        for path in folder.glob(f"{AGAIN}.*"):
            if path.suffix[1:].isdigit() and int(path.suffix[1:]) < asked:
                path.unlink(missing_ok=True)

    def pause(self, table: TableName, *, paused: bool) -> None:
        """No further unit of the table is read, or they are again."""
        path = self.folder_of(table) / PAUSED
        if not paused:
            path.unlink(missing_ok=True)
        elif not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def _following(self, table: TableName) -> Edition:
        last = self.current(table)
        number = last.number + 1 if last is not None else 1
        return Edition(self.folder_of(table) / f"{number:06d}", number)

    def asked(self, table: TableName) -> int:
        """The last request that the table is read again; 0: there was none."""
        return _asked(self.folder_of(table))

    def begin(self, table: TableName, plan: Plan, settled: Settled, *, asked: int = 0) -> Edition:
        """The next edition, begun after that request; somebody else's if that was planned at once."""
        edition = self._following(table)
        edition.folder.mkdir(parents=True, exist_ok=True)
        document = {
            "table": str(table),
            "asked": asked,
            "plan": plan.document(),
            "settled": settled.document(),
        }
        _publish(edition.folder / PLAN, json.dumps(document))
        failpoint("units_planned")
        return edition

    def forget_older(self, table: TableName, edition: Edition) -> None:
        """What came before an edition that is complete."""
        for folder in unit_files.editions(self.folder_of(table)):
            if int(folder.name) < edition.number:
                unit_files.remove_edition(folder)

    def remove(self) -> None:
        """Whatever it holds of any table; nothing that somebody else has put there."""
        unit_files.remove_all(self.folder)

    def folder_of(self, table: TableName) -> Path:
        """Where all that is known of a table is."""
        name = quote(str(table), safe="")[:100].replace(".", "%2E")
        return self.folder / f"{name}-{zlib.crc32(str(table).encode()):08x}"


def _planned(table: Path) -> list[Edition]:
    found = (folder for folder in unit_files.editions(table) if (folder / PLAN).exists())
    return [Edition(folder, int(folder.name)) for folder in found]


def _awaited(log: str, oid: int) -> str:
    """A log's name may be longer than a file's."""
    return f"{AWAITED}.{hashlib.sha256(log.encode()).hexdigest()[:16]}.{oid}"


def _asked(folder: Path) -> int:
    """The largest number among a table's requests."""
    numbers = (path.suffix[1:] for path in folder.glob(f"{AGAIN}.*"))
    return max((int(number) for number in numbers if number.isdigit()), default=0)


@lru_cache(maxsize=1 << 14)
def _read_record(path: Path) -> UnitRecord:
    """What was recorded stays."""
    return UnitRecord.of(json.loads(path.read_text()))


def _publish(path: Path, text: str) -> bool:
    """Durable, whole, and only if nobody was before us."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
        _sync_folder(path.parent)
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
