"""The laws of apply, on every kind of catalog; content is read back by plain duckdb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sinks.conftest import MakeLake
from tests.sinks.world import (
    MAINTENANCE,
    applied,
    changes,
    cursor_of,
    opened,
    order,
    packets,
    persisted,
    position,
    read,
    rows,
    seed,
    sink,
    standing,
    tenant,
)
from truecut.errors import Retry
from truecut.lake import LakeAddress, attach_sql, connect
from truecut.model.change import DELETE, INSERT, READ, TRUNCATE, UPDATE
from truecut.model.cursor import CopyState, Version
from truecut.model.order import Counts, Receipt
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet
from truecut.testing.orders import ABSENT, in_transactions

SEED = [(READ, 4, 1, "a"), (READ, 4, 2, "b"), (READ, 4, 3, "c")]


def seeded(address: LakeAddress) -> None:
    """Recovered with token 1, table `t` seeded at 4 with three rows."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))


def copy_of(receipt: Receipt, table: str = "t") -> CopyState:
    """What the sink told of one table."""
    assert receipt.cursor is not None
    return receipt.cursor.copies[f"main.{table}"]


def test_recover_creates_the_lake_and_reports_an_empty_cursor(address: LakeAddress) -> None:
    """A sink that does not exist yet is created, folders included, and holds a cursor row of ours."""
    receipt = sink(address).recover(epoch=3, token=5)
    assert (receipt.outcome, receipt.epoch) == ("applied", 3)
    assert receipt.cursor is not None
    assert (receipt.cursor.position, receipt.cursor.token, receipt.cursor.copies) == (None, 5, {})
    assert cursor_of(address) == (None, 5)


def test_a_catalog_file_that_the_tenant_made_is_taken_as_it_is(make_lake: MakeLake) -> None:
    """Ours have small blocks; the tenant's own have DuckDB's."""
    ours, theirs = make_lake("duckdb"), make_lake("duckdb")
    Path(theirs.target.reveal()).parent.mkdir(parents=True, exist_ok=True)
    with connect() as tenant_itself:
        tenant_itself.execute(attach_sql(theirs, "lake", create=True))
    for address in (ours, theirs):
        seeded(address)
        assert read(address, "t") == [(1, "a"), (2, "b"), (3, "c")]
    assert Path(ours.target.reveal()).stat().st_size < 1 << 20 < Path(theirs.target.reveal()).stat().st_size


def test_the_receipt_names_the_snapshot_it_made(address: LakeAddress) -> None:
    """sink_version is the lake's own id of the commit: reading the table AT it gives the order's rows."""
    seeded(address)
    first = applied(sink(address).apply(order(4, 5, t=changes()), packets(t=[(DELETE, 5, 2, "b")])))
    second = applied(sink(address).apply(order(5, 6, t=changes()), packets(t=[(DELETE, 6, 1, "a")])))
    assert read(address, f"t AT (VERSION => {first.sink_version})", "id") == [(1,), (3,)]
    assert read(address, f"t AT (VERSION => {second.sink_version})", "id") == [(3,)]


def test_composite_and_text_keys_match_whole(address: LakeAddress) -> None:
    """A key of several columns is one key: rows that share a part of it stay."""
    schema = TableSchema(
        "8", (Column(1, "k", "VARCHAR"), Column(2, "n", "INTEGER"), Column(3, "v", "VARCHAR"))
    )
    pair = ("k", "n")
    applied(sink(address).recover(epoch=1, token=1))
    start = rows([(READ, 1, "a", 1, "x"), (READ, 1, "a", 2, "y"), (READ, 1, "ü" * 300, 1, "z")], schema)
    applied(
        sink(address).apply(order(None, 1, t=seed(schema=schema, key=pair)), iter([Packet("main.t", start)]))
    )
    step = rows([(UPDATE, 2, "a", 2, "Y"), (DELETE, 2, "ü" * 300, 1, "z"), (INSERT, 2, "b", 1, "n")], schema)
    applied(
        sink(address).apply(order(1, 2, t=changes(schema=schema, key=pair)), iter([Packet("main.t", step)]))
    )
    assert read(address, "t") == [("a", 1, "x"), ("a", 2, "Y"), ("b", 1, "n")]


def test_two_pipelines_share_a_lake(address: LakeAddress) -> None:
    """Each pipeline has its own cursor and fence; another's takeover touches neither."""
    seeded(address)
    other = sink(address, pipeline="other")
    applied(other.recover(epoch=1, token=40))
    applied(other.apply(order(None, 2, token=40, u=seed()), packets(u=[(READ, 2, 8, "o")])))
    applied(sink(address).apply(order(4, 5, t=changes()), packets(t=[(DELETE, 5, 1, "a")])))
    assert cursor_of(address) == (str(position(5)), 1)
    assert cursor_of(address, "other") == (str(position(2)), 40)
    assert (read(address, "t"), read(address, "u")) == ([(2, "b"), (3, "c")], [(8, "o")])


@pytest.mark.parametrize(
    ("window", "code"),
    [
        ([(INSERT, 5, 1, "twice")], "TC3023"),
        ([(UPDATE, 5, 9, "lost")], "TC3024"),
        ([(DELETE, 5, 9, "lost")], "TC3024"),
        ([(INSERT, 5, 1, "twice"), (UPDATE, 5, 9, "lost")], "TC3024"),
        ([(INSERT, 5, 1, "twice"), (DELETE, 6, 1, "twice")], "TC3023"),
        ([(INSERT, 5, 9, "n"), (INSERT, 6, 9, "n")], "TC3022"),
        ([(DELETE, 5, 1, "a"), (UPDATE, 6, 1, "a")], "TC3022"),
        ([(INSERT, 5, None, "n")], "TC3021"),
    ],
)
def test_a_contradiction_stops_that_table_alone(
    address: LakeAddress, window: list[tuple[object, ...]], code: str
) -> None:
    """Key uniqueness: an insert of a live key, a change of an absent one or a NULL key holds the table where
    it stands, untouched, without a value in the message; the other tables of the order commit."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    receipt = applied(
        sink(address).apply(order(4, 6, t=changes(), u=changes()), packets(t=window, u=[(DELETE, 6, 1, "a")]))
    )
    assert receipt.cursor is not None
    stopped = receipt.cursor.copies["main.t"]
    hold = stopped.hold
    assert hold is not None
    assert (stopped.at, hold.code) == (position(4), code)
    assert not any(value in hold.message for value in ("twice", "lost"))
    assert receipt.cursor.copies["main.u"].hold is None
    assert read(address, "t") == [(1, "a"), (2, "b"), (3, "c")]
    assert read(address, "u") == [(2, "b"), (3, "c")]
    assert sink(address).recover(epoch=1, token=1).cursor == receipt.cursor


def test_a_copy_that_began_empty_says_so_when_it_lacks_a_row(address: LakeAddress) -> None:
    """Nobody need have taken what it never had; a row that it was never given is somebody else's still."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(), u=seed()), packets(u=SEED)))
    tenant(address, "INSERT INTO lake.main.u VALUES (1, 'theirs')")
    follow = order(4, 5, t=replace(changes(), began_empty=True), u=replace(changes(), began_empty=True))
    change = [(UPDATE, 5, 1, "lost")]
    receipt = applied(sink(address).apply(follow, packets(t=change, u=change)))
    never, doubled = copy_of(receipt, "t").hold, copy_of(receipt, "u").hold
    assert never is not None
    assert doubled is not None
    assert (never.code, "`backfill: none`" in never.message, doubled.code) == ("TC3040", True, "TC3024")
    assert (read(address, "t"), "lost" in never.message) == ([], False)


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_seed_that_ends_where_its_table_stands_is_carried_out(address: LakeAddress, mode: Mode) -> None:
    """Accepted settings, nothing new at the source: the seed is a new edition, never `already`; once it is
    there, it is."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(mode)), packets(t=SEED[:1])))
    again = order(4, 4, t=seed(mode))
    receipt = applied(sink(address).apply(again, packets(t=SEED[1:])))
    assert copy_of(receipt).version == Version(2, position(4))
    assert sink(address).apply(again, packets(t=SEED[1:])).outcome == "already"
    expected = [(2, "b"), (3, "c")] if mode == "mirror" else [(1, "a"), (2, "b"), (3, "c")]
    assert read(address, "t", "id, value") == expected
    other = order(4, 4, edition=2, t=seed(mode))
    wanted = replace(other.tables["main.t"], fingerprint="other settings")
    applied(sink(address).apply(replace(other, tables={"main.t": wanted}), packets(t=SEED[2:])))
    assert read(address, "t", "id, value") == [(3, "c")], "rows of the old settings are gone"


def test_a_seed_with_a_key_twice_is_not_written(address: LakeAddress) -> None:
    """Key uniqueness of a seed: the table is held and stays as it was; the others are seeded."""
    applied(sink(address).recover(epoch=1, token=1))
    twice = [*SEED, (READ, 4, 1, "again")]
    receipt = applied(sink(address).apply(order(None, 4, t=seed(), u=seed()), packets(t=twice, u=SEED)))
    assert copy_of(receipt).version == Version(0, position(0), "TC3020")
    assert read(address, "u", "id") == [(1,), (2,), (3,)]
    repaired = standing(seed(), 0, edition=0, hold="TC3020", answers=7)
    applied(sink(address).apply(order(4, 5, t=repaired, u=changes()), packets(t=SEED)))
    assert read(address, "t", "id") == [(1,), (2,), (3,)]


def test_append_keeps_every_change(address: LakeAddress) -> None:
    """One row for each change, with op, position, sequence and time; deletes with their old values."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed("append")), packets(t=SEED[:1])))
    window = [(UPDATE, 5, 1, "a1"), (UPDATE, 6, 1, "a2"), (DELETE, 6, 2, "old")]
    receipt = applied(sink(address).apply(order(4, 6, t=changes("append")), packets(t=window)))
    assert receipt.counts == {"main.t": Counts(puts=3)}
    columns = (
        "_truecut_position, _truecut_seq, _truecut_op, id, value, _truecut_transaction, "
        "_truecut_committed_at::VARCHAR, _truecut_applied_at > '2026-01-01', _truecut_unchanged"
    )
    time, places = "2026-01-01 00:00:00+00", [str(position(place)) for place in (4, 5, 6)]
    assert read(address, "t", columns) == [
        (places[0], "0000000000000000", "read", 1, "a", places[0], time, True, None),
        (places[1], "0000000000000000", "update", 1, "a1", places[1], time, True, None),
        (places[2], "0000000000000001", "update", 1, "a2", places[2], time, True, None),
        (places[2], "0000000000000002", "delete", 2, "old", places[2], time, True, None),
    ]


def test_a_table_that_we_did_not_make_is_refused(address: LakeAddress) -> None:
    """`existing: refuse` leaves a foreign table alone and says how to go on; `replace` overwrites it."""
    applied(sink(address).recover(epoch=1, token=1))
    tenant(address, "CREATE TABLE lake.main.t (theirs INTEGER)", "INSERT INTO lake.main.t VALUES (1)")
    receipt = sink(address).apply(order(None, 4, t=seed()), packets(t=SEED))
    assert receipt.outcome == "failed"
    assert receipt.fault is not None
    assert (receipt.fault.code, receipt.fault.retry) == ("TC4013", Retry.NOT_RETRYABLE)
    assert "existing: replace" in receipt.fault.fix
    assert (read(address, "t"), cursor_of(address)) == ([(1,)], (None, 1))
    applied(sink(address, existing="replace").apply(order(None, 4, t=seed()), packets(t=SEED)))
    assert read(address, "t") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(("first", "then"), [("mirror", "append"), ("append", "mirror")])
def test_a_change_of_mode_seeds_the_table_anew(address: LakeAddress, first: Mode, then: Mode) -> None:
    """A table of ours in the other mode is replaced by the seed, never mixed."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(first)), packets(t=SEED)))
    applied(sink(address).apply(order(4, 4, t=seed(then)), packets(t=SEED)))
    assert read(address, "t", "id, value") == [(1, "a"), (2, "b"), (3, "c")]
    assert len(read(address, "t")[0]) == (2 if then == "mirror" else 9)


def test_the_tenants_maintenance_changes_nothing(address: LakeAddress) -> None:
    """Flush, merge, rewrite, expiry and clean-up between orders: cursor, fence and content stay right."""
    seeded(address)
    for place in range(5, 10):
        tenant(address, *MAINTENANCE)
        window = [(UPDATE, place, 1, f"v{place}"), (INSERT, place, place, "n")]
        applied(sink(address).apply(order(place - 1, place, t=changes()), packets(t=window)))
    tenant(address, *MAINTENANCE)
    assert sink(address).apply(order(8, 9, t=changes(), token=0), iter([])).fenced_by == 1
    assert cursor_of(address) == (str(position(9)), 1)
    assert read(address, "t") == [(1, "v9"), (2, "b"), (3, "c"), *[(n, "n") for n in range(5, 10)]]


def test_old_cursor_rows_are_thinned_out(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor table stays small however many orders commit, and the newest row is never lost. The row of
    another pipeline, older than all of them, is left alone."""
    monkeypatch.setattr("truecut.sinks.ducklake.cursor.ROWS_MAX", 4)
    applied(sink(address, pipeline="theirs").recover(epoch=1, token=9))
    seeded(address)
    for place in range(5, 15):
        applied(sink(address).apply(order(place - 1, place, t=persisted()), iter([])))
    assert len(read_cursor_rows(address)) <= 5
    assert cursor_of(address) == (str(position(14)), 1)
    applied(sink(address).recover(epoch=2, token=2))
    assert set(read_cursor_rows(address)) == {2}
    assert read_cursor_rows(address, "theirs") == [9]


def read_cursor_rows(address: LakeAddress, pipeline: str = "tenants") -> list[int]:
    """The token of each."""
    with opened(address) as connection:
        found = connection.execute("SELECT token FROM lake._truecut.cursor WHERE pipeline = ?", [pipeline])
        return [token for (token,) in found.fetchall()]


def test_large_windows_and_seeds_spill(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond the memory bound go to disk and arrive all the same."""
    monkeypatch.setattr("truecut.sinks.ducklake.stage.MEMORY_BYTES_MAX", 1000)
    applied(sink(address).recover(epoch=1, token=1))
    parts = [[(READ, 4, n, f"v{n}") for n in range(start, start + 100)] for start in range(0, 1000, 100)]
    found = (Packet("main.t", rows(part)) for part in parts)
    applied(sink(address).apply(order(None, 4, t=seed()), found))
    assert read(address, "t") == [(n, f"v{n}") for n in range(1000)]
    found = (Packet("main.t", rows([(UPDATE, 5, n, "w") for _, _, n, _ in part])) for part in parts)
    applied(sink(address).apply(order(4, 5, t=changes()), found))
    assert read(address, "t") == [(n, "w") for n in range(1000)]


def test_large_windows_of_events_spill(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for packets of which only some have values that were not sent, or names of transactions."""
    monkeypatch.setattr("truecut.sinks.ducklake.stage.MEMORY_BYTES_MAX", 1000)
    address, ids = make_lake("sqlite"), range(100)
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(), log=seed("append")), iter([])))
    parts = [
        rows([(INSERT, 5, 7, "void"), (TRUNCATE, 6), *((INSERT, 7, n, f"v{n}") for n in ids)]),
        rows([(UPDATE, 8, n, ABSENT) for n in ids]),
        in_transactions(rows([(UPDATE, 9, n, ABSENT if n % 2 else "w") for n in ids]), ["501"] * 100),
        rows([(DELETE, 10, n) for n in ids[50:]]),
    ]
    given = [Packet(f"main.{table}", part) for table in ("t", "log") for part in reversed(parts)]
    both = order(4, 10, t=changes(), log=changes("append"))
    assert copy_of(applied(sink(address).apply(both, iter(given)))).hold is None
    assert read(address, "t") == [(n, f"v{n}" if n % 2 else "w") for n in ids[:50]]
    marks = "_truecut_op, _truecut_transaction, _truecut_unchanged, count(*)"
    with opened(address) as connection:
        found = connection.execute(f"SELECT {marks} FROM lake.main.log GROUP BY ALL ORDER BY ALL").fetchall()
    assert found == [
        ("delete", str(position(10)), None, 50),
        ("insert", str(position(5)), None, 1),
        ("insert", str(position(7)), None, 100),
        ("truncate", str(position(6)), None, 1),
        ("update", str(position(8)), ["value"], 100),
        ("update", "501", ["value"], 50),
        ("update", "501", None, 50),
    ]


def test_columns_that_differ_in_case_alone_hold_the_table(make_lake: MakeLake) -> None:
    """A lake would take them for one: that table is held with the reason, the other one goes on."""
    address = make_lake("sqlite")
    schema = TableSchema(
        "7", (Column(1, "id", "BIGINT"), Column(2, "v", "VARCHAR"), Column(3, "V", "VARCHAR"))
    )
    applied(sink(address).recover(epoch=1, token=1))
    both = order(None, 4, t=seed(schema=schema), u=seed())
    receipt = applied(sink(address).apply(both, packets(u=SEED)))
    hold = copy_of(receipt).hold
    assert hold is not None
    assert hold.code == "TC3039"
    assert read(address, "u") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_broken_by_the_tenant_stops_alone(address: LakeAddress) -> None:
    """A table that its tenant dropped or altered is held; a seed repairs it."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(), u=seed()), packets(t=SEED, u=SEED)))
    tenant(address, "DROP TABLE lake.main.t", "ALTER TABLE lake.main.u DROP COLUMN value")
    window = [(INSERT, 5, 9, "n")]
    receipt = applied(sink(address).apply(order(4, 5, t=changes(), u=changes()), packets(t=window, u=window)))
    assert receipt.cursor is not None
    holds = {table: copy.hold.code if copy.hold else None for table, copy in receipt.cursor.copies.items()}
    assert holds == {"main.t": "TC3016", "main.u": "TC3016"}
    repaired = standing(seed(), 4, hold="TC3016", answers=7)
    applied(sink(address).apply(order(5, 5, t=repaired, u=repaired), packets(t=SEED, u=SEED)))
    assert read(address, "t") == read(address, "u") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_key_that_the_tenant_has_doubled_is_noticed(address: LakeAddress) -> None:
    """More rows than keys is a contradiction as fewer are: the table is held, both rows stay."""
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
    tenant(address, "INSERT INTO lake.main.t VALUES (1, 'theirs')")
    receipt = applied(sink(address).apply(order(4, 5, t=changes()), packets(t=[(UPDATE, 5, 1, "b")])))
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.t"].hold
    assert hold is not None
    assert hold.code == "TC3024"
    assert read(address, "t")[:2] == [(1, "a"), (1, "theirs")]


def test_kept_lakes_see_what_others_commit(address: LakeAddress) -> None:
    """A kept attachment never answers from memory once anybody else has committed."""
    seeded(address)
    tenant(address, "DELETE FROM lake.main.t WHERE id = 1")
    receipt = applied(sink(address).apply(order(4, 5, t=changes()), packets(t=[(UPDATE, 5, 1, "x")])))
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.t"].hold
    assert hold is not None
    assert hold.code == "TC3024"
    tenant(address, "UPDATE lake._truecut.cursor SET token = 9")
    assert sink(address).apply(order(5, 6), iter([])).fenced_by == 9
