"""Windows over captured changes: what they make of empty tables is what the server says at that place."""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres_server import ON_BOTH, PostgresServer
from tests.sources.postgres.piped import BOTH, MIRROR, Mirror, Piped, frontier, pipeline_document
from truecut.config.kinds import SOURCES
from truecut.errors import Fault, TruecutError
from truecut.journal.local import remove_log
from truecut.model import change
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.capture_start import drop_at_source
from truecut.sources.contract import Source, TableFacts, TableRead, WindowLimits
from truecut.sources.postgres.messages import lsn_of
from truecut.sources.registry import survey_source

_numbers = itertools.count(1)
ORDERS = "public.orders"
LINES = 'public.Lines of "it"'
NONE = {"backfill": "none"}


@pytest.fixture(params=ON_BOTH)
def piped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Piped]:
    server: PostgresServer = request.getfixturevalue("postgres" if request.param == 18 else "postgres_16")
    name = f"windows_{next(_numbers)}"
    conninfo = server.create_database(name)
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


def large(one: psycopg.Connection[Any]) -> None:
    """A transaction of several records, over both tables, that changes its own rows again."""
    one.execute("INSERT INTO orders SELECT n, 'l', repeat('y', 900) FROM generate_series(5000, 6200) n")
    one.execute('INSERT INTO "Lines of ""it""" SELECT n, \'l\', n FROM generate_series(5000, 5100) n')
    one.execute("UPDATE orders SET what = 'm' WHERE id BETWEEN 5500 AND 6100")
    one.commit()


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
        if round_ == 0:
            large(sessions[0])
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
    head = source.observe().head
    for after, left in zip([places[0] - 1, places[0], places[1] - 1, places[1]], [2, 1, 1, 0], strict=True):
        window = piped.window(source, Position(1, after), head)
        assert sum(batch.num_rows for task in window.tasks for _, batch in task.read()) == left
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
    """Rows that were written before the column came have there what it began with, as at the source; where
    they got a value that the log does not have, the table stops, and the other one goes on."""
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        connection.execute(
            "BEGIN; INSERT INTO orders VALUES (1, 'a', 'b'); "
            "INSERT INTO orders SELECT n, 'l', repeat('y', 900) FROM generate_series(5000, 6200) n; "
            "ALTER TABLE orders ADD COLUMN n int; INSERT INTO orders VALUES (2, 'a', 'b', 9); "
            "DELETE FROM orders WHERE id >= 5000; ALTER TABLE orders ADD COLUMN m numeric(9,2) DEFAULT 7.5; "
            "ALTER TABLE orders ADD COLUMN o int[] DEFAULT '{1,2}'; INSERT INTO orders VALUES (3); COMMIT"
        )
    piped.capture()
    mirror = Mirror({ORDERS: ("id",), LINES: ("b", "a")})
    follow(piped, source, mirror, at, source.observe().head)
    with piped.connect() as connection:
        rows = connection.execute("SELECT id, n, m, o FROM orders ORDER BY id").fetchall()
    assert rows[0] == (1, None, Decimal("7.50"), [1, 2])
    assert mirror.content(ORDERS, ("id", "n", "m", "o")) == rows
    at = source.observe().head
    with piped.connect() as connection:
        connection.execute(
            "BEGIN; INSERT INTO orders VALUES (4, 'a', 'b', 1); "
            "ALTER TABLE orders ADD COLUMN r int DEFAULT random() * 1000; "
            "INSERT INTO orders VALUES (5, 'a', 'b', 9); "
            'INSERT INTO "Lines of ""it""" VALUES (1, \'b\', 2); COMMIT'
        )
    piped.capture()
    follow(piped, source, mirror, at, source.observe().head)
    assert mirror.stopped == {ORDERS: "TC3052"}
    assert mirror.content(LINES, ("a", "b", "v")) == [(1, "b", 2)]


def test_tables_at_different_places_end_at_one_that_none_has_passed(piped: Piped) -> None:
    """A window never ends before `not_before`, nor before where one of its tables stands: a change of columns
    before that does not cut it, and rows are told in the columns that the table has at its end."""
    source = piped.source()
    start = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        connection.execute("ALTER TABLE orders ADD COLUMN n int DEFAULT 5")
        connection.execute("INSERT INTO orders VALUES (2, 'a', 'b', 6)")
        connection.execute('INSERT INTO "Lines of ""it""" VALUES (1, \'b\', 2)')
    piped.capture()
    later = source.observe().head
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (3, 'c', 'd', 7)")
        connection.execute('INSERT INTO "Lines of ""it""" VALUES (2, \'b\', 3)')
    piped.capture()
    head = source.observe().head
    reads = piped.reads(MIRROR)
    stands = {TableName("public", "orders"): start, TableName.parse(LINES): later}
    places = {name: (read, stands[name], modes) for name, (read, modes) in reads.items()}
    one_row = WindowLimits(rows_max=1, bytes_max=1 << 30)
    window = source.plan_window(places, upto_max=head, limits=one_row, parallelism=2)
    assert window.upto >= later
    orders = window.schemas[TableName("public", "orders")]
    assert [column.name for column in orders.columns] == ["id", "what", "big", "n"]
    mirror = Mirror({ORDERS: ("id",), LINES: ("b", "a")})
    mirror.apply(window)
    assert mirror.content(ORDERS, ("id", "n"))[:2] == [(1, 5), (2, 6)]
    assert (1, "b", 2) not in mirror.content(LINES, ("a", "b", "v")), "it stands behind that"
    least = WindowLimits(rows_max=1, bytes_max=1 << 30, not_before=later)
    assert piped.window(piped.source_seen(), start, head, least).upto >= later


@pytest.mark.parametrize("later_changes", [False, True], ids=["nothing behind", "changes behind"])
@pytest.mark.parametrize("how", ["started again", "running", "within one append"])
def test_a_table_that_stands_further_on_keeps_the_columns_it_has_there(
    piped: Piped, how: str, later_changes: bool
) -> None:
    """One of two stands behind a change of its columns, the other before it: what the first one looked like
    before its own place is nothing to it. It is told in the columns that it has, and nothing moves back. Also
    where the journal shows the columns of before last, because it was copied with those it has."""
    source = piped.source()
    start = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        connection.execute('INSERT INTO "Lines of ""it""" VALUES (1, \'b\', 2)')
        if how == "within one append":
            connection.execute("INSERT INTO orders VALUES (2, 'a', 'b')")
            connection.execute("ALTER TABLE orders ADD COLUMN n int")
            later = place(
                (connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or "")[0]
            )
        else:
            connection.execute("ALTER TABLE orders ADD COLUMN n int")
            connection.execute("INSERT INTO orders VALUES (2, 'a', 'b', 6)")
            piped.capture()
            later = source.observe().head
            follow(piped, source, Mirror({ORDERS: ("id",), LINES: ("b", "a")}), start, later)
        if later_changes:
            connection.execute("UPDATE orders SET n = 7")
        connection.execute('INSERT INTO "Lines of ""it""" VALUES (2, \'b\', 3)')
    piped.capture()
    source = source if how == "running" else piped.source()
    head = source.observe().head
    stands = {TableName("public", "orders"): later, TableName.parse(LINES): start}
    places = {name: (read, stands[name], modes) for name, (read, modes) in piped.reads(MIRROR).items()}
    one_row = WindowLimits(rows_max=1, bytes_max=1 << 30)
    told: list[list[str]] = []
    rows: list[tuple[Any, ...]] = []
    while min(place for _, place, _ in places.values()) < head:
        window = source.plan_window(places, upto_max=head, limits=one_row, parallelism=1)
        assert not window.faults
        assert window.upto >= later
        orders = window.schemas.get(TableName("public", "orders"))
        told += [[column.name for column in orders.columns]] if orders is not None else []
        for task in window.tasks:
            for name, batch in task.read():
                rows += [(str(name), row.get("id"), row.get("n")) for row in batch.to_pylist()]
        places = {name: (read, max(at, window.upto), modes) for name, (read, at, modes) in places.items()}
    assert told == [["id", "what", "big", "n"]] * later_changes
    assert sorted(rows, key=repr) == sorted(
        [(LINES, None, None)] * 2 + [(ORDERS, 1, 7), (ORDERS, 2, 7)] * later_changes, key=repr
    )


def test_a_window_that_would_end_too_early_is_none(piped: Piped) -> None:
    """Where the journal does not reach as far as a window must, it is waited for: nobody's place moves
    back."""
    source = piped.source()
    start = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
    piped.capture()
    head = source.observe().head
    beyond = Position(1, head.place + 1_000_000)
    least = WindowLimits(rows_max=1, bytes_max=1 << 30, not_before=beyond)
    with pytest.raises(TruecutError, match="TC2117"):
        piped.window(source, start, beyond, least)
    ahead = {
        name: (read, beyond if "orders" in str(name) else start, modes)
        for name, (read, modes) in piped.reads(MIRROR).items()
    }
    with pytest.raises(TruecutError, match="TC2117"):
        source.plan_window(ahead, upto_max=beyond, limits=least, parallelism=1)
    assert piped.window(source, start, head).upto == head


def test_a_table_that_stops_at_other_columns_does_so_after_a_start_too(piped: Piped) -> None:
    """`on_schema_change: stop`: a new process knows of the columns before only what the journal says."""
    piped.document["spec"]["tables"][0]["on_schema_change"] = "stop"
    source = piped.source()
    piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        piped.capture()
        at = source.observe().head
        connection.execute("ALTER TABLE orders ADD COLUMN n int")
        connection.execute("INSERT INTO orders VALUES (2, 'a', 'b', 6)")
    piped.capture()
    source = piped.source_seen()
    window = piped.window(source, at, source.observe().head)
    assert {str(name): fault.code for name, fault in window.faults.items()} == {ORDERS: "TC3053"}


def test_after_a_start_columns_are_said_to_have_changed_only_where_they_have(piped: Piped) -> None:
    """A new process does not know what the sinks have: they get the order in any case."""
    source = piped.source()
    piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        piped.capture()
        began = source.observe().head
        connection.execute("INSERT INTO orders VALUES (2, 'a', 'b')")
        piped.capture()
        source = piped.source_seen()
        again = source.observe().head
        window = piped.window(source, began, again)
        assert [set(map(str, names)) for names in (window.altered, window.alike)] == [{ORDERS}, {ORDERS}]
        connection.execute("ALTER TABLE orders ADD COLUMN n int")
        connection.execute("INSERT INTO orders VALUES (3, 'a', 'b', 6)")
    piped.capture()
    for knows in (source, piped.source_seen()):
        at, head = again, knows.observe().head
        told: set[TableName] = set()
        while at < head:  # one ends before its table changes
            window = piped.window(knows, at, head)
            told |= window.altered - window.alike
            at = window.upto
        assert set(map(str, told)) == {ORDERS}


@pytest.mark.parametrize("looked", [False, True], ids=["published", "not_published_yet"])
def test_a_table_that_has_taken_a_name_is_not_the_one_that_had_it(
    piped: Piped, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Two renames put another table under the name: it is held as soon as the catalog shows it, before it
    has changed; and when it has changed at once, too. Also where the catalog was looked at before capture
    published it."""
    monkeypatch.setattr("truecut.sources.postgres.source.CATALOG_S", 0.0)
    source = piped.source()
    piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
        piped.capture()
        at = source.observe().head
        connection.execute("CREATE TABLE tmp_next (id bigint PRIMARY KEY, what text, big text)")
        connection.execute("INSERT INTO tmp_next VALUES (9, 'other', 'rows')")
        connection.execute("ALTER TABLE orders RENAME TO tmp_old")
        connection.execute("ALTER TABLE tmp_next RENAME TO orders")
        if looked:
            source.observe()
        piped.capture()
        source.observe()
        window = piped.window(source, at, piped.begin(source))
        assert {str(name): fault.code for name, fault in window.faults.items()} == {ORDERS: "TC3071"}
        connection.execute("INSERT INTO orders VALUES (10, 'other', 'row')")
        piped.capture()
        window = piped.window(source, at, source.observe().head)
        assert {str(name): fault.code for name, fault in window.faults.items()} == {ORDERS: "TC3071"}


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
    told = [fault.message for fault in window.faults.values()]  # which is all that a hold keeps
    assert all("REPLICA IDENTITY FULL" in message for message in told)
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
    """Before the first capture a look is refused, and may be tried again; so is a description before the
    journal has passed the catalog, also for whoever has not observed. Behind a journal that begins later
    than a table stands, the table is lost, and says so."""
    source = piped.source()
    with pytest.raises(TruecutError, match="TC2117"):
        source.observe()
    at = piped.begin(source)
    new, orders = piped.source(), TableRead(TableName("public", "orders"), ("id",), None)
    with pytest.raises(TruecutError, match="TC2117"):
        new.describe(orders, at=at)
    assert new.describe(orders, at=piped.begin(new)).names == ("id", "what", "big")
    window = piped.window(source, Position(1, at.place - 100_000), at)
    assert set(window.lost) == set(window.faults) == set(piped.reads(BOTH))
    missing = {"name": "public.nowhere", "key": ["id"], **NONE}
    piped.document["spec"]["tables"] = [missing]
    seen = piped.source().observe()
    assert list(map(str, seen.unready)) == ["public.nowhere"]


def test_a_slot_that_is_made_anew_is_another_source(piped: Piped) -> None:
    """Behind a gap everything has another identity, and begins later: nothing is read across it. So does what
    is captured after the journal was lost."""
    source = piped.source()
    piped.begin(source)
    before = source.observe()
    piped.close()  # drops the slot
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
    piped.capture()
    after = source.observe()
    assert after.identity != before.identity
    assert after.oldest > before.head
    remove_log(piped.pipeline().state / "journal")
    piped.capture()
    assert piped.source().observe().identity not in (before.identity, after.identity)


def test_a_table_that_joins_the_pipeline_is_published_and_one_of_somebody_else_is_left(piped: Piped) -> None:
    """A publication that we made takes up new tables of the file, and goes with `drop`; another one stays as
    it is. The slot goes in any case."""
    source = piped.source()
    piped.begin(source)
    with piped.connect() as connection:
        connection.execute("CREATE TABLE later (id int PRIMARY KEY); CREATE TABLE tmp_x (id int PRIMARY KEY)")
    source = piped.source()
    at = piped.begin(source)
    with piped.connect() as connection:
        connection.execute("INSERT INTO later VALUES (1); INSERT INTO tmp_x VALUES (1)")
    piped.capture()
    window = piped.window(source, at, source.observe().head)
    assert [str(name) for name in window.schemas] == ["public.later"]
    name = piped.pipeline().name
    with piped.connect() as connection:
        connection.execute(f"COMMENT ON PUBLICATION truecut_{name} IS 'mine'".encode())
    assert drop_at_source(piped.pipeline()) == ([f"slot truecut_{name}"], [f"publication truecut_{name}"])


def test_what_a_survey_tells(piped: Piped) -> None:
    """Before anything is captured: fit, sizes, tables as `init` lists them, and that nothing was written;
    afterwards what is outstanding behind a place."""
    pipeline = piped.pipeline()
    survey = survey_source(pipeline.source)
    seen = survey.observe()
    assert survey.check(seen).outcome == "ok"
    orders = TableRead(TableName("public", "orders"), ("id",), None)
    facts = survey.facts(orders, seen)
    assert isinstance(facts, TableFacts)
    missing = survey.facts(TableRead(TableName("public", "nowhere"), ("id",), None), seen)
    assert isinstance(missing, Fault)
    assert survey.key_counts(orders, seen) == (0, 0)
    assert survey.key_counts(TableRead(orders.name, ("what",), None), seen) == (0, 0)
    begun = SOURCES["postgres"].begin(piped.conninfo, folder=piped.folder)
    assert begun.tables is not None
    assert [(one.name, one.key) for one in begun.tables] == [
        ('Lines of "it"', ("b", "a")),
        ("orders", ("id",)),
    ]
    assert piped.conninfo not in begun.section
    with piped.connect() as connection:
        assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    at = piped.begin(piped.source())
    with piped.connect() as connection:
        connection.execute("INSERT INTO orders SELECT n, 'a', 'b' FROM generate_series(1, 5) n")
    piped.capture()
    survey = survey_source(pipeline.source)
    seen = survey.observe()
    assert survey.outstanding(orders.name, after=at, seen=seen).changes == 5
    (place, committed_ms), *_ = survey.commits(after=at, seen=seen)
    assert at < place <= seen.head
    assert abs(committed_ms - time.time() * 1000) < 3_600_000
