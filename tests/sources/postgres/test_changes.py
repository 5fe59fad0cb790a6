"""Changes of a real PostgreSQL: replayed, they give what the tables hold; nothing is taken for NULL."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.sources.postgres.live import Live
from truecut.model import change
from truecut.sources.postgres import framing
from truecut.sources.postgres.decode import Decoded, decode

BIG = "SELECT string_agg(md5(n::text), '') FROM generate_series(%s, %s + 400) n"  # 12 KB that do not compress


def rows_of(decoded: Decoded, table: str) -> list[dict[str, Any]]:
    """All events of a table."""
    found = [one for one in decoded.tables if one.relation.name.table == table]
    assert all(one.stop is None for one in found)
    return [row for one in found for row in one.rows.to_pylist()]


def briefly(row: dict[str, Any]) -> tuple[Any, ...]:
    """Op, image, absent columns, row before, row after."""
    values = [list(row[image].values()) if row[image] else None for image in (change.BEFORE, change.AFTER)]
    return change.EVENT_NAMES[row[change.OP]], row[change.IMAGE], row[change.UNCHANGED], *values


def replay(events: list[dict[str, Any]], key: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What a plain mirror would hold. An absent value is the mirror's own; after a delete of the key, that of
    the row which the event before took away."""
    held: dict[tuple[Any, ...], dict[str, Any]] = {}
    taken: dict[str, Any] = {}
    for event in events:
        before, after = event[change.BEFORE], event[change.AFTER]
        if event[change.OP] == change.TRUNCATE:
            held.clear()
        elif event[change.OP] == change.DELETE:
            taken = held.pop(tuple(before[name] for name in key))
        else:
            own = tuple(after[name] for name in key)
            names = list(after)
            old = held.get(own, taken)
            held[own] = after | {names[n]: old[names[n]] for n in event[change.UNCHANGED] or ()}
    return held


def test_key_full_and_no_image(database: Live) -> None:
    """Without a changed key there is no row before; a changed key is a delete and an insert; with the full
    identity both rows are whole."""
    database.do("CREATE TABLE k (id int PRIMARY KEY, v text)")
    database.do("CREATE TABLE f (id int PRIMARY KEY, v text)")
    database.do("ALTER TABLE f REPLICA IDENTITY FULL")
    for table in "kf":
        database.do(f"INSERT INTO {table} VALUES (1, NULL)")
        database.do(f"UPDATE {table} SET v = 'x'")
        database.do(f"UPDATE {table} SET id = 2")
        database.do(f"DELETE FROM {table}")
    decoded = database.decoded()
    assert [briefly(row) for row in rows_of(decoded, "k")] == [
        ("insert", change.NO_IMAGE, None, None, [1, None]),
        ("update", change.NO_IMAGE, None, None, [1, "x"]),
        ("delete", change.KEY_IMAGE, None, [1, None], None),
        ("insert", change.NO_IMAGE, None, None, [2, "x"]),
        ("delete", change.KEY_IMAGE, None, [2, None], None),
    ]
    assert [briefly(row) for row in rows_of(decoded, "f")] == [
        ("insert", change.NO_IMAGE, None, None, [1, None]),
        ("update", change.FULL_IMAGE, None, [1, None], [1, "x"]),
        ("delete", change.FULL_IMAGE, None, [1, "x"], None),
        ("insert", change.NO_IMAGE, None, None, [2, "x"]),
        ("delete", change.FULL_IMAGE, None, [2, "x"], None),
    ]


def test_an_index_as_identity(database: Live) -> None:
    """Then its columns are the key, and not the primary one, which the stream does not tell of a delete."""
    database.do("CREATE TABLE i (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int)")
    database.do("ALTER TABLE i REPLICA IDENTITY USING INDEX i_code_key")
    database.do("INSERT INTO i VALUES (1, 'a', 1)")
    database.do("UPDATE i SET id = 2")
    database.do("DELETE FROM i")
    decoded = database.decoded()
    assert decoded.tables[0].relation.key == ("code",)
    assert [briefly(row)[0] for row in rows_of(decoded, "i")] == ["insert", "update", "delete"]
    assert briefly(rows_of(decoded, "i")[-1])[3] == [None, "a", None]


def test_unchanged_toast_is_absent_and_not_null(database: Live) -> None:
    """Where the source did not send a value it is named; where the old row has it, it is filled in."""
    database.do("CREATE TABLE k (id int PRIMARY KEY, big text, n int)")
    database.do("CREATE TABLE f (id int PRIMARY KEY, big text, n int)")
    database.do("ALTER TABLE f REPLICA IDENTITY FULL")
    for table in "kf":
        database.do(f"INSERT INTO {table} SELECT 1, ({BIG}), NULL", (1, 1))
        database.do(f"UPDATE {table} SET n = 1")
        database.do(f"UPDATE {table} SET id = 2")
        database.do(f"UPDATE {table} SET big = NULL")
    (big,) = database.writer.execute(BIG, (1, 1)).fetchone() or ("",)
    decoded = database.decoded()
    assert [briefly(row)[2] for row in rows_of(decoded, "k")] == [None, [1], None, [1], None]
    assert [row[change.UNCHANGED] for row in rows_of(decoded, "f")] == [None] * 5
    afters = [row[change.AFTER]["big"] for row in rows_of(decoded, "f") if row[change.AFTER]]
    assert afters == [big, big, big, None]


def test_a_toasted_key_is_never_absent(database: Live) -> None:
    """A key so long that it is stored apart comes with the old key, although it did not change."""
    database.do("CREATE TABLE long (id text PRIMARY KEY, n int)")
    database.do("ALTER TABLE long ALTER id SET STORAGE EXTERNAL")
    database.do("INSERT INTO long VALUES (repeat('k', 2500), 1)")
    database.do("UPDATE long SET n = 2")
    rows = rows_of(database.decoded(), "long")
    assert [briefly(row)[:3] for row in rows] == [("insert", 0, None), ("update", change.KEY_IMAGE, None)]
    assert rows[1][change.AFTER] == {"id": "k" * 2500, "n": 2}


def test_one_transaction_over_several_tables(database: Live) -> None:
    """`seq` orders the changes of all tables; a truncate is one of each table; a message has its turn."""
    database.do('CREATE TABLE "Ä b" ("c ""d" int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)')
    with database.writer.transaction():
        database.writer.execute('INSERT INTO "Ä b" VALUES (1)')
        database.writer.execute("INSERT INTO b VALUES (1)")
        with database.writer.transaction(force_rollback=True):  # a subtransaction
            database.writer.execute("INSERT INTO b VALUES (2)")
        database.writer.execute("SELECT pg_logical_emit_message(true, 'mark', 'x')")
        database.writer.execute('TRUNCATE "Ä b", b')
        database.writer.execute('INSERT INTO "Ä b" VALUES (2)')
    decoded = database.decoded()
    assert decoded.messages is not None
    events = rows_of(decoded, "Ä b") + rows_of(decoded, "b") + decoded.messages.rows.to_pylist()
    events.sort(key=lambda row: row[change.SEQ])
    names = [change.EVENT_NAMES[row[change.OP]] for row in events]
    assert names == ["insert", "insert", "message", "truncate", "truncate", "insert"]
    assert len({row[change.SEQ] for row in events}) == 6
    assert {row[change.PLACE] for row in events} == set(decoded.transactions.commit_lsns.tolist())
    assert rows_of(decoded, "Ä b")[-1][change.AFTER] == {'c "d': 2}


def test_columns_change_in_the_middle(database: Live) -> None:
    """Each row is read with the columns that it had; one that nobody recorded stops the table there."""
    database.do("CREATE TABLE t (id int PRIMARY KEY, v int)")
    first = database.relations()
    with database.writer.transaction():
        database.writer.execute("INSERT INTO t VALUES (1, 1)")
        database.writer.execute("ALTER TABLE t ALTER v TYPE text, ADD w int[]")
        database.writer.execute("INSERT INTO t VALUES (2, 'two', '{2}')")
    second = database.relations()
    database.do("ALTER TABLE t DROP w")
    database.do("INSERT INTO t VALUES (3, 'three')")
    payload = framing.encode(database.messages())
    (oid,) = first
    decoded = decode([payload], {oid: [first[oid], second[oid], database.relations()[oid]]})
    afters = [row[change.AFTER] for row in rows_of(decoded, "t")]
    # The ALTER writes the table anew: those rows are of no table that is published.
    assert afters == [{"id": 1, "v": 1}, {"id": 2, "v": "two", "w": [2]}, {"id": 3, "v": "three"}]
    stopped = decode([payload], {oid: [first[oid], second[oid]]})
    assert [one.rows.num_rows for one in stopped.tables] == [1, 1, 0]
    assert [one.stop.fault.code if one.stop else None for one in stopped.tables] == [None, None, "TC3051"]


def test_partitions_and_generated_columns(database: Live) -> None:
    """A partition is a table like others; a generated column is in neither stream nor relation."""
    database.do(
        "CREATE TABLE p (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)"
        " PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)"
    )
    database.do("ALTER PUBLICATION all_tables SET (publish_via_partition_root = true)")
    database.do("INSERT INTO p VALUES (1), (11)")
    database.do("UPDATE p SET id = 12 WHERE id = 1")
    decoded = database.decoded()
    assert [one.relation.name.table for one in decoded.tables] == ["p"]
    held = replay(rows_of(decoded, "p"), ("id",))
    assert held == {(11,): {"id": 11}, (12,): {"id": 12}}


_TABLES = {
    "plain": ("(id int, v text, PRIMARY KEY (id))", ("id",)),
    "pair": ("(a int, v text, b text, PRIMARY KEY (b, a))", ("b", "a")),
    "whole": ("(id int PRIMARY KEY, v text)", ("id",)),
}


def _write(database: Live, random: Random, table: str) -> None:
    key = random.randrange(6)
    value = random.choice([None, "", "x", "big"])
    keys = f"a = {key} AND b = 'b{key % 2}'" if table == "pair" else f"id = {key}"
    new = f"{key}, $1, 'b{key % 2}'" if table == "pair" else f"{key}, $1"
    name = "a" if table == "pair" else "id"
    other = random.randrange(10, 10**6)
    text = (
        f"({BIG.replace('%s', str(other))})" if value == "big" else "NULL" if value is None else f"'{value}'"
    )
    statements = [
        f"INSERT INTO {table} VALUES ({new.replace('$1', text)}) ON CONFLICT DO NOTHING",
        f"UPDATE {table} SET v = {text} WHERE {keys}",
        f"UPDATE {table} SET v = v WHERE {keys}",
        f"UPDATE {table} SET {name} = {other} WHERE {keys}",
        f"DELETE FROM {table} WHERE {keys}",
        f"TRUNCATE {table}" if random.random() < 0.1 else f"DELETE FROM {table} WHERE {name} > 9",
    ]
    database.writer.execute(random.choices(statements, weights=[6, 3, 3, 2, 1, 1])[0])


def test_a_random_workload_replayed_is_the_tables(database: Live) -> None:
    """Inserts, updates, changed keys, deletes, truncates, large values, rollbacks, in transactions over three
    tables: replayed, they give what a SELECT gives."""
    random = Random(13)
    for table, (columns, _) in _TABLES.items():
        database.do(f"CREATE TABLE {table} {columns}")
    database.do("ALTER TABLE whole REPLICA IDENTITY FULL")
    for _ in range(80):
        with database.writer.transaction(force_rollback=random.random() < 0.1):
            for _ in range(random.randint(1, 5)):
                _write(database, random, random.choice(list(_TABLES)))
    decoded = database.decoded()
    for table, (_, key) in _TABLES.items():
        cursor = database.writer.execute(f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        assert rows
        assert replay(rows_of(decoded, table), key) == {tuple(row[name] for name in key): row for row in rows}
    assert any(row[change.UNCHANGED] for row in rows_of(decoded, "plain"))
