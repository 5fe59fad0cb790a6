"""How one table of an order is written, inside the order's transaction.

A mirror takes the net effect of its window after its keys were compared with what is live at the sink, and
values that the window does not tell from its own rows; an append table takes every change as a row; a seed
replaces a mirror and adds `read` rows to an append table.
What contradicts the sink raises TableStop.
"""

from __future__ import annotations

from collections.abc import Sequence

from truecut.model.change import (
    COMMITTED_AT,
    DELETE,
    INSERT,
    OP,
    OP_NAMES,
    PLACE,
    SEQ,
    TRANSACTION,
    UNCHANGED,
)
from truecut.model.cursor import CopyState
from truecut.model.order import Counts, TableOrder
from truecut.sinks import stops
from truecut.sinks.postgres.absent import NUMBER, UNTOLD, origin
from truecut.sinks.postgres.schema import (
    APPEND_COLUMNS,
    Place,
    create_table,
    drop_table,
    existing_columns,
    exists,
    fits,
    follow_schema,
)
from truecut.sinks.postgres.server import Connection, identifier, literal, row, run
from truecut.sinks.postgres.stage import Net, Staged, compared
from truecut.sinks.postgres.types import Target, targets

Written = tuple[CopyState, Counts]


def seed(place: Place, wanted: TableOrder, copy: CopyState | None, staged: Staged) -> Written:
    """The packets are the whole table."""
    connection, schema = staged.connection, wanted.schema
    assert schema is not None
    columns = targets(place.table, schema)
    if wanted.mode == "mirror":
        clear_table(connection, place, columns, wanted.key)
        rows = staged.relations.get(place.table)
        puts = 0 if rows is None else insert_rows(connection, place, columns, rows)
        return CopyState("mirror", schema.id, schema.columns), Counts(puts=puts)
    there = existing_columns(connection, place)
    if there is not None and there[: len(APPEND_COLUMNS)] != list(APPEND_COLUMNS):  # it was a mirror
        drop_table(connection, place)
        there = None
    return _append(place, wanted, None if there is None else copy, staged)


def changes(place: Place, wanted: TableOrder, copy: CopyState | None, staged: Staged) -> Written:
    """The packets are what changed since the table's own place."""
    table = place.table
    if copy is not None and copy.mode != wanted.mode:
        raise stops.other_mode(table, copy.mode)
    if wanted.mode == "append":
        return _append(place, wanted, copy, staged)
    state = follow_schema(staged.connection, place, wanted, copy)
    net = staged.nets.get(table)
    return state, Counts() if net is None else apply_net(staged.connection, place, wanted, net)


def repair(place: Place, wanted: TableOrder, copy: CopyState | None, staged: Staged) -> Written:
    """The packets are rows that differ: theirs go, however often they are there; the source's come."""
    connection, net = staged.connection, staged.nets[place.table]
    state = follow_schema(connection, place, wanted, copy)
    deleted = delete_keys(connection, place, wanted, net) if net.live_before else 0
    if deleted < net.live_before:
        raise stops.keys_missing(place.table, live_before=net.live_before, deleted=deleted)
    clashes = count_live(connection, place, wanted, net) if net.keys > net.live_before else 0
    if clashes:
        raise stops.keys_live_already(place.table, clashes)
    insert_keys(connection, place, wanted, net)
    return state, Counts(puts=net.puts, deletes=net.deletes)


def apply_net(connection: Connection, place: Place, wanted: TableOrder, net: Net) -> Counts:
    """Keys the window found live are deleted, keys it leaves live are inserted; a truncate deletes all."""
    table = place.table
    if net.truncated:
        removed = run(connection, f"DELETE FROM {place.sql}").rowcount
        insert_keys(connection, place, wanted, net)
        return Counts(puts=net.puts, deletes=removed)
    if net.untold:
        keep_untold(connection, place, wanted, net)
    deleted = delete_keys(connection, place, wanted, net) if net.live_before else 0
    if deleted != net.live_before:
        raise stops.changed_keys(
            table, live_before=net.live_before, deleted=deleted, began_empty=wanted.began_empty
        )
    clashes = count_live(connection, place, wanted, net) if net.keys > net.live_before else 0
    if clashes:
        raise stops.keys_live_already(table, clashes)
    insert_keys(connection, place, wanted, net)
    return Counts(puts=net.puts, deletes=net.deletes)


def keep_untold(connection: Connection, place: Place, wanted: TableOrder, net: Net) -> None:
    """Set the values that the window does not tell aside before their rows go. What the sink lacks is not
    noticed here: what is deleted is counted."""
    columns = ", ".join(f"t.{identifier(name)}" for name in net.untold)
    run(
        connection,
        f"CREATE TEMPORARY TABLE {net.relation}_kept ON COMMIT DROP AS SELECT n.{NUMBER}, {columns} "
        f"FROM {net.relation} n JOIN {place.sql} t ON {_same_key(place, wanted, moved=True)} "
        f"WHERE cardinality(n.{UNTOLD}) > 0",
    )


def insert_keys(connection: Connection, place: Place, wanted: TableOrder, net: Net) -> None:
    """Insert the rows that the window leaves live."""
    if not net.puts:
        return
    assert wanted.schema is not None
    columns = targets(place.table, wanted.schema)
    rows = f"{net.relation} n"
    if net.untold:
        rows += f" LEFT JOIN {net.relation}_kept k USING ({NUMBER})"
    insert_rows(connection, place, columns, rows, where=f"{OP} <> {DELETE}", untold=net.untold)


def delete_keys(connection: Connection, place: Place, wanted: TableOrder, net: Net) -> int:
    """Remove the rows that the window found live; how many there were."""
    return run(
        connection,
        f"DELETE FROM {place.sql} t USING {net.relation} n "
        f"WHERE n.{net.first_op} <> {INSERT} AND {_same_key(place, wanted)}",
    ).rowcount


def count_live(connection: Connection, place: Place, wanted: TableOrder, net: Net) -> int:
    """How many of the keys whose first change is an insert are at the sink already."""
    found = row(
        connection,
        f"SELECT count(*) FROM {net.relation} n JOIN {place.sql} t ON {_same_key(place, wanted)} "
        f"WHERE n.{net.first_op} = {INSERT}",
    )
    return int(found[0])


def insert_rows(
    connection: Connection,
    place: Place,
    columns: Sequence[Target],
    rows: str,
    *,
    where: str = "true",
    untold: Sequence[str] = (),
) -> int:
    """Whole rows, by name; some values of `untold` columns are those kept before."""
    names = ", ".join(identifier(one.name) for one in columns)
    values = ", ".join(
        _told_or_kept(one) if one.name in untold else one.value(identifier(one.name)) for one in columns
    )
    sql = f"INSERT INTO {place.sql} ({names}) SELECT {values} FROM {rows} WHERE {where}"
    return run(connection, sql).rowcount


def _told_or_kept(column: Target) -> str:
    name = identifier(column.name)
    told = column.value(f"n.{name}")
    return f"CASE WHEN {literal(column.name)} = ANY (n.{UNTOLD}) THEN k.{name} ELSE {told} END"


def clear_table(
    connection: Connection, place: Place, columns: Sequence[Target], key: tuple[str, ...]
) -> None:
    """Emptied where its columns fit, so that its grants and indexes stay; created anew otherwise. Whoever is
    reading it goes on seeing what was there: a TRUNCATE would show them an empty table."""
    if fits(connection, place, columns, key):
        run(connection, f"DELETE FROM {place.sql}")
        return
    if exists(connection, place):
        drop_table(connection, place)
    create_table(connection, place, columns, "mirror", key)


def _append(place: Place, wanted: TableOrder, copy: CopyState | None, staged: Staged) -> Written:
    state = follow_schema(staged.connection, place, wanted, copy)
    rows = staged.relations.get(place.table)
    if rows is None:
        return state, Counts()
    assert wanted.schema is not None
    columns = targets(place.table, wanted.schema)
    names = ", ".join(map(identifier, [*(name for name, _ in APPEND_COLUMNS), *(c.name for c in columns)]))
    values = ", ".join(
        [_control(wanted.leaves.at.generation), *(c.value(identifier(c.name)) for c in columns)]
    )
    sql = f"INSERT INTO {place.sql} ({names}) SELECT {values} FROM {rows}"
    return state, Counts(puts=run(staged.connection, sql).rowcount)


def _control(generation: int) -> str:
    """The control columns of an append table, from those of the packets, in the order of the table."""
    ops = " ".join(f"WHEN {number} THEN {literal(name)}" for number, name in OP_NAMES.items())
    position = f"'{generation:08X}-' || {_hex(PLACE)}"
    transaction = f"coalesce({TRANSACTION}, {position})"
    unchanged = f"CASE WHEN cardinality({UNCHANGED}) > 0 THEN {UNCHANGED} END"
    return f"CASE {OP} {ops} END, {position}, {_hex(SEQ)}, {transaction}, {COMMITTED_AT}, now(), {unchanged}"


def _hex(number: str) -> str:
    return f"lpad(upper(to_hex({number})), 16, '0')"


def _same_key(place: Place, wanted: TableOrder, *, moved: bool = False) -> str:
    """`moved`: by the key under which the sink has the row, which the window may have changed."""
    assert wanted.schema is not None
    known = {one.name: one for one in targets(place.table, wanted.schema)}
    return " AND ".join(
        f"{compared(known[name], staged=False, of='t.')} = "
        + compared(known[name], staged=True, of="n.", name=origin(part) if moved else name)
        for part, name in enumerate(wanted.key)
    )
