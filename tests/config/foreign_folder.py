"""A source of somebody else's, as their package has it: a folder of files, each a transaction over one table.

The test installs it under this name, apart from our tests; it knows nothing but what `truecut` offers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from truecut.config.kinds import SourceWords
from truecut.config.section import SourceSection, Text
from truecut.config.settings import SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.model.change import COMMITTED_AT, CONTROL_FIELDS, OP, PLACE, READ, SEQ
from truecut.model.finding import Check
from truecut.model.position import Position
from truecut.model.table import Column, Mode, TableName, TableSchema
from truecut.sources.contract import Observation, Rows, TableRead, Window, WindowLimits

TABLE = TableName("main", "notes")
SCHEMA = pa.schema([*CONTROL_FIELDS, pa.field("id", pa.int64()), pa.field("text", pa.string())])
COLUMNS = TableSchema("1", (Column(1, "id", "BIGINT"), Column(2, "text", "VARCHAR")))


class FolderSection(SourceSection):
    """Its section of the pipeline file."""

    type: Literal["folder"]
    path: Text


@dataclass(frozen=True)
class FolderAddress:
    """Which folder."""

    path: Path

    def identity(self, folders: dict[str, str]) -> tuple[str, Path]:
        return "folder", self.path

    def folders(self) -> Iterator[Path]:
        return iter(())

    def data_folder(self) -> None:
        return None

    def places(self) -> Iterator[tuple[str, str]]:
        return iter([(str(self.path), "path")])


@dataclass(frozen=True)
class Piece:
    """Transactions to be told as changes, or the rows that are left of them, as of the last one's place."""

    path: Path
    places: tuple[int, ...]
    as_rows: bool

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (TABLE,)

    def read(self) -> Iterator[Rows]:
        told = list(self._rows() if self.as_rows else self._changes())
        if told:
            yield Rows(TABLE, pa.RecordBatch.from_pylist(told, schema=SCHEMA))

    def _changes(self) -> Iterator[dict[str, Any]]:
        for place in self.places:
            for seq, change in enumerate(json.loads((self.path / f"{place}.json").read_text())):
                yield {PLACE: place, SEQ: seq, COMMITTED_AT: None, **change}

    def _rows(self) -> Iterator[dict[str, Any]]:
        found = {change["id"]: change["text"] for change in self._changes()}
        for seq, (key, text) in enumerate(found.items()):
            yield {OP: READ, PLACE: self.places[-1], SEQ: seq, COMMITTED_AT: None, "id": key, "text": text}


@dataclass(frozen=True)
class FolderSource:
    """Transaction N is the file N.json: changes in the form of `model.change`."""

    path: Path
    generation: int

    def observe(self) -> Observation:
        head = max(int(path.stem) for path in self.path.glob("*.json"))
        return Observation("a folder", self._at(1), self._at(head), 0)

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        if table.name != TABLE:
            raise TruecutError.of(Fault("TC2002", f"{table.name} is not in the folder", "Take it out."))
        return COLUMNS

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        after = min(place.place for _, place, _ in tables.values())
        return self._window(range(after + 1, upto_max.place + 1), upto_max, as_rows=False)

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        return self._window(range(1, at.place + 1), at, as_rows=True)

    def _window(self, places: range, upto: Position, *, as_rows: bool) -> Window:
        task = Piece(self.path, tuple(places), as_rows)
        return Window(upto, 0, [task], {TABLE: COLUMNS}, len(places), identity="a folder")

    def _at(self, place: int) -> Position:
        return Position(self.generation, place)


class FolderSurvey(FolderSource):
    """What is asked before a run."""

    def check(self, seen: Observation) -> Check:
        return Check("source", f"{seen.head.place} transactions")


class FolderKind:
    """`type: folder` under `source`."""

    title = "a folder"
    section = FolderSection
    words = SourceWords(behind="the disk of the folder")
    knows_keys = False
    lists_tables = False
    captured = False
    worker_modules = ("foreign_folder",)

    def settle(self, section: FolderSection, *, base: Path) -> FolderAddress:
        return FolderAddress(base / section.path)

    def open(self, settings: SourceSettings, *, generation: int) -> FolderSource:
        assert isinstance(settings.address, FolderAddress)
        return FolderSource(settings.address.path, generation)

    def survey(self, settings: SourceSettings, *, generation: int) -> FolderSurvey:
        assert isinstance(settings.address, FolderAddress)
        return FolderSurvey(settings.address.path, generation)


KIND = FolderKind()
