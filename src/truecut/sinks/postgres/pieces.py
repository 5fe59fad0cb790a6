"""A seed that many tasks stage: each COPYs its rows into tables of its own, beside the cursor.

The tables are not logged: a server that crashes empties them, and then the rows that were told are not there,
which the commit notices. They go with the transaction that takes their rows; what runs that died have left
goes when the sink is taken over. Their names say whose they are (`sinks.parts`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
from psycopg import errors

from truecut.errors import Fault, require
from truecut.failpoint import failpoint
from truecut.model.order import Order, TableOrder
from truecut.sinks import parts as told
from truecut.sinks import stops as reasons
from truecut.sinks.arrivals import Arrivals
from truecut.sinks.contract import Packet
from truecut.sinks.copies import Stop, TableStop
from truecut.sinks.parts import KeySpan, Part, StagedPlace, StagedTable
from truecut.sinks.postgres.cursor import SCHEMA
from truecut.sinks.postgres.rows import about_rows
from truecut.sinks.postgres.server import Connection, identifier, literal, run
from truecut.sinks.postgres.stage import (
    Staged,
    check_seed,
    copy_rows,
    drop_places,
    keys_of,
    staging,
)
from truecut.sinks.postgres.types import targets

DROP_PATIENCE = "2s"  # with a place that an older owner still uses: a takeover does not wait for data
_UNKNOWN = KeySpan(clean=False)  # the server compares them
_PLACES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s)
"""


@dataclass(slots=True)
class _Table:
    """One table's place, made with its first rows."""

    place: str
    rows: int = 0
    bytes: int = 0
    stop: Stop | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)


@dataclass(slots=True)
class PieceCopier:
    """Copies one piece of the reading for one sink."""

    connection: Connection
    pipeline: str
    order: Order
    piece: int
    tables: dict[str, _Table] = field(default_factory=dict)
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def write(self, packets: Iterator[Packet]) -> Part:
        """All of it; the rows are committed when it returns."""
        for packet in packets:
            require(packet.table in self.order.tables, "packets belong to tables of their order")
            if packet.rows is not None and packet.rows.num_rows:
                self._add(packet.table, self.order.tables[packet.table], packet.rows)
        failpoint("after_piece_staged")
        return Part(self.piece, {table: _told(one) for table, one in self.tables.items()})

    def discard(self) -> None:
        """It will not be told."""
        with suppress(psycopg.Error):
            drop_places(self.connection, [one.place for one in self.tables.values()])

    def _add(self, table: str, wanted: TableOrder, rows: pa.Table) -> None:
        one = self.tables.get(table)
        if one is not None and one.stop is not None:
            return
        try:
            with about_rows(table):
                one = one or self._made(table, wanted)
                assert wanted.schema is not None
                columns = targets(table, wanted.schema)
                copy_rows(self.connection, one.place, columns, rows, with_control=_with_control(wanted))
        except TableStop as stop:
            self.tables.setdefault(table, _Table(self._place(table))).stop = stop.stop
            return
        one.rows += rows.num_rows
        one.bytes += rows.nbytes
        one.arrivals.see(rows)

    def _made(self, table: str, wanted: TableOrder) -> _Table:
        assert wanted.schema is not None
        columns = staging(targets(table, wanted.schema), with_control=_with_control(wanted))
        made = _Table(self._place(table))
        run(self.connection, f"CREATE UNLOGGED TABLE {made.place} ({columns})")
        self.tables[table] = made
        return made

    def _place(self, table: str) -> str:
        first = told.family_of(self.pipeline, self.order.sink, table)
        name = told.place_name(first, self.order, table, piece=self.piece, nonce=self.nonce)
        return _quoted(name)


def _with_control(wanted: TableOrder) -> bool:
    return wanted.mode == "append"


def _told(one: _Table) -> StagedTable:
    place = StagedPlace(one.place, one.rows, one.bytes, _UNKNOWN)
    return StagedTable((place,), bool(one.arrivals.absent), one.stop)


def _quoted(name: str) -> str:
    return f"{identifier(SCHEMA)}.{identifier(name)}"


# --- whoever commits ------------------------------------------------------------------------------------


def gather(connection: Connection, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]) -> Staged:
    """The places of all parts as one relation for each table; the rows stay where they are."""
    failpoint("before_pieces_gathered")
    held = {table: (fault.code, fault.message) for table, fault in stops.items()}
    held |= {table: stop for table, stop in told.stops_of(parts).items() if table not in held}
    everywhere = [place.name for table in order.tables for place in told.places_of(parts, table)]
    staged = Staged(connection, stops=held, places=tuple(everywhere))
    for table in order.tables:
        places = told.places_of(parts, table)
        if not places or table in held:
            continue
        staged.relations[table] = _relation(places)
        staged.told[table] = sum(place.rows for place in places)
        absent = any(part.tables[table].absent for part in parts if table in part.tables)
        _examine(staged, table, order.tables[table], absent=absent)
    return staged


def _relation(places: Sequence[StagedPlace]) -> str:
    rows = " UNION ALL ".join(f"SELECT * FROM {place.name}" for place in places)
    return f"({rows}) staged"


def _examine(staged: Staged, table: str, wanted: TableOrder, *, absent: bool) -> None:
    try:
        if absent and wanted.mode == "mirror":
            raise reasons.values_absent(table, staged.told[table])
        with about_rows(table):
            _check_keys(staged, table, wanted)
    except TableStop as stop:
        staged.stops[table] = stop.stop


def _check_keys(staged: Staged, table: str, wanted: TableOrder) -> None:
    if not wanted.key:
        return
    # Another run of the order may have committed them: its transaction finds that, or that they are lost.
    with suppress(errors.UndefinedTable):
        check_seed(staged.connection, table, staged.relations[table], keys_of(table, wanted))


# --- what nobody needs ----------------------------------------------------------------------------------


def sweep(connection: Connection, pipeline: str, sink: str, *, token: int) -> None:
    """Remove what older owners have staged: the fence keeps them from ever using it."""
    first = told.family(pipeline, sink)
    names = [name for (name,) in run(connection, _PLACES, (SCHEMA, first))]
    over = [name for name in names if told.is_over(name, first, token=token, edition=-1)]
    if not over:
        return
    run(connection, f"SET lock_timeout = {literal(DROP_PATIENCE)}")
    for name in over:
        try:
            drop_places(connection, [_quoted(name)])
        except errors.LockNotAvailable:  # an old owner still reads them all: the next takeover finds them
            return
        except psycopg.Error:
            continue
