"""The sink's columns follow the source's, in the transaction of the data; content read by plain duckdb."""

from __future__ import annotations

import pytest

from tests.sinks.world import applied, changes, order, read, rows, seed, sink, standing
from truecut.lake import LakeAddress
from truecut.model.change import INSERT, READ, UPDATE
from truecut.model.order import Receipt
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet

ID, NAME, SIZE = Column(1, "id", "BIGINT"), Column(2, "name", "VARCHAR"), Column(3, "size", "INTEGER")
FIRST = TableSchema("7", (ID, NAME, SIZE))
START = [(READ, 1, 1, "a", 10), (READ, 1, 2, "b", 20)]


def seeded(address: LakeAddress, mode: Mode = "mirror") -> None:
    applied(sink(address).recover(epoch=1, token=1))
    packet = Packet("main.t", rows(START, FIRST))
    applied(sink(address).apply(order(None, 1, t=seed(mode, FIRST)), iter([packet])))


def step(
    address: LakeAddress, place: int, schema: TableSchema, *found: tuple[object, ...], mode: Mode = "mirror"
) -> Receipt:
    wanted = order(place - 1, place, t=changes(mode, schema))
    return applied(sink(address).apply(wanted, iter([Packet("main.t", rows(found, schema))])))


def hold_code(receipt: Receipt) -> str | None:
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.t"].hold
    return None if hold is None else hold.code


def test_an_added_column_reaches_old_and_new_rows(address: LakeAddress) -> None:
    """Rows from before hold the column's initial value, as at the source; new rows hold their own."""
    seeded(address)
    wider = TableSchema(
        "7", (*FIRST.columns, Column(4, "note", "VARCHAR", "'it''s'"), Column(5, "n", "INTEGER"))
    )
    step(address, 2, wider, (INSERT, 2, 3, "c", 30, None, 7), (UPDATE, 2, 1, "a", 11, "own", None))
    assert read(address, "t", "id, name, size, note, n") == [
        (1, "a", 11, "own", None),
        (2, "b", 20, "it's", None),
        (3, "c", 30, None, 7),
    ]


def test_a_dropped_column_becomes_null(address: LakeAddress) -> None:
    """The sink keeps the column, all NULL; a new column of the same name starts anew."""
    seeded(address)
    narrow = TableSchema("7", (ID, NAME))
    receipt = step(address, 2, narrow, (INSERT, 2, 3, "c"))
    assert read(address, "t", "id, name, size") == [(1, "a", None), (2, "b", None), (3, "c", None)]
    assert receipt.cursor is not None
    assert receipt.cursor.copies["main.t"].retired_columns == ("size",)
    again = TableSchema("7", (ID, NAME, Column(4, "size", "VARCHAR", "'?'")))
    receipt = step(address, 3, again, (UPDATE, 3, 1, "a", "large"))
    assert read(address, "t", "id, name, size") == [(1, "a", "large"), (2, "b", "?"), (3, "c", "?")]
    assert receipt.cursor is not None
    assert receipt.cursor.copies["main.t"].retired_columns == ()


def test_a_widened_type_widens(address: LakeAddress) -> None:
    """Old values stay, values that only the wider type holds arrive."""
    seeded(address)
    wide = TableSchema("7", (ID, NAME, Column(3, "size", "BIGINT")))
    step(address, 2, wide, (INSERT, 2, 3, "c", 1 << 40))
    assert read(address, "t") == [(1, "a", 10), (2, "b", 20), (3, "c", 1 << 40)]


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (TableSchema("7", (ID, Column(2, "title", "VARCHAR"), SIZE)), "TC3012"),
        (TableSchema("7", (ID, NAME, Column(3, "size", "VARCHAR"))), "TC3014"),
        (TableSchema("8", FIRST.columns), "TC3011"),
        (TableSchema("7", (*FIRST.columns, Column(4, "n", "INTEGER", "1; DROP TABLE t"))), "TC3013"),
    ],
    ids=["renamed", "other type", "re-created", "not a literal"],
)
def test_what_cannot_be_followed_stops_the_table(
    address: LakeAddress, schema: TableSchema, code: str
) -> None:
    """A rename, a type that does not widen or a re-created table holds the table, untouched; a seed repairs
    it, whatever its columns are by then."""
    seeded(address)
    values = [None if c.name != "id" else 3 for c in schema.columns]
    assert hold_code(step(address, 2, schema, (INSERT, 2, *values))) == code
    assert read(address, "t") == [(1, "a", 10), (2, "b", 20)]
    packet = Packet("main.t", rows([(READ, 2, *values)], schema))
    receipt = applied(
        sink(address).apply(order(2, 2, t=standing(seed(schema=schema), 1, hold=code)), iter([packet]))
    )
    assert hold_code(receipt) is None
    assert read(address, "t", ", ".join(schema.names)) == [tuple(values)]


def test_an_append_table_follows_too(address: LakeAddress) -> None:
    """Added, dropped and widened columns in an append table, beside its control columns."""
    seeded(address, "append")
    schema = TableSchema("7", (ID, Column(3, "size", "BIGINT"), Column(4, "note", "VARCHAR", "'-'")))
    step(address, 2, schema, (UPDATE, 2, 1, 1 << 40, "new"), mode="append")
    assert read(address, "t", "_truecut_op, id, name, size, note") == [
        ("read", 1, None, 10, "-"),
        ("read", 2, None, 20, "-"),
        ("update", 1, None, 1 << 40, "new"),
    ]


def test_columns_change_with_the_data_or_not_at_all(
    address: LakeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDL and data are one transaction: an order that fails before its commit leaves the old columns."""
    seeded(address)
    wider = TableSchema("7", (*FIRST.columns, Column(4, "n", "INTEGER", "5")))
    wanted = order(1, 2, t=changes(schema=wider))
    packet = Packet("main.t", rows([(INSERT, 2, 3, "c", 30, 1)], wider))
    monkeypatch.setenv("TRUECUT_FAILPOINT", "before_sink_commit:error")
    assert sink(address).apply(wanted, iter([packet])).outcome == "failed"
    assert read(address, "t") == [(1, "a", 10), (2, "b", 20)]
    monkeypatch.delenv("TRUECUT_FAILPOINT")
    applied(sink(address).apply(wanted, iter([packet])))
    assert read(address, "t") == [(1, "a", 10, 5), (2, "b", 20, 5), (3, "c", 30, 1)]
