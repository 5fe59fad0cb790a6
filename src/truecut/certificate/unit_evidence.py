"""Evidence of a base that was read in units: what each unit read, and the log that was spliced in.

`UnitEvidence` is the side of a task that reads: digests of the rows as they were read, and of the log, in
files that all copies of the table share. `beside` is the side of whoever writes a copy's base: the files get
names in the copy's folder, and the segment's first file says which they are. One set of files serves all
copies that have the rows of the source, whatever their route; a copy of an append table has other rows, so
of its units only the ranges are told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truecut.certificate import durable
from truecut.certificate.base_pieces import PIECE, EventPiece
from truecut.certificate.chain import canonical
from truecut.certificate.digest import (
    MODULUS,
    Blocks,
    Keyed,
    Rows,
    as_blocks,
    carried,
    digest_rows,
    number_of,
    route_digests,
)
from truecut.certificate.event_file import EventFile
from truecut.certificate.events import DIGEST, blocks_array
from truecut.certificate.scope import scope_text
from truecut.certificate.segment import NOTHING, Beside, Wanted, copy_folder
from truecut.errors import Retry, TruecutError
from truecut.model.change import DELETE, TRUNCATE
from truecut.model.order import Order
from truecut.model.table import TableName, TableSchema
from truecut.model.units import LoggedEvents, UnitsRead

ROWS = pa.schema([pa.field("key", DIGEST), pa.field("row", DIGEST), pa.field("route", DIGEST)])
LOG = pa.schema(
    [
        pa.field("place", pa.uint64()),
        pa.field("xid", pa.uint64()),
        pa.field("unit", pa.uint32()),
        pa.field("key", DIGEST),
        pa.field("row", DIGEST),
        pa.field("route", DIGEST),
        pa.field("partial", pa.bool_()),
    ]
)
_SHARED = "units"

RouteTexts = Callable[[pa.Table], pa.ChunkedArray]  # of the route column, as the pipeline file spells them


@dataclass(frozen=True, slots=True)
class Basis:
    """What digests of a table's rows are made with: one for all of its mirrors. `mirrored`: rows of the copy
    are those of the source."""

    scope: str
    key: tuple[str, ...]
    schema: TableSchema
    mirrored: bool

    @classmethod
    def of(cls, order: Order, table: str) -> Basis | None:
        """That of a base; None for whatever else."""
        one = order.tables.get(table)
        if one is None or one.kind != "replace" or one.schema is None:
            return None
        scope = scope_text(order.source_identity, table)
        return cls(scope, tuple(sorted(one.key)), one.schema, one.mode == "mirror")

    def digests(self, keyed: Keyed, rows: pa.Table) -> Rows:
        """Of rows that have all of the columns."""
        columns = {column.name: (column.id, column.type) for column in self.schema.columns}
        return digest_rows(keyed, rows, scope=self.scope, key=self.key, columns=columns)

    def key_digests(self, keyed: Keyed, keys: pa.Table) -> list[str]:
        """Of rows that have the columns of a key alone."""
        names = sorted(keys.column_names)
        columns = {
            column.name: (column.id, column.type) for column in self.schema.columns if column.name in names
        }
        found = digest_rows(keyed, keys, scope=self.scope, key=names, columns=columns)
        return [one.tobytes().hex() for one in found.keys]


@dataclass(frozen=True, slots=True)
class UnitPiece:
    """What one unit read."""

    file: EventPiece
    digest: str  # the sum of its rows


@dataclass(frozen=True, slots=True)
class TablePieces:
    """What one task tells of one table. `told`: the units as a certificate has them, but for their digests.
    `log`: of all events; None where they were not told."""

    basis: Basis
    units: Mapping[int, UnitPiece] = field(default_factory=dict)
    told: Sequence[Mapping[str, Any]] = ()
    log: EventPiece | None = None
    start: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Pieces:
    """What one task tells, by table."""

    tables: Mapping[str, TablePieces]


class UnitEvidence:
    """One task's. A witness (`model.units`)."""

    def __init__(self, wanted: Wanted, bases: Mapping[str, Basis], routes: Mapping[str, RouteTexts]) -> None:
        self._wanted, self._bases, self._routes = wanted, bases, routes
        self._open: dict[str, _Table] = {}

    def unit(self, table: TableName, number: int) -> None:
        """What comes next are the rows of this unit."""
        with _keeping(table):
            self._of(table).begin(number)

    def rows(self, table: TableName, batch: pa.RecordBatch) -> None:
        """Some of them."""
        with _keeping(table):
            self._of(table).rows(pa.Table.from_batches([batch]))

    def events(self, table: TableName, found: LoggedEvents) -> None:
        """Some of the log."""
        with _keeping(table):
            self._of(table).events(found)

    def units(self, table: TableName, read: UnitsRead, *, logged: bool) -> None:
        """How they were read; `logged`: the log was told whole."""
        with _keeping(table):
            self._of(table).units(read, logged=logged)

    def finish(self) -> Pieces:
        """All is told: whole and synced."""
        return Pieces({table: one.finish() for table, one in self._open.items()})

    def abandon(self) -> None:
        """Nothing will come of it."""
        for one in self._open.values():
            one.abandon()

    def _of(self, table: TableName) -> _Table:
        name = str(table)
        if name not in self._open:
            shared = copy_folder(Path(self._wanted.folder), sink=_SHARED, table=name)
            shared.mkdir(parents=True, exist_ok=True)
            keyed = self._wanted.keyed()
            self._open[name] = _Table(shared, keyed, self._bases[name], self._routes.get(name))
        return self._open[name]


@contextmanager
def _keeping(table: TableName) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TruecutError(
            "TC7012",
            f"{table}: evidence of how it is read cannot be written ({error.strerror}); nothing was changed",
            fix="Check the certificates' folder: its room, and that this machine may write there.",
            retry=Retry.RETRYABLE,
        ) from error


@dataclass(slots=True)
class _Table:
    """Of a table without a mirror there are no files: only how it was read is told."""

    folder: Path
    keyed: Keyed
    basis: Basis
    texts: RouteTexts | None
    number: int = -1
    file: EventFile | None = None
    total: int = 0
    log: EventFile | None = None
    read: dict[int, UnitPiece] = field(default_factory=dict)
    found: TablePieces | None = None

    def begin(self, number: int) -> None:
        self._end()
        if self.basis.mirrored:
            self.number, self.total = number, 0
            self.file = EventFile(self.folder, {}, ROWS)

    def rows(self, rows: pa.Table) -> None:
        if self.file is None or not rows.num_rows:
            return
        found = self.basis.digests(self.keyed, rows)
        columns = [_blocks(found.keys), _blocks(as_blocks(found.sums)), self._routes(rows)]
        self.file.write(pa.table(columns, schema=ROWS))
        self.total = (self.total + number_of(carried(found.sums.sum(axis=0, keepdims=True))[0])) % MODULUS

    def events(self, found: LoggedEvents) -> None:
        if not self.basis.mirrored:
            return
        rows = pa.Table.from_batches([found.rows])
        digests = self.basis.digests(self.keyed, rows)
        keyless = found.ops == TRUNCATE
        rowless = keyless | (found.ops == DELETE)
        columns = [
            pa.array(found.places, pa.uint64()),
            pa.array(found.xids, pa.uint64()),
            pa.array(found.units, pa.uint32()),
            _blocks(digests.keys, keyless),
            _blocks(as_blocks(digests.sums), rowless),
            pc.if_else(pa.array(rowless), pa.scalar(None, DIGEST), self._routes(rows)),
            pa.array(found.partial, pa.bool_()),
        ]
        self._logged().write(pa.table(columns, schema=LOG))

    def units(self, read: UnitsRead, *, logged: bool) -> None:
        edges: list[str | int | None] = [None, *read.pages, None]
        if read.bounds is not None:
            edges[1:-1] = self.basis.key_digests(self.keyed, pa.Table.from_batches([read.bounds]))
        told = [
            {
                "low": edges[n],
                "high": edges[n + 1],
                "snapshot": one.snapshot,
                "lo": str(one.lo),
                "hi": str(one.hi),
                "rows": one.rows,
            }
            for n, one in enumerate(read.units)
        ]
        log = None
        if logged and self.basis.mirrored and set(read.key) == set(self.basis.key):
            self._logged().close()
            log, self.log = _piece(self._logged()), None
        self.found = TablePieces(self.basis, {}, told, log, str(read.start), read.seen)

    def finish(self) -> TablePieces:
        self._end()
        if self.log is not None:
            self.log.abandon()
        return replace(self.found or TablePieces(self.basis), units=dict(self.read))

    def abandon(self) -> None:
        for file in (self.file, self.log):
            if file is not None:
                file.abandon()
        self.file = self.log = None

    def _end(self) -> None:
        if self.file is not None:
            self.file.close()
            self.read[self.number] = UnitPiece(_piece(self.file), f"{self.total:032x}")
        self.file = None

    def _logged(self) -> EventFile:
        if self.log is None:
            self.log = EventFile(self.folder, {}, LOG)
        return self.log

    def _routes(self, rows: pa.Table) -> pa.Array:
        if self.texts is None:
            return pa.nulls(rows.num_rows, DIGEST)
        return route_digests(self.keyed, self.texts(rows), scope=self.basis.scope)


def _piece(file: EventFile) -> EventPiece:
    return EventPiece(file.path.name, file.rows, file.sha256)


def _blocks(blocks: Blocks, none: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return blocks_array(blocks, np.zeros(len(blocks), np.bool_) if none is None else none)


# --- beside the base of one copy ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadInUnits:
    """All that the tasks of a wave tell of one table."""

    basis: Basis
    told: Sequence[Mapping[str, Any]]
    units: Mapping[int, UnitPiece]
    log: EventPiece | None
    start: str
    seen: str

    @property
    def is_whole(self) -> bool:
        """Whether there is a file for each unit, with as many rows as were read, and the log."""
        return self.log is not None and all(
            n in self.units and self.units[n].file.rows == one["rows"] for n, one in enumerate(self.told)
        )


def gathered(parts: Iterable[Pieces]) -> dict[str, ReadInUnits]:
    """By table: those of which somebody has told how they were read."""
    files: dict[str, dict[int, UnitPiece]] = {}
    told: dict[str, TablePieces] = {}
    for part in parts:
        for table, one in part.tables.items():
            files.setdefault(table, {}).update(one.units)
            if one.told:
                told[table] = one
    return {
        table: ReadInUnits(one.basis, one.told, files[table], one.log, one.start, one.seen)
        for table, one in told.items()
    }


@dataclass(frozen=True, slots=True)
class Units:
    """For one order: how its tables were read, and the route that each of its copies is of. `routes`: ""
    where a copy gets all rows; a table that is not there has more than one route."""

    read: Mapping[str, ReadInUnits] = field(default_factory=dict)
    routes: Mapping[str, str] = field(default_factory=dict)

    def beside(self, wanted: Wanted, order: Order, table: str) -> Beside:
        """What a base of this copy says of its units."""
        read = self.read.get(table)
        if read is None or order.tables[table].kind != "replace":
            return NOTHING
        basis = Basis.of(order, table)
        if basis != read.basis or not basis.mirrored:  # its rows are not those that were digested
            return Beside(canonical([{**one, "digest": ""} for one in read.told]))
        digests = [read.units[n].digest if n in read.units else "" for n in range(len(read.told))]
        units = canonical([{**one, "digest": sum_} for one, sum_ in zip(read.told, digests, strict=True)])
        if not read.is_whole or table not in self.routes:
            return Beside(units)
        return _spliced(wanted, order, table, read, self.routes[table], units)


def _spliced(wanted: Wanted, order: Order, table: str, read: ReadInUnits, route: str, units: str) -> Beside:
    root = Path(wanted.folder)
    folder, shared = (copy_folder(root, sink=one, table=table) for one in (order.sink, _SHARED))
    folder.mkdir(parents=True, exist_ok=True)
    assert read.log is not None
    pieces = [read.log, *(read.units[n].file for n in range(len(read.told)))]
    names = [_link(root, shared, folder, piece) for piece in pieces]
    durable.sync_folder(folder)
    mine = (
        b""
        if not route
        else route_digests(wanted.keyed(), pa.array([route]), scope=read.basis.scope)[0].as_py()
    )
    splice = canonical(
        {
            "log": names[:1],
            "parents": [],  # the journal has every change under its top-level transaction
            "route": mine.hex(),
            "seen": read.seen,
            "start": read.start,
            "units": names[1:],
        }
    )
    hashes = b"".join(bytes.fromhex(piece.sha256) for piece in pieces)
    return Beside(units, splice, hashlib.sha256(splice.encode() + hashes).hexdigest())


def _link(root: Path, shared: Path, folder: Path, piece: EventPiece) -> str:
    """A name of the copy's own: what is trimmed of one copy stays for the others."""
    path = folder / (piece.name.removesuffix(durable.UNFINISHED) + PIECE)
    with suppress(FileExistsError):  # the order runs a second time
        os.link(shared / piece.name, path)
    return os.path.relpath(path, root)
