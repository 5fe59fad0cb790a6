"""An order's packets in temporary tables of one session: staged, resolved and checked before its transaction.

Rows stream through COPY as they come, so memory stays bounded whatever the size of a seed. Temporary tables
are this session's alone and go with it: nothing of the sink is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psycopg
import pyarrow as pa

from truecut import pulse
from truecut.errors import require
from truecut.model.change import (
    COMMITTED_AT,
    CONTROL_NAMES,
    DELETE,
    INSERT,
    OP,
    OPTIONAL_NAMES,
    PLACE,
    SEQ,
    TRANSACTION,
    UNCHANGED,
)
from truecut.model.order import Order, Rejected, TableOrder
from truecut.sinks import stops
from truecut.sinks.arrivals import Arrivals
from truecut.sinks.contract import Packet
from truecut.sinks.copies import Stop, TableStop
from truecut.sinks.postgres import encode
from truecut.sinks.postgres.absent import BY_PLACE, FIRST_OP, merge
from truecut.sinks.postgres.rows import about_rows
from truecut.sinks.postgres.server import Connection, identifier, rollback, row, run
from truecut.sinks.postgres.types import Target, targets

ANALYZED_FROM = 1000  # rows; fewer make no plan bad
_CONTROL = {
    OP: "smallint",
    PLACE: "bigint",
    SEQ: "bigint",
    COMMITTED_AT: "timestamp with time zone",
    TRANSACTION: "text",
    UNCHANGED: "text[]",
}


@dataclass(frozen=True, slots=True)
class Net:
    """One row for each key, in `relation`: OP is its last change, `first_op` names that of its first."""

    relation: str
    first_op: str
    keys: int
    live_before: int  # keys whose first change is not an insert: the sink must have them
    puts: int  # keys whose last change is not a delete: the sink will have them
    deletes: int  # keys that the sink had and will not have
    truncated: bool = False  # nothing of what the sink had will be there
    untold: tuple[str, ...] = ()  # columns that the window does not tell of some rows


@dataclass(slots=True)
class Staged:
    """The rows of an order, as relations of one session, by table; and the tables that must stop."""

    connection: Connection
    relations: dict[str, str] = field(default_factory=dict)
    nets: dict[str, Net] = field(default_factory=dict)  # for the changes of a mirror
    stops: dict[str, Stop] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)  # rows that other processes have staged of a table
    places: tuple[str, ...] = ()  # quoted names of the tables in which they are
    rejected: tuple[Rejected, ...] = ()  # none: what does not fit stops its table

    def close(self) -> None:
        """Let the rows go, and whatever was begun."""
        if self.places:
            rollback(self.connection)
            with suppress(psycopg.Error):  # the next owner does it
                drop_places(self.connection, self.places)
        self.connection.close()


def drop_places(connection: Connection, places: Sequence[str]) -> None:
    """Tables that other processes have staged rows in, and nobody needs any more."""
    if places:
        run(connection, f"DROP TABLE IF EXISTS {', '.join(places)}")


def stage(connection: Connection, order: Order, packets: Iterator[Packet]) -> Staged:
    """Take in all packets. What follows a fault of the same table is dropped."""
    staged = Staged(connection)
    counts: dict[str, int] = {}
    arrivals: dict[str, Arrivals] = {}
    for packet in packets:
        require(packet.table in order.tables, "packets belong to tables of their order")
        if packet.fault is not None:
            staged.stops[packet.table] = (packet.fault.code, packet.fault.message)
        elif packet.rows is not None and packet.rows.num_rows and packet.table not in staged.stops:
            _take(staged, packet.table, order.tables[packet.table], packet.rows)
            counts[packet.table] = counts.get(packet.table, 0) + packet.rows.num_rows
            arrivals.setdefault(packet.table, Arrivals()).see(packet.rows)
    for table in set(staged.relations) - set(staged.stops):
        _examine(staged, table, order.tables[table], counts[table], arrivals[table])
    return staged


def _take(staged: Staged, table: str, wanted: TableOrder, rows: pa.Table) -> None:
    assert wanted.schema is not None
    try:
        columns = targets(table, wanted.schema)
        with about_rows(table):
            if table not in staged.relations:
                relation = f"pg_temp.staged_{len(staged.relations)}"
                run(staged.connection, f"CREATE TEMPORARY TABLE {relation} ({staging(columns)})")
                staged.relations[table] = relation
            copy_rows(staged.connection, staged.relations[table], columns, rows)
    except TableStop as stop:
        staged.stops[table] = stop.stop


def staging(columns: Sequence[Target], *, with_control: bool = True) -> str:
    """The columns of a table of staging."""
    control = [f"{name} {kind}" for name, kind in _CONTROL.items()] if with_control else []
    return ", ".join([*control, *(f"{identifier(one.name)} {one.staged}" for one in columns)])


def copy_rows(
    connection: Connection,
    relation: str,
    columns: Sequence[Target],
    rows: pa.Table,
    *,
    with_control: bool = True,
) -> None:
    """Rows into a table of staging."""
    control = [*CONTROL_NAMES, *(name for name in OPTIONAL_NAMES if name in rows.column_names)]
    control = control if with_control else []
    names = [*control, *(one.name for one in columns)]
    rows = rows.select(names)
    if control:
        places = rows.column(PLACE)
        rows = rows.set_column(1, PLACE, pa.chunked_array([one.view(pa.int64()) for one in places.chunks]))
    kinds = [*(_CONTROL[name] for name in control), *(one.staged for one in columns)]
    into = f"COPY {relation} ({', '.join(map(identifier, names))}) FROM STDIN (FORMAT binary)"
    with connection.cursor() as cursor, cursor.copy(into.encode()) as copy:
        copy.write(encode.HEADER)
        for piece in encode.copy_data(rows, kinds):
            pulse.beat()
            copy.write(piece)
        copy.write(encode.TRAILER)


# --- what the changes of a table come to ----------------------------------------------------------------


def _examine(staged: Staged, table: str, wanted: TableOrder, count: int, arrivals: Arrivals) -> None:
    connection, relation = staged.connection, staged.relations[table]
    if count >= ANALYZED_FROM:
        run(connection, f"ANALYZE {relation}")
    if wanted.mode == "append" and wanted.kind != "replace":  # keeps every change as it comes
        return
    try:
        with about_rows(table):
            if wanted.kind == "replace":
                if arrivals.absent and wanted.mode == "mirror":
                    raise stops.values_absent(table, count)
                check_seed(connection, table, relation, keys_of(table, wanted))
            else:
                staged.nets[table] = _resolve(connection, table, relation, wanted, arrivals)
    except TableStop as stop:
        staged.stops[table] = stop.stop


def keys_of(table: str, wanted: TableOrder) -> dict[str, str]:
    """The key's columns: quoted name → SQL for the staged value in a form that can be compared."""
    assert wanted.schema is not None
    known = {one.name: one for one in targets(table, wanted.schema)}
    return {identifier(name): compared(known[name], staged=True) for name in wanted.key}


def compared(column: Target, *, staged: bool, of: str = "", name: str | None = None) -> str:
    """A key's value, of a staged row or of one at the sink, as `=` takes it; `name` is not its own."""
    quoted = of + identifier(name or column.name)
    value = column.value(quoted) if staged else quoted
    return value if column.comparable else f"({value})::text"


def check_seed(connection: Connection, table: str, relation: str, keys: Mapping[str, str]) -> None:
    """A seed in which a key occurs twice, or is NULL in part, cannot be a mirror."""
    nulls, repeated = row(
        connection,
        f"SELECT count(*) FILTER (WHERE missing), count(*) FILTER (WHERE NOT missing AND times > 1) FROM "
        f"(SELECT bool_or({_null(keys)}) AS missing, count(*) AS times FROM {relation} "
        f"GROUP BY {', '.join(keys.values())} HAVING bool_or({_null(keys)}) OR count(*) > 1) k",
    )
    stop = stops.seed_stop(table, nulls=nulls, repeated=repeated)
    if stop is not None:
        raise TableStop(table, *stop)


def _resolve(
    connection: Connection, table: str, relation: str, wanted: TableOrder, arrivals: Arrivals
) -> Net:
    """What the changes come to; what lies before the last truncate is void, and the table is empty then."""
    if arrivals.truncated is None:
        return _latest(connection, table, relation, wanted, arrivals)
    place, seq = arrivals.truncated
    signed = place - (1 << 64) if place >= 1 << 63 else place
    run(
        connection,
        f"DELETE FROM {relation} WHERE ({BY_PLACE}, {SEQ}) <= "
        f"(({signed})::bigint # (-9223372036854775808)::bigint, ({seq})::bigint)",
    )
    net = _latest(connection, table, relation, wanted, arrivals)
    if net.live_before:  # nothing is live after a truncate
        raise stops.contradictions(table, net.live_before)
    return replace(net, truncated=True)


def _latest(connection: Connection, table: str, relation: str, wanted: TableOrder, arrivals: Arrivals) -> Net:
    """Reduce staged changes to one for each key. Keys that changed once need no work at all."""
    keys = keys_of(table, wanted)
    nulls, rows, distinct = row(
        connection,
        f"SELECT count(*) FILTER (WHERE {_null(keys)}), count(*), (SELECT count(*) FROM "
        f"(SELECT DISTINCT {', '.join(keys.values())} FROM {relation}) k) FROM {relation}",
    )
    if nulls:
        raise stops.null_in_changes(table, nulls)
    window = f"(PARTITION BY {', '.join(keys.values())} ORDER BY {BY_PLACE}, {SEQ})"
    if rows != distinct:
        _check_order(connection, table, relation, window)
    assert wanted.schema is not None
    absent = [name for name in wanted.schema.names if name in arrivals.absent]
    if absent:
        untold, lost = merge(connection, relation, wanted.schema.names, keys, absent)
        if lost:
            raise stops.values_absent(table, lost)
        return replace(_measured(connection, f"{relation}_net", FIRST_OP), untold=untold)
    if rows == distinct:
        return _measured(connection, relation, OP)
    net = f"{relation}_net"
    run(
        connection,
        f"CREATE TEMPORARY TABLE {net} AS SELECT * FROM (SELECT *, first_value({OP}) OVER w AS {FIRST_OP}, "
        f"lead({OP}) OVER w IS NULL AS _truecut_last FROM {relation} WINDOW w AS {window}) c "
        "WHERE _truecut_last",
    )
    if distinct >= ANALYZED_FROM:
        run(connection, f"ANALYZE {net}")
    return _measured(connection, net, FIRST_OP)


def _check_order(connection: Connection, table: str, relation: str, window: str) -> None:
    """A key is inserted exactly after its delete."""
    (broken,) = row(
        connection,
        f"SELECT count(*) FROM (SELECT {OP} AS op, lag({OP}) OVER {window} AS previous FROM {relation}) c "
        f"WHERE (op = {INSERT}) <> (previous = {DELETE})",
    )
    if broken:
        raise stops.contradictions(table, broken)


def _measured(connection: Connection, relation: str, first_op: str) -> Net:
    live = f"{first_op} <> {INSERT}"
    counts = row(
        connection,
        f"SELECT count(*), count(*) FILTER (WHERE {live}), count(*) FILTER (WHERE {OP} <> {DELETE}), "
        f"count(*) FILTER (WHERE {live} AND {OP} = {DELETE}) FROM {relation}",
    )
    return Net(relation, first_op, *counts)


def _null(keys: Mapping[str, str]) -> str:
    return " OR ".join(f"{name} IS NULL" for name in keys)
