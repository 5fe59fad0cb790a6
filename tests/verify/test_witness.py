"""V3: what a second reader of the log finds, where everything is honest and where the journal was bent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.verify.witnessed import Bend, Witnessed
from truecut.runtime.capture_start import drop_at_source
from truecut.sources.postgres import witness_slot
from truecut.sources.postgres.address import server_address
from truecut.sources.postgres.checks import findings

_numbers = itertools.count(1)
BIG = "SELECT string_agg(md5(n::text), '') FROM generate_series({0}, {0} + 400) n"  # not sent when it stays


@pytest.fixture
def world(tmp_path: Path, postgres: PostgresServer) -> Iterator[Witnessed]:
    """Tables a and b, empty and captured."""
    dsn = postgres.create_database(f"witness_{next(_numbers)}")
    with psycopg.connect(dsn, autocommit=True) as owner:
        for table in "ab":
            owner.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text, big text)")
    made = Witnessed(tmp_path, dsn, ("a", "b"))
    made.begin()
    yield made
    made.shop.close()


def do(world: Witnessed, *transactions: str) -> None:
    """Each text is one transaction."""
    with world.shop.connect() as owner:
        for one in transactions:
            owner.execute(f"BEGIN; {one}; COMMIT")


LIFE = (
    "INSERT INTO a SELECT n, 'v' || n, 'short' FROM generate_series(1, 9) n",
    f"INSERT INTO b VALUES (1, 'x', ({BIG.format(1)})), (2, NULL, ({BIG.format(2)}))",
    "UPDATE b SET v = 'y'; UPDATE a SET v = NULL WHERE id = 2; DELETE FROM a WHERE id = 3",
    "UPDATE a SET id = 30 WHERE id = 4; UPDATE b SET v = v || 'z', big = 'now short' WHERE id = 1",
    "INSERT INTO a VALUES (3, '', ''); UPDATE a SET v = 'again' WHERE id = 3; DELETE FROM a WHERE id = 3",
    "SAVEPOINT s; DELETE FROM a; ROLLBACK TO s; UPDATE a SET v = 'kept'",
)


def test_an_honest_life_passes(world: Witnessed) -> None:
    """Mirror and append table: values left out, keys that change, what was rolled back, truncates. The second
    time only what came since is read, for the slot has moved."""
    for transactions in (LIFE, ("TRUNCATE a, b", *LIFE[:3])):
        do(world, *transactions)
        world.deliver()
        found = world.verified()
        assert {one.verdict for one in found.values()} == {"pass"}, found
        assert set(found) == {(table, sink) for table in "ab" for sink in ("lake", "log")}
        assert all("0 changes" not in one.detail for one in found.values())


def test_arrays_are_divided_as_their_types_say(tmp_path: Path, postgres: PostgresServer) -> None:
    """Boxes and a type of somebody's own, also behind domains: the log says what the evidence says."""
    dsn = postgres.create_database(f"witness_{next(_numbers)}")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            "CREATE TYPE own;"
            "CREATE FUNCTION own_in(cstring) RETURNS own LANGUAGE internal IMMUTABLE STRICT AS 'textin';"
            "CREATE FUNCTION own_out(own) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';"
            "CREATE TYPE own (INPUT = own_in, OUTPUT = own_out, LIKE = text, DELIMITER = '|');"
            "CREATE DOMAIN whole AS own; CREATE DOMAIN boxes AS box[];"
            "CREATE TABLE a (id int PRIMARY KEY, v own[], w whole[], b box[], c boxes, n int[])"
        )
    world = Witnessed(tmp_path, dsn, ("a",))
    try:
        world.begin()
        boxes = "'{(1,1),(0,0);(2,2),(0,0)}'"
        do(world, f"INSERT INTO a VALUES (1, '{{a,b|NULL|c}}', '{{a,b|c}}', {boxes}, {boxes}, '{{1,2}}')")
        world.deliver()
        found = world.verified()
    finally:
        world.shop.close()
    assert {one.verdict for one in found.values()} == {"pass"}, found


def of_row(message: bytes, mark: bytes) -> bool:
    return message[:1] in (b"I", b"U", b"D") and mark in message


def dropped(messages: list[bytes]) -> list[bytes]:
    return [one for one in messages if not of_row(one, b"v5")]


def dropped_last(messages: list[bytes]) -> list[bytes]:
    return [one for one in messages if not of_row(one, b"v9")]


def altered(messages: list[bytes]) -> list[bytes]:
    return [one.replace(b"v5", b"v6") if of_row(one, b"v5") else one for one in messages]


def doubled(messages: list[bytes]) -> list[bytes]:
    """An update: a second insert of a key is found by V2."""
    return [copy for one in messages for copy in [one] * (1 + of_row(one, b"w7"))]


def reordered(messages: list[bytes]) -> list[bytes]:
    found = list(messages)
    for n, one in enumerate(messages):
        if of_row(one, b"v5"):
            found[n], found[n + 1] = found[n + 1], found[n]
    return found


def invented(messages: list[bytes]) -> list[bytes]:
    """One more row, behind the last of its transaction."""
    more = [one.replace(b"v9", b"va").replace(b"\x00\x00\x00\x019", b"\x00\x00\x00\x010") for one in messages]
    return [copy for one, new in zip(messages, more, strict=True) for copy in dict.fromkeys((one, new))]


ROWS = (
    "INSERT INTO a SELECT n, 'v' || n, 'short' FROM generate_series(1, 8) n; "
    "UPDATE a SET v = 'w7' WHERE id = 7; INSERT INTO a VALUES (9, 'v9', '')"
)


@pytest.mark.parametrize("bend", [dropped, dropped_last, altered, doubled, reordered, invented])
def test_a_bent_journal_fails_where_it_was_bent(world: Witnessed, bend: Bend) -> None:
    """A change that is lost, altered, told twice, in another order or invented between capture and journal,
    with every checksum made anew: the levels of the files pass, V3 names the table and the place. The slot
    stays where it is."""
    do(world, "INSERT INTO b VALUES (1, 'x', 'y')", ROWS, "INSERT INTO a VALUES (10, 'w', '')")
    before = place_of_slot(world)
    places: list[int] = []

    def bent(messages: list[bytes]) -> list[bytes]:
        for message in messages:
            if message[:1] == b"B":
                place = int.from_bytes(message[1:9], "big")
            if of_row(message, b"v5"):
                places.append(place)
        return bend(messages)

    world.deliver(bent)
    found = world.verified()
    (place,) = places
    assert {name: one.verdict for name, one in found.items()} == {
        ("a", "lake"): "fail",
        ("a", "log"): "fail",
        ("b", "lake"): "pass",
        ("b", "log"): "pass",
    }, found
    for sink in ("lake", "log"):
        assert f"at 00000001-{place:016X}" in found["a", sink].detail, found["a", sink]
    assert place_of_slot(world) == before


def verdicts(world: Witnessed) -> tuple[set[str], set[str]]:
    """Of all copies, and why."""
    found = world.verified().values()
    return {one.verdict for one in found}, {one.detail for one in found}


def test_without_the_log_nobody_knows(world: Witnessed) -> None:
    """The slot dropped; made anew, after what nobody kept; then what was copied anew since."""
    do(world, *LIFE)
    world.deliver()
    with world.shop.connect() as owner:
        owner.execute("SELECT pg_drop_replication_slot('witness')")
    assert verdicts(world) == ({"unknown"}, {"the witness slot witness is gone, and the log that it kept"})
    do(world, "INSERT INTO a VALUES (77, '', '')")
    world.deliver()  # capture makes it again
    found, why = verdicts(world)
    assert found == {"unknown"}
    assert all("nobody kept the log between" in one for one in why), why


def test_what_was_compared_is_let_go_and_not_more(world: Witnessed) -> None:
    """One table alone moves no slot. A slot that somebody else has moved leaves a hole: unknown, also for
    what the note says, which is of another place."""
    do(world, *LIFE)
    world.deliver()
    began = place_of_slot(world)
    assert {one.verdict for one in world.verified(whole=False).values()} == {"pass"}
    assert place_of_slot(world) == began
    assert verdicts(world)[0] == {"pass"}
    moved = place_of_slot(world)
    assert moved > began
    do(world, "UPDATE a SET v = 'moved'")
    world.deliver()
    assert verdicts(world)[0] == {"pass"}
    do(world, "UPDATE a SET v = 'lost'")
    with world.shop.connect() as owner:
        owner.execute("SELECT pg_replication_slot_advance('witness', pg_current_wal_lsn())")
    world.deliver()
    found, why = verdicts(world)
    assert found == {"unknown"}
    assert all("the log in between is gone" in one for one in why), why


def test_the_server_keeps_no_more_than_the_budget(tmp_path: Path, postgres: PostgresServer) -> None:
    """Then the slot goes, capture goes on, and nobody knows any more."""
    dsn = postgres.create_database(f"witness_{next(_numbers)}")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE TABLE a (id int PRIMARY KEY, v text, big text)")
    world = Witnessed(tmp_path, dsn, ("a",), {"witness": "small", "witness_bytes_max": "1MiB"})
    try:
        world.begin()
        for n in range(2):  # looked at when a gulp begins
            do(
                world,
                f"INSERT INTO a SELECT n, 'v', repeat('x', 1000) FROM generate_series({n}000, {n}999) n",
            )
            world.deliver()
        found, why = verdicts(world)
        assert found == {"unknown"}
        assert all(one.startswith("the witness slot") for one in why), why
        assert [row["rows"] for row in world.issued.copies.values()] == [2000, 2000]
    finally:
        world.shop.close()


def test_a_slot_of_somebody_else_is_named_and_left(world: Witnessed) -> None:
    """`doctor` names it, verification does not believe it, `drop` takes only what we could have made."""
    source = world.shop.pipeline().source
    assert findings(server_address(source)) == []
    with world.shop.connect() as owner:
        owner.execute("SELECT pg_drop_replication_slot('witness')")
        owner.execute("SELECT pg_create_physical_replication_slot('witness')")
    assert [one.fault.code for one in findings(server_address(source))] == ["TC2109"]
    do(world, *LIFE)
    world.deliver()
    found, why = verdicts(world)
    assert (found, why) == ({"unknown"}, {"the slot witness is of another plugin or database"})
    gone, _ = drop_at_source(world.shop.pipeline())
    assert gone == ["slot truecut_witnessed", "publication truecut_witnessed"]
    with world.shop.connect() as owner:
        owner.execute("SELECT pg_drop_replication_slot('witness')")
        owner.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")
    gone, _ = drop_at_source(world.shop.pipeline())
    assert gone == ["witness slot witness"]


def test_a_slot_that_cannot_be_made_keeps_nothing(world: Witnessed, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction stays open none can: capture goes on, and no session of ours waits on at the server
    with a slot half made, for which it keeps its log."""
    monkeypatch.setattr(witness_slot, "MAKE_S", 1)
    with world.shop.connect() as owner, world.shop.connect() as other, other.transaction():
        owner.execute("SELECT pg_drop_replication_slot('witness')")
        other.execute("INSERT INTO a VALUES (1, 'open', '')")
        do(world, "INSERT INTO a VALUES (2, 'done', '')")
        world.shop.capture()
        deadline = time.monotonic() + PATIENCE_S
        while owner.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'witness'").fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_slot_of_somebody_else_is_not_dropped(tmp_path: Path, postgres: PostgresServer) -> None:
    """However much the server keeps for it: a standby may need it."""
    dsn = postgres.create_database(f"witness_{next(_numbers)}")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE TABLE a (id int PRIMARY KEY, v text, big text)")
        owner.execute("SELECT pg_create_physical_replication_slot('standby', true)")
    world = Witnessed(tmp_path, dsn, ("a",), {"witness": "standby", "witness_bytes_max": "1MiB"})
    try:
        do(world, "INSERT INTO a SELECT n, 'v', repeat(md5(n::text), 100) FROM generate_series(1, 2000) n")
        world.begin()
        with world.shop.connect() as owner:
            asked = "SELECT slot_type FROM pg_replication_slots WHERE slot_name = 'standby'"
            assert owner.execute(asked).fetchone() == ("physical",)
    finally:
        with world.shop.connect() as owner:
            owner.execute("SELECT pg_drop_replication_slot('standby')")
        world.shop.close()


def place_of_slot(world: Witnessed) -> int:
    with world.shop.connect() as owner:
        told = owner.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = 'witness'"
        ).fetchone()
    assert told is not None
    return int(told[0])


VALUES = {
    "bool": ("true", "false"),
    "int2": ("-32768", "7"),
    "int8": ("-9223372036854775808", "0"),
    "oid": ("4294967295", "1"),
    "float4": ("'0.1'", "'-0.0'", "'NaN'", "'infinity'", "'1e-40'"),
    "float8": ("'0.1'", "'-0.0'", "'NaN'", "'-infinity'", "'1e308'"),
    "numeric(12,3)": ("-0.001", "123456789.000"),
    "numeric": ("'NaN'", "1e40", "0.10"),
    "bytea": ("'\\x00ff'", "''"),
    "uuid": ("'6f1b1e3e-9d7a-4b43-8c5c-0a1f2e3d4c5b'",),
    "date": ("'0044-03-15 BC'", "'infinity'", "'2024-02-29'", "'12026-01-01'"),
    "time": ("'24:00:00'", "'00:00:00.000001'"),
    "timestamp": ("'0001-01-01 BC'", "'-infinity'", "'1969-12-31 23:59:59.999999'", "'10000-01-01'"),
    "timestamptz": ("'2026-01-01 00:00+05:30'", "'infinity'"),
    "interval": ("'-1 year -2 mons +3 days -04:05:06.5'", "'infinity'", "'0'", "'1 mon -1 day'"),
    "json": ("'{\"a\":  1}'",),
    "jsonb": ("'[1, \"x\"]'",),
    "char(4)": ("'ab'",),
    "text": ("''", "'ünï'"),
    "inet": ("'10.0.0.1/8'",),
    "money": ("1234.5",),
    "int[]": ("'{}'", "'{1,NULL,-3}'"),
    "text[]": ('\'{"a,b","NULL",NULL,"","\\\\\\"}"}\'', "'{x y}'"),
    "float4[]": ("'{0.1,NaN}'",),
    "numeric(4,1)[]": ("'{1.5,NULL}'",),
    "timestamptz[]": ("'{2026-01-01 00:00+01}'",),
    "interval[]": ("'{1 day 00:00:01}'",),
    "box[]": ("'{(1,1),(0,0)}'",),
}


def test_texts_of_every_type_are_read_alike(tmp_path: Path, postgres: PostgresServer) -> None:
    """What two readers that share no code make of the same log: NULL, bounds, infinities, BC, arrays."""
    dsn = postgres.create_database(f"witness_{next(_numbers)}")
    kinds = list(VALUES)
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})".encode())
    world = Witnessed(tmp_path, dsn, ("t",))
    try:
        world.begin()
        rows = [f"INSERT INTO t (id) VALUES ({0})"]
        for n, (kind, values) in enumerate(VALUES.items()):
            rows += [
                f"INSERT INTO t (id, c{n}) VALUES ({100 * n + at + 1}, CAST({value} AS {kind}))"
                for at, value in enumerate(values)
            ]
        do(world, *rows, "UPDATE t SET id = -id WHERE id % 2 = 1", "DELETE FROM t WHERE id % 3 = 0")
        world.deliver()
        found = world.verified()
        assert {one.verdict for one in found.values()} == {"pass"}, found
    finally:
        world.shop.close()
