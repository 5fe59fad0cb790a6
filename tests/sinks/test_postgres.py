"""What a PostgreSQL sink does with orders beyond the laws: holds, schema changes, foreign tables, crashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.postgres_server import postgres_server
from tests.sinks import crashing
from tests.sinks.database import cursor_of, owner, read, sink
from tests.sinks.test_crash import AFTER, BEFORE, POINTS, SEED, WINDOW
from truecut.config.secret import Secret
from truecut.config.settings import SinkSettings
from truecut.errors import Retry
from truecut.failpoint import KILLED
from truecut.model.change import DELETE, INSERT, READ, UPDATE
from truecut.model.cursor import Hold
from truecut.model.order import Receipt
from truecut.model.table import Column, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.postgres import inspection, transaction
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import (
    ITEMS,
    applied,
    changes,
    copy_of,
    order,
    packets,
    position,
    repair,
    rows,
    seed,
)


def seeded(target: PostgresAddress, **tables: Any) -> None:
    """Ours with token 1; mirrors are seeded at 4."""
    applied(sink(target).recover(epoch=1, token=1))
    wanted = tables or {"t": seed(), "u": seed()}
    found = {name: [(READ, 4, 1, "a"), (READ, 4, 2, "b")] for name in wanted}
    applied(sink(target).apply(order(None, 4, **wanted), packets(**found)))


def hold_of(receipt: Receipt, table: str = "t") -> Hold:
    hold = copy_of(applied(receipt), table).hold
    assert hold is not None
    return hold


def both(target: PostgresAddress, upto: int = 5) -> Receipt:
    """One more row for each of two tables, in one order."""
    found = [(INSERT, upto, upto, "new")]
    return sink(target).apply(order(upto - 1, upto, t=changes(), u=changes()), packets(t=found, u=found))


# --- tables that stop alone ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "code", "reason"),
    [
        ("ALTER TABLE main.t ADD CHECK (value <> 'new')", "TC3029", "CHECK"),
        ("CREATE UNIQUE INDEX one ON main.t ((value = 'a' OR value = 'new'))", "TC3029", "UNIQUE, one"),
        (
            "ALTER TABLE main.t ADD own int NOT NULL DEFAULT 1; ALTER TABLE main.t ALTER own DROP DEFAULT",
            "TC3029",
            "NOT NULL",
        ),
        ("ALTER TABLE main.t RENAME COLUMN value TO other", "TC3016", "altered"),
        ("ALTER TABLE main.t ALTER COLUMN value TYPE varchar(9)", "TC3016", "altered"),
        ("DROP TABLE main.t", "TC3016", "dropped"),
        ("INSERT INTO main.t VALUES (5, 'mine')", "TC3023", "already live"),
    ],
)
def test_what_somebody_did_to_a_table_holds_it_alone(
    target: PostgresAddress, statement: str, code: str, reason: str
) -> None:
    """With the true reason and no value of a row; the other table of the order goes on."""
    seeded(target)
    owner(target, statement)
    hold = hold_of(both(target))
    assert (hold.code, reason in hold.message, "'new'" in hold.message) == (code, True, False), hold
    assert read(target, "SELECT id FROM main.u ORDER BY 1") == [(1,), (2,), (5,)]


def test_a_copy_that_began_empty_says_so_when_it_lacks_a_row(target: PostgresAddress) -> None:
    """Nobody need have taken what it never had."""
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 4, t=seed()), iter([])))
    follow = order(4, 5, t=replace(changes(), began_empty=True))
    hold = hold_of(sink(target).apply(follow, packets(t=[(UPDATE, 5, 1, "lost")])))
    assert (hold.code, "`backfill: none`" in hold.message, "lost" in hold.message) == ("TC3040", True, False)


@pytest.mark.parametrize(
    ("names", "code"),
    [(["xmin", "xmax"], "TC3034"), ([f"c{n}" for n in range(1600)], "TC3028")],
)
def test_columns_that_no_table_can_have_hold_it_alone(
    target: PostgresAddress, names: list[str], code: str
) -> None:
    """Names that PostgreSQL keeps for itself, more columns than it takes: already while rows are staged."""
    columns = [(n, name, "BIGINT") for n, name in enumerate(["id", *names], 1)]
    schema = schema_of(*columns)
    applied(sink(target).recover(epoch=1, token=1))
    given = [Packet("main.t", rows([(READ, 4, *range(len(columns)))], schema)), *packets(u=SEED)]
    receipt = sink(target).apply(order(None, 4, t=seed(schema=schema), u=seed()), iter(given))
    assert hold_of(receipt).code == code
    assert read(target, "SELECT id, value FROM main.u ORDER BY 1") == BEFORE


def test_a_constraint_that_waits_for_the_commit_holds_its_table_alone(target: PostgresAddress) -> None:
    """A role that may not quiet triggers: what was put off is looked at while the table can still go back."""
    ((database,),) = read(target, "SELECT current_database()")
    owner(target, "CREATE ROLE plain LOGIN", f'GRANT CREATE ON DATABASE "{database}" TO plain')
    plain = PostgresAddress(Secret(target.dsn.reveal().replace("user=postgres", "user=plain")))
    seeded(plain)
    owner(
        target,
        "CREATE TABLE main.known (value text PRIMARY KEY)",
        "INSERT INTO main.known SELECT value FROM main.t",
        "ALTER TABLE main.t ADD CONSTRAINT known_value FOREIGN KEY (value) REFERENCES main.known "
        "DEFERRABLE INITIALLY DEFERRED",
        "GRANT SELECT ON main.known TO plain",
    )
    hold = hold_of(both(plain))
    assert (hold.code, "FOREIGN KEY, known_value" in hold.message) == ("TC3029", True), hold
    assert read(target, "SELECT id FROM main.u ORDER BY 1") == [(1,), (2,), (5,)]
    owner(target, "DROP OWNED BY plain CASCADE", "DROP ROLE plain")


def test_two_tables_of_an_order_come_together(target: PostgresAddress) -> None:
    """A reader in the middle of an order sees neither of its tables, nor its cursor; then all three."""
    seeded(target)
    seen: list[Any] = []
    sql = "SELECT (SELECT count(*) FROM main.t), (SELECT count(*) FROM main.u), position FROM _truecut.cursor"

    def watch(name: str) -> None:
        seen.append((name, read(target, sql)[0]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "failpoint", watch)
        applied(both(target))
    before, after = (2, 2, str(position(4))), (3, 3, str(position(5)))
    assert seen == [("after_sink_data", before), ("before_sink_commit", before), ("after_sink_commit", after)]


def test_places_are_in_order_beyond_the_sign(target: PostgresAddress) -> None:
    """They are unsigned, and PostgreSQL's numbers are not: the last change of a key is the last one."""
    seeded(target)
    found = [(UPDATE, 1 << 63, 1, "last"), (UPDATE, (1 << 63) - 1, 1, "first")]
    applied(sink(target).apply(order(4, 5, t=changes()), packets(t=found)))
    assert read(target, "SELECT value FROM main.t WHERE id = 1") == [("last",)]


def test_a_foreign_table_is_refused_or_replaced(target: PostgresAddress) -> None:
    """Never overwritten unless the sink says so."""
    owner(target, "CREATE SCHEMA main", "CREATE TABLE main.t (mine text)", "INSERT INTO main.t VALUES ('x')")
    applied(sink(target).recover(epoch=1, token=1))
    refused = sink(target).apply(order(None, 4, t=seed()), packets(t=SEED))
    assert refused.fault is not None
    assert (refused.outcome, refused.fault.code) == ("failed", "TC4013")
    assert read(target, "SELECT mine FROM main.t") == [("x",)]
    applied(sink(target, existing="replace").apply(order(None, 4, t=seed()), packets(t=SEED)))
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == BEFORE


def test_a_view_in_the_way_is_named(target: PostgresAddress) -> None:
    """A column's type cannot change under a view: held, and it goes on once the view is gone."""
    small = TableSchema("7", (Column(1, "id", "INTEGER"), Column(2, "value", "VARCHAR")))
    applied(sink(target).recover(epoch=1, token=1))
    given = [Packet("main.t", rows([(READ, 4, 1, "a")], small))]
    applied(sink(target).apply(order(None, 4, t=seed(schema=small)), iter(given)))
    owner(target, "CREATE VIEW main.v AS SELECT id FROM main.t")
    receipt = sink(target).apply(order(4, 5, t=changes()), packets(t=[(INSERT, 5, 1 << 40, "z")]))
    assert hold_of(receipt).code == "TC3032"
    assert read(target, "SELECT id FROM main.v") == [(1,)]


def test_triggers_and_foreign_keys_of_the_target_stay_quiet(target: PostgresAddress) -> None:
    """What somebody hung on our tables does not fire for rows that only follow the source."""
    seeded(target)
    owner(
        target,
        "CREATE TABLE main.fired (n integer)",
        "CREATE FUNCTION main.fire() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO main.fired VALUES (1); RETURN NEW; END'",
        "CREATE TRIGGER fires AFTER INSERT ON main.t FOR EACH ROW EXECUTE FUNCTION main.fire()",
        "CREATE TABLE main.theirs (id bigint REFERENCES main.t ON DELETE CASCADE)",
        "INSERT INTO main.theirs VALUES (1)",
    )
    found = [(UPDATE, 5, 1, "a1"), (INSERT, 5, 3, "c")]
    receipt = applied(sink(target).apply(order(4, 5, t=changes()), packets(t=found)))
    assert copy_of(receipt).hold is None
    assert read(target, "SELECT (SELECT count(*) FROM main.fired), count(*) FROM main.theirs") == [(0, 1)]


# --- columns that come, go and change -----------------------------------------------------------------


def schema_of(*columns: tuple[Any, ...]) -> TableSchema:
    return TableSchema("7", tuple(Column(*column) for column in columns))


def test_a_table_follows_its_source(target: PostgresAddress) -> None:
    """Added with a default, dropped (kept, all NULL), renamed, two names exchanged, widened; the name of a
    dropped column given to another."""
    one = schema_of((1, "id", "INTEGER"), (2, "value", "VARCHAR"), (3, "n", "INTEGER"))
    applied(sink(target).recover(epoch=1, token=1))
    given = iter([Packet("main.t", rows([(READ, 4, 1, "a", 7)], one))])
    applied(sink(target).apply(order(None, 4, t=seed(schema=one)), given))
    steps = [
        (
            schema_of((1, "id", "BIGINT"), (2, "n", "VARCHAR"), (3, "value", "BIGINT")),
            (1 << 40, "b", 1 << 41),
        ),
        (schema_of((1, "id", "BIGINT"), (3, "value", "BIGINT"), (4, "d", "VARCHAR", "'it''s'")), (3, 9, "x")),
        (
            schema_of((1, "id", "BIGINT"), (3, "value", "BIGINT"), (4, "d", "VARCHAR"), (5, "n", "DOUBLE")),
            (4, 8, "y", 0.5),
        ),
    ]
    for upto, (schema, values) in enumerate(steps, 5):
        given = iter([Packet("main.t", rows([(INSERT, upto, *values)], schema))])
        receipt = sink(target).apply(order(upto - 1, upto, t=changes(schema=schema)), given)
        assert copy_of(applied(receipt)).hold is None, copy_of(receipt).hold
        if upto == 6:
            assert copy_of(receipt).retired_columns == ("n",)
            assert read(target, "SELECT count(n) FROM main.t") == [(0,)]
    assert read(target, "SELECT id, value, d, n FROM main.t ORDER BY id") == [
        (1, 7, "it's", None),
        (3, 9, "x", None),
        (4, 8, "y", 0.5),
        (1 << 40, 1 << 41, "it's", None),
    ]


def test_texts_and_bits_that_may_be_longer(target: PostgresAddress) -> None:
    """A length that grows, or is none any more, changes no value: the column follows, row by row as it was.
    One that shrinks holds the table."""

    def told(*natives: str) -> TableSchema:
        named = [Column(1, "id", "INTEGER")]
        named += [Column(n, f"c{n}", "VARCHAR", native=f"postgres:{one}") for n, one in enumerate(natives, 2)]
        return TableSchema("7", tuple(named))

    lengths = [
        ("character varying(3)", "bit varying(3)", "character varying(3)"),
        ("character varying(90)", "bit varying(9)", "text"),
        ("text", "bit varying", "character varying"),
    ]
    one = told(*lengths[0])
    applied(sink(target).recover(epoch=1, token=1))
    given = iter([Packet("main.t", rows([(READ, 4, 1, "a b", "101", "äöü")], one))])
    applied(sink(target).apply(order(None, 4, t=seed(schema=one)), given))
    for upto, natives in enumerate(lengths[1:], 5):
        schema = told(*natives)
        given = iter([Packet("main.t", rows([(INSERT, upto, upto, "a b  ", "10101", "longer")], schema))])
        receipt = sink(target).apply(order(upto - 1, upto, t=changes(schema=schema)), given)
        assert copy_of(applied(receipt)).hold is None, copy_of(receipt).hold
    later = [(n, "a b  ", "10101", "longer") for n in (5, 6)]
    assert read(target, "SELECT * FROM main.t ORDER BY id") == [(1, "a b", "101", "äöü"), *later]
    shorter = told("character varying(90)", "bit varying", "character varying")
    receipt = sink(target).apply(order(6, 7, t=changes(schema=shorter)), iter([]))
    assert hold_of(receipt).code == "TC3014"


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (schema_of((1, "id", "BIGINT"), (2, "value", "BIGINT")), "TC3014"),
        (replace(ITEMS, id="8"), "TC3011"),
        (schema_of((1, "id", "BIGINT"), (2, "value", "VARCHAR"), (3, "b", "BLOB", "'x'")), "TC3013"),
        (
            schema_of(
                (1, "id", "BIGINT"), (2, "value", "VARCHAR"), (3, "d", "VARCHAR", "'a'; DROP TABLE main.u")
            ),
            "TC3013",
        ),
        (schema_of((1, "id", "BIGINT"), (2, "value", "VARCHAR"), (3, "x" * 64, "VARCHAR")), "TC3031"),
    ],
)
def test_what_cannot_be_followed_stops_the_table(
    target: PostgresAddress, schema: TableSchema, code: str
) -> None:
    """Held as it was; a seed makes it anew."""
    seeded(target)
    receipt = sink(target).apply(order(4, 5, t=changes(schema=schema)), iter([]))
    assert hold_of(receipt).code == code
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == BEFORE


def test_one_schema_for_all_tables(target: PostgresAddress) -> None:
    """`schema:` moves every table; two sinks of one database do not meet."""
    for name in ("North", "south pole"):
        one = replace(sink(replace(target, schema=name)), name=name)
        applied(one.recover(epoch=1, token=1))
        wanted = replace(order(None, 4, t=seed()), sink=name)
        applied(one.apply(wanted, packets(t=[(READ, 4, 1, name)])))
    assert read(target, 'SELECT value FROM "North".t UNION SELECT value FROM "south pole".t ORDER BY 1') == [
        ("North",),
        ("south pole",),
    ]
    assert read(target, "SELECT sink FROM _truecut.cursor ORDER BY 1") == [("North",), ("south pole",)]


# --- crashes and errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_all_or_nothing(target: PostgresAddress, point: str) -> None:
    """Killed at a durable step: the whole order with its cursor, or nothing; the next owner goes on."""
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 4, t=seed(), log=seed("append")), packets(t=SEED, log=SEED)))
    wanted = order(4, 5, token=2, t=changes(), log=changes("append"))
    found = [Packet("main.t", rows(WINDOW)), Packet("main.log", rows(WINDOW))]
    assert crashing.exit_code({"TRUECUT_FAILPOINT": point}, sink(target), wanted, found) == KILLED
    committed = POINTS[point]
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == (AFTER if committed else BEFORE)
    applied(sink(target).recover(epoch=2, token=3))
    assert cursor_of(target) == (str(position(5 if committed else 4)), 3)
    again = sink(target).apply(order(4, 5, token=3, t=changes(), log=changes("append")), iter(found))
    assert again.outcome == ("already" if committed else "applied")
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == AFTER
    assert read(target, "SELECT count(*) FROM main.log") == [(len(SEED) + len(WINDOW),)]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_a_copy_as_it_was_or_repaired(target: PostgresAddress, point: str) -> None:
    """Killed at a durable step of a repair: never a part of it, the cursor stands where it stood; the next
    owner's repair makes the copy whole, or does not fit any more."""
    applied(sink(target).recover(epoch=1, token=1))
    applied(sink(target).apply(order(None, 4, t=seed()), packets(t=SEED)))
    owner(target, "UPDATE main.t SET value = 'mine' WHERE id = 1", "DELETE FROM main.t WHERE id = 2")
    found = [Packet("main.t", rows([(DELETE, 4, 1, "?"), (INSERT, 4, 1, "a"), (INSERT, 4, 2, "b")]))]
    wanted = order(4, 4, token=2, t=repair())
    assert crashing.exit_code({"TRUECUT_FAILPOINT": point}, sink(target), wanted, found) == KILLED
    committed = POINTS[point]
    rows_now = "SELECT id, value FROM main.t ORDER BY 1"
    assert read(target, rows_now) == (BEFORE if committed else [(1, "mine")])
    assert cursor_of(target) == (str(position(4)), 2)
    applied(sink(target).recover(epoch=2, token=3))
    again = sink(target).apply(order(4, 4, token=3, t=repair()), iter(found))
    assert again.outcome == ("failed" if committed else "applied")
    assert (read(target, rows_now), cursor_of(target)) == (BEFORE, (str(position(4)), 3))


@pytest.mark.parametrize("point", ["after_sink_data", "before_sink_commit"])
def test_a_session_that_ends_in_the_middle_is_a_retryable_answer(
    target: PostgresAddress, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The server ends it: nothing has happened, and the order goes through when it runs again."""
    seeded(target)

    def end(name: str) -> None:
        if name == point:
            owner(
                target,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'truecut'",
            )

    monkeypatch.setattr(transaction, "failpoint", end)
    receipt = both(target)
    assert receipt.fault is not None
    assert (receipt.outcome, receipt.fault.code, receipt.fault.retry) == ("failed", "TC4030", Retry.RETRYABLE)
    assert cursor_of(target) == (str(position(4)), 1)
    monkeypatch.undo()
    assert both(target).outcome == "applied"


@pytest.mark.parametrize(
    ("dsn", "code", "retry"),
    [
        ("host=127.0.0.1 port=1 password=hush", "TC4030", Retry.RETRYABLE),
        ("{dsn} dbname=nowhere password=hush", "TC4032", Retry.NOT_RETRYABLE),
        ("{dsn} user=nobody password=hush", "TC4031", Retry.NOT_RETRYABLE),
        ("{dsn} sslmode=require password=hush", "TC4043", Retry.NOT_RETRYABLE),
    ],
)
def test_a_server_that_does_not_let_us_in(target: PostgresAddress, dsn: str, code: str, retry: Retry) -> None:
    """Classified, for a takeover and for an order; no word of the address."""
    away = PostgresAddress(Secret(dsn.format(dsn=target.dsn.reveal())))
    for receipt in (
        sink(away).recover(epoch=1, token=1),
        sink(away).apply(order(None, 4, t=seed()), packets(t=SEED)),
    ):
        assert receipt.fault is not None
        assert (receipt.outcome, receipt.fault.code, receipt.fault.retry) == ("failed", code, retry)
        assert "hush" not in repr(receipt)


def test_what_doctor_finds_is_mended_by_what_it_prints(target: PostgresAddress) -> None:
    """A role without rights: each finding's SQL, run by the owner, takes it away, and an order runs."""
    ((database,),) = read(target, "SELECT current_database()")
    owner(
        target,
        f'REVOKE ALL ON DATABASE "{database}" FROM PUBLIC',
        "DROP ROLE IF EXISTS small",
        "CREATE ROLE small LOGIN",
    )
    owner(target, f'GRANT CONNECT ON DATABASE "{database}" TO small')
    small = PostgresAddress(Secret(target.dsn.reveal().replace("user=postgres", "user=small")))
    settings = SinkSettings("acme", "postgres", small, None, "refuse", {"main.t": "mirror"})
    refused = sink(small).recover(epoch=1, token=1)
    assert refused.fault is not None
    assert refused.fault.code == "TC4033"
    look = inspection.look_at([settings], pipeline="tenants")["acme"]
    findings = list(inspection.unfit(settings, look))
    assert {finding.fault.code for finding in findings} == {"TC4041"}
    assert len(findings) == 3
    owner(target, *(finding.fault.fix.partition(": ")[2] for finding in findings))
    assert list(inspection.unfit(settings, look)) == []
    applied(sink(small).recover(epoch=1, token=1))
    applied(sink(small).apply(order(None, 4, t=seed()), packets(t=SEED)))
    owner(target, "CREATE TABLE main.theirs (id bigint REFERENCES main.t)")
    look = inspection.look_at([settings], pipeline="tenants")["acme"]
    assert [(f.severity, f.fault.code) for f in inspection.unfit(settings, look)] == [("warning", "TC4038")]
    owner(target, "DROP OWNED BY small CASCADE", "DROP ROLE small")


def test_a_database_that_counts_bytes_is_refused(target: PostgresAddress) -> None:
    """SQL_ASCII knows no characters, and cuts in the middle of `varchar(n)`'s: told by `doctor`, refused by a
    takeover, and nothing is made there. An encoding that the server converts to is none of that."""
    ((name,),) = read(target, "SELECT current_database()")
    for encoding, codes in {"SQL_ASCII": ["TC4048"], "LATIN1": []}.items():
        made = f"{name}_{encoding.lower()}"
        owner(target, f"CREATE DATABASE {made} ENCODING '{encoding}' TEMPLATE template0")
        address = PostgresAddress(Secret(target.dsn.reveal().replace(f"dbname={name}", f"dbname={made}")))
        settings = SinkSettings("acme", "postgres", address, None, "refuse", {"main.t": "mirror"})
        look = inspection.look_at([settings], pipeline="tenants")["acme"]
        assert [finding.fault.code for finding in inspection.unfit(settings, look)] == codes
        receipt = sink(address).recover(epoch=1, token=1)
        assert ([] if receipt.fault is None else [receipt.fault.code]) == codes
        assert read(address, "SELECT to_regnamespace('_truecut') IS NULL") == [(bool(codes),)]


@pytest.fixture(scope="module")
def older() -> Iterator[PostgresAddress]:
    """PostgreSQL 16."""
    with postgres_server(version=16) as server:
        yield PostgresAddress(Secret(server.create_database("target")))


def test_the_core_on_an_older_server(older: PostgresAddress) -> None:
    """Seed, changes, an append table, a hold and a takeover."""
    seeded(older, t=seed(), u=seed())
    applied(both(older))
    owner(older, "ALTER TABLE main.t ADD CHECK (id <> 6)")
    assert hold_of(both(older, 6)).code == "TC3029"
    assert read(older, "SELECT id FROM main.u ORDER BY 1") == [(1,), (2,), (5,), (6,)]
    applied(sink(older).recover(epoch=2, token=2))
    assert sink(older).apply(order(6, 7, u=changes()), iter([])).fenced_by == 2
    with psycopg.connect(older.dsn.reveal()) as connection:
        assert connection.info.server_version // 10_000 == 16
