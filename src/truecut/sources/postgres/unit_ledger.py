"""What is known of the units of each table: durable, beside the files that hold their rows.

    <folder>/<table>/<edition>/awaited.<log>.<oid>    whose transactions have to end before it may be planned
    <folder>/<table>/<edition>/plan.json              how the table is read, its log replayed from where
    <folder>/<table>/<edition>/<unit>.<reading>.json  a unit that was read: its evidence, its file
    <folder>/<table>/<edition>/<unit>.<reading>.torn  that reading is void: where a value was missing
    <folder>/<table>/<edition>/void                   the edition is of no use any more, and why
    <folder>/<table>/<edition>/shared                 the snapshot of all pages, of a table without a key
    <folder>/<table>/<edition>/fault                  the table cannot be read before somebody mends it

A record stands in the same folder as its file, not in the control store: executors write both, nobody has to
carry the one to the other, and neither can be lost without it being seen. Losing the folder costs another
reading, never data. Promises: a record appears whole or not at all, after its file (C3); whoever records
first wins, so two readers of one unit are harmless; kill -9 leaves at most a file that no record names.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from truecut.core.visibility import Snapshot
from truecut.errors import Fault
from truecut.failpoint import failpoint
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.postgres.units import Plan

_PLAN, _VOID, _FAULT, _SHARED, _AWAITED = "plan.json", "void", "fault", "shared", "awaited"


@dataclass(frozen=True, slots=True)
class Settled:
    """A snapshot, and where the log begins that it, or any later one, may not have seen."""

    snapshot: Snapshot
    lo: int  # every transaction that committed at or before this place is seen
    after: Position  # the journal's records up to here hold no other

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        return {"snapshot": str(self.snapshot), "lo": self.lo, "after": str(self.after)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Settled:
        """Read what `document` gave."""
        return cls(Snapshot.parse(document["snapshot"]), document["lo"], Position.parse(document["after"]))


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """A unit that was read: the evidence of the splice, and where its rows are."""

    file: str
    snapshot: Snapshot
    hi: int  # every transaction that the snapshot sees committed at or before this place
    rows: int
    digest: str

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        return {
            "file": self.file,
            "snapshot": str(self.snapshot),
            "hi": self.hi,
            "rows": self.rows,
            "digest": self.digest,
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
        found: Mapping[str, Any] = json.loads((self.folder / _PLAN).read_text())
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
        """Of the journal's records: what was read belongs to no other log."""
        return self.settled.after.generation

    @property
    def void(self) -> str | None:
        """Why it is of no use any more."""
        try:
            return (self.folder / _VOID).read_text()
        except FileNotFoundError:
            return None

    def make_void(self, why: str) -> None:
        """Whatever is read next is of another edition."""
        _publish(self.folder / _VOID, why)

    def share(self, name: str | None = None) -> str | None:
        """The snapshot under which all pages of a table without a key are read: whoever names one first
        decides. None: nobody has."""
        if name is not None:
            _publish(self.folder / _SHARED, name)
        try:
            return (self.folder / _SHARED).read_text()
        except FileNotFoundError:
            return None

    @property
    def fault(self) -> Fault | None:
        """Why the table cannot be read before somebody has mended it."""
        try:
            code, message, fix = json.loads((self.folder / _FAULT).read_text())
        except FileNotFoundError:
            return None
        return Fault(code, message, fix)

    def fail(self, fault: Fault) -> None:
        """Its rows cannot be read as they are."""
        _publish(self.folder / _FAULT, json.dumps([fault.code, fault.message, fault.fix]))

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
        return max(self._planned(table), key=lambda one: one.number, default=None)

    def settled(self, generation: int) -> Settled | None:
        """The latest that is known of a generation: whatever comes next may go on from it."""
        editions = [Edition(path.parent, 0) for path in self.folder.glob("*/*/" + _PLAN)]
        found = [one.settled for one in editions if one.generation == generation]
        return max(found, key=lambda one: one.after, default=None)

    def awaited(self, table: TableName, *, generation: int, oid: int) -> frozenset[int] | None:
        """The transactions that have to end before the next edition; None: nobody has looked. Of another
        log, or of another table of that name, they say nothing."""
        try:
            text = (self._following(table).folder / f"{_AWAITED}.{generation}.{oid}").read_text()
        except FileNotFoundError:
            return None
        return frozenset(json.loads(text))

    def await_first(
        self, table: TableName, writers: frozenset[int], *, generation: int, oid: int
    ) -> frozenset[int]:
        """These have to end first, or those of whoever has looked before us: otherwise a table that somebody
        always writes to would never be read."""
        folder = self._following(table).folder
        folder.mkdir(parents=True, exist_ok=True)
        _publish(folder / f"{_AWAITED}.{generation}.{oid}", json.dumps(sorted(writers)))
        return self.awaited(table, generation=generation, oid=oid) or frozenset()

    def is_awaiting(self, table: TableName) -> bool:
        """Whether the next edition waits for the end of transactions."""
        return any(self._following(table).folder.glob(f"{_AWAITED}.*"))

    def _following(self, table: TableName) -> Edition:
        last = self.current(table)
        number = last.number + 1 if last is not None else 1
        return Edition(self._folder(table) / f"{number:06d}", number)

    def begin(self, table: TableName, plan: Plan, settled: Settled) -> Edition:
        """The next edition; somebody else's if that was planned at the same time."""
        edition = self._following(table)
        edition.folder.mkdir(parents=True, exist_ok=True)
        document = {"table": str(table), "plan": plan.document(), "settled": settled.document()}
        _publish(edition.folder / _PLAN, json.dumps(document))
        failpoint("units_planned")
        return edition

    def forget_older(self, table: TableName, edition: Edition) -> None:
        """What came before an edition that is complete."""
        for one in self._planned(table):
            if one.number < edition.number:
                shutil.rmtree(one.folder, ignore_errors=True)

    def remove(self) -> None:
        """Whatever it holds of any table; nothing that somebody else has put there."""
        for path in (*self.folder.glob("*/*/" + _PLAN), *self.folder.glob(f"*/*/{_AWAITED}.*")):
            shutil.rmtree(path.parent, ignore_errors=True)
        for folder in (*self.folder.glob("*/"), self.folder):
            with suppress(OSError):  # not empty, or not there
                folder.rmdir()

    def _planned(self, table: TableName) -> list[Edition]:
        folders = self._folder(table).glob("*/" + _PLAN)
        return [Edition(path.parent, int(path.parent.name)) for path in folders]

    def _folder(self, table: TableName) -> Path:
        name = quote(str(table), safe="")[:100].replace(".", "%2E")
        return self.folder / f"{name}-{zlib.crc32(str(table).encode()):08x}"


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
