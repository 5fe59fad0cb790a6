"""Windows over captured changes: what they make of empty tables is what the server says at that place."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import BOTH, Mirror, Piped, frontier, pipeline_document
from truecut.config.kinds import SOURCES
from truecut.errors import TruecutError
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import Source, WindowLimits
from truecut.sources.postgres.messages import lsn_of

_numbers = itertools.count(1)
ORDERS = "public.orders"
LINES = 'public.Lines of "it"'
NONE = {"backfill": "none"}


@pytest.fixture
def piped(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    name = f"windows_{next(_numbers)}"
    conninfo = postgres.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, what text, big text)")
        connection.execute('CREATE TABLE "Lines of ""it""" (a int, b text, v int, PRIMARY KEY (b, a))')
        connection.execute("ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
    document = pipeline_document(name, conninfo, [{"name": "public.*", "exclude": ["public.tmp_*"], **NONE}])
    made = Piped(tmp_path, conninfo, document)
    yield made
    made.close()


def place(lsn: str) -> Position:
    return Position(1, SOURCES["postgres"].place(lsn))


def work(rng: random.Random, sessions: list[psycopg.Connection[Any]], steps: int) -> None:
    """Transactions that overlap: each session has keys of its own, so that none waits for another."""
    for _ in range(steps):
        number = rng.randrange(len(sessions))
        one, key = sessions[number], number * 1000 + rng.randrange(12)
        match rng.randrange(9):
            case 0 | 1:
                one.execute(
                    "INSERT INTO orders VALUES (%s, 'new', repeat(%s, 3000)) ON CONFLICT DO NOTHING",
                    (key, str(rng.randrange(10))),
                )
            case 2:
                one.execute("UPDATE orders SET what = %s WHERE id = %s", (str(rng.random()), key))
            case 3:
                one.execute(
                    "UPDATE orders SET id = %s WHERE id = %s"
                    " AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
                    (key + 500, key, key + 500),
                )
            case 4:
                one.execute("DELETE FROM orders WHERE id = %s", (key,))
            case 5:
                one.execute(
                    'INSERT INTO "Lines of ""it""" VALUES (%s, %s, 1) ON CONFLICT (b, a) DO UPDATE SET v = 7',
                    (key, "b"),
                )
            case 6:
                one.execute("SAVEPOINT s")
                one.execute("DELETE FROM orders WHERE id < %s AND id >= %s", (key, number * 1000))
                one.execute("ROLLBACK TO s" if rng.random() < 0.5 else "RELEASE s")
            case 7:
                one.commit()
            case 8:
                one.rollback() if rng.random() < 0.3 else one.commit()


def assert_same(mirror: Mirror, session: psycopg.Connection[Any]) -> None:
    assert mirror.content(ORDERS, ("id", "what", "big")) == sorted(
        session.execute("SELECT id, what, big FROM orders").fetchall(), key=repr
    )
    assert mirror.content(LINES, ("a", "b", "v")) == sorted(
        session.execute('SELECT a, b, v FROM "Lines of ""it"""').fetchall(), key=repr
    )


def follow(piped: Piped, source: Source, mirror: Mirror, after: Position, upto: Position, **how: Any) -> None:
    """Window by window; each ends behind the one before."""
    while after < upto:
        window = piped.window(source, after, upto, **how)
        assert after < window.upto <= upto
        assert (window.faults, window.lost) == ({}, frozenset())
        mirror.apply(pickle.loads(pickle.dumps(window)))
        after = window.upto


def test_what_windows_tell_is_the_source_at_every_frontier(piped: Piped) -> None:
    """Overlapping transactions, savepoints, changed keys, values that are not sent, a truncate: applied up to
    the consistent point of a slot they give what its snapshot shows, to the last byte; whatever committed
    behind it is not in it, and the windows go on from there."""
    rng = random.Random(3)
    source = piped.source()
    at = piped.begin(source)
    mirror = Mirror({ORDERS: ("id",), LINES: ("b", "a")})
    for round_ in range(3):
        sessions = [psycopg.connect(piped.conninfo) for _ in range(3)]
        work(rng, sessions, 80)
        for one in sessions:  # a slot waits for those that are under way
            one.commit()
        if round_ == 1:
            with piped.connect() as connection:
                connection.execute('TRUNCATE orders, "Lines of ""it"""')
            work(rng, sessions, 30)
            for one in sessions:
                one.commit()
        with frontier(piped.conninfo) as (lsn, session):
            work(rng, sessions, 30)
            for one in sessions:
                one.commit()
                one.close()
            piped.capture()
            assert source.observe().head >= place(lsn)
            small = WindowLimits(rows_max=rng.choice([1, 7, 10_000]), bytes_max=1 << 30)
            follow(piped, source, mirror, at, place(lsn), limits=small, modes=BOTH)
            assert_same(mirror, session)
            at = place(lsn)
    head = source.observe().head
    follow(piped, piped.source(), mirror, at, head)  # a new handle knows nothing, and needs not to
    with piped.connect() as session:
        assert_same(mirror, session)


def test_a_commit_that_begins_at_a_place_is_not_before_it(piped: Piped) -> None:
    """An LSN of the server means everything before it. The place of a transaction is where its commit record
    begins: a window up to that LSN's place lacks it, one up to the next place has it."""
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        connection.execute("INSERT INTO orders VALUES (2, 'a', 'b')")
    piped.capture()
    whole = piped.window(source, at, source.observe().head)
    places = [row[change.PLACE] for task in whole.tasks for _, b in task.read() for row in b.to_pylist()]
    assert len(places) == 2
    for count, upto in enumerate([places[0] - 1, places[0], places[1] - 1, places[1]]):
        window = piped.window(source, at, Position(1, upto))
        rows = [row for task in window.tasks for _, b in task.read() for row in b.to_pylist()]
        assert (window.upto.place, len(rows)) == (upto, (count + 1) // 2)
    lsn = f"{places[1] >> 32:X}/{places[1] & 0xFFFFFFFF:X}"
    assert lsn_of(lsn) == places[1]
    window = piped.window(source, at, place(lsn))
    assert sum(batch.num_rows for task in window.tasks for _, batch in task.read()) == 1


def test_a_window_ends_before_its_tables_change(piped: Piped) -> None:
    """Columns are added with and without a default, renamed and dropped, also before anything of it was
    captured: each window has one schema of each table, with the lasting number of each column."""
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        for statement in (
            "INSERT INTO orders VALUES (1, 'a', 'b')",
            "ALTER TABLE orders ADD COLUMN n int DEFAULT 5",
            "INSERT INTO orders VALUES (2, 'a', 'b', 6)",
            'INSERT INTO "Lines of ""it""" VALUES (1, \'b\', 2)',
            "ALTER TABLE orders RENAME COLUMN what TO why",
            "UPDATE orders SET why = 'c'",
        ):
            connection.execute(statement)
    piped.capture()
    head = source.observe().head
    shapes = []
    while at < head:
        window = piped.window(source, at, head)
        assert not window.faults
        at = window.upto
        orders = window.schemas.get(TableName("public", "orders"))
        if orders is not None:
            shapes.append([(column.id, column.name, column.initial) for column in orders.columns])
    assert shapes == [
        [(1, "id", None), (2, "what", None), (3, "big", None)],
        [(1, "id", None), (2, "what", None), (3, "big", None), (4, "n", "'5'")],
        [(1, "id", None), (2, "why", None), (3, "big", None), (4, "n", "'5'")],
    ]


def test_two_schemas_in_one_transaction_are_told_in_the_later_ones_columns(piped: Piped) -> None:
    """Rows that were written before the column came have NULL there, as at the source; where they got a value
    that the log does not have, the table stops, and the other one goes on."""
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        connection.execute(
            "BEGIN; INSERT INTO orders VALUES (1, 'a', 'b'); ALTER TABLE orders ADD COLUMN n int; "
            "INSERT INTO orders VALUES (2, 'a', 'b', 9); COMMIT"
        )
    piped.capture()
    mirror = Mirror({ORDERS: ("id",), LINES: ("b", "a")})
    follow(piped, source, mirror, at, source.observe().head)
    assert mirror.content(ORDERS, ("id", "n")) == [(1, None), (2, 9)]
    at = source.observe().head
    with piped.connect() as connection:
        connection.execute(
            "BEGIN; INSERT INTO orders VALUES (3, 'a', 'b', 1); "
            "ALTER TABLE orders ADD COLUMN m int DEFAULT random() * 1000; "
            "INSERT INTO orders VALUES (4, 'a', 'b', 9, 9); "
            'INSERT INTO "Lines of ""it""" VALUES (1, \'b\', 2); COMMIT'
        )
    piped.capture()
    follow(piped, source, mirror, at, source.observe().head)
    assert mirror.stopped == {ORDERS: "TC3052"}
    assert mirror.content(LINES, ("a", "b", "v")) == [(1, "b", 2)]


def test_tables_without_what_delivery_needs_are_held_with_the_remedy(
    piped: Piped,
) -> None:
    """A route that deletes do not tell, a mirror without a key; REPLICA IDENTITY FULL mends both."""
    with piped.connect() as connection:
        connection.execute("CREATE TABLE keyless (v int)")
    piped.document["spec"]["tables"] = [
        {"name": ORDERS, "route_by": "what", **NONE},
        {"name": "public.keyless", **NONE},
    ]
    piped.document["spec"]["sinks"][0]["route"] = "x"
    piped.document["spec"]["tables"][1]["broadcast"] = True
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b'); INSERT INTO keyless VALUES (1)")
    piped.capture()
    window = piped.window(source, at, source.observe().head)
    assert {str(name): fault.code for name, fault in window.faults.items()} == {
        ORDERS: "TC2124",
        "public.keyless": "TC2123",
    }
    assert all("REPLICA IDENTITY FULL" in fault.fix for fault in window.faults.values())
    with piped.connect() as connection:
        for table in ("orders", "keyless"):
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
        connection.execute("UPDATE orders SET what = 'x'")
    piped.capture()
    after = window.upto
    window = piped.window(source, after, source.observe().head)
    assert not window.faults
    rows = [row for task in window.tasks for _, batch in task.read() for row in batch.to_pylist()]
    assert [(row[change.OP], row["what"]) for row in rows] == [(change.DELETE, "a"), (change.INSERT, "x")]


def test_what_was_never_captured_is_waited_for_and_what_is_gone_is_a_gap(piped: Piped) -> None:
    """Before the first capture a look is refused, and may be tried again; behind a journal that begins later
    than a table stands, the table is lost, and says so."""
    source = piped.source()
    with pytest.raises(TruecutError, match="TC2117"):
        source.observe()
    at = piped.begin(source)
    window = piped.window(source, Position(1, at.place - 100_000), at)
    assert set(window.lost) == set(window.faults) == set(piped.reads(BOTH))
    missing = {"name": "public.nowhere", "key": ["id"], **NONE}
    piped.document["spec"]["tables"] = [missing]
    seen = piped.source().observe()
    assert list(map(str, seen.unready)) == ["public.nowhere"]
