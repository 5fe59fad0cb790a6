"""Where the source's log does not go on behind the journal, a new generation begins, and says why."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.shop import Shop, generations, journaled
from truecut.core.capture import Mode, WalBudget
from truecut.errors import Retry, TruecutError
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind
from truecut.journal.submission import Submission
from truecut.sources.postgres.backlog import Gulp
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.checks import findings
from truecut.sources.postgres.server import connect, create_publication

SETTINGS = ("fsync=off", "wal_level=logical", "max_replication_slots=30", "min_wal_size=32MB")


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def capture(shop: Shop, folder: Path) -> None:
    journal = LocalJournal(folder)
    try:
        Capture(shop.address, journal).run(lambda drained: drained)
    finally:
        journal.close()


def gaps(folder: Path) -> dict[int, str | None]:
    """Generation → why it began, as its first record says."""
    found: dict[int, str | None] = {}
    for entry in LocalReader(folder).read(after=None):
        if entry.position.generation not in found:
            assert entry.record.kind is Kind.MARKER
            found[entry.position.generation] = json.loads(entry.record.payload)["gap"]
    return found


def insert(shop: Shop, id: int) -> None:
    with shop.connect() as connection:
        connection.execute("INSERT INTO lines VALUES (%s, 'x')", (id,))


def _drop(shop: Shop) -> str:
    return f"SELECT pg_drop_replication_slot('{shop.slot}')"


def _create(shop: Shop) -> str:
    return f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')"


SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
INSERTS, EVERYTHING = "insert", "insert, update, delete, truncate"
CASES: dict[str, tuple[Callable[[Shop], list[str]], str]] = {
    "dropped": (lambda shop: [_drop(shop)], "is gone"),
    "recreated": (lambda shop: [_drop(shop), _create(shop)], "was made anew or moved"),
    "moved": (
        lambda shop: [f"SELECT pg_replication_slot_advance('{shop.slot}', pg_current_wal_flush_lsn())"],
        "was made anew or moved",
    ),
    "invalidated": (
        lambda shop: [
            "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
            "SELECT pg_reload_conf()",
            *["SELECT pg_switch_wal()", "CREATE TABLE w AS SELECT 1", "DROP TABLE w"] * 4,
            "CHECKPOINT",
            "ALTER SYSTEM RESET max_slot_wal_keep_size",
            "SELECT pg_reload_conf()",
        ],
        "was invalidated",
    ),
    "publication": (
        lambda shop: ["DROP PUBLICATION truecut", "CREATE PUBLICATION truecut FOR ALL TABLES"],
        "was made anew",
    ),
    "no publication": (lambda shop: ["DROP PUBLICATION truecut"], "the publication is gone"),
    "operations": (
        lambda shop: ["ALTER PUBLICATION truecut SET (publish_via_partition_root)"],
        "publishes other operations",
    ),
    "operations for a while": (
        lambda shop: [f"ALTER PUBLICATION truecut SET (publish = '{one}')" for one in (INSERTS, EVERYTHING)],
        "may have published other operations for a while",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_gap_begins_a_generation(server: PostgresServer, tmp_path: Path, case: str) -> None:
    """And what comes afterwards is captured."""
    shop = Shop(server, "gap_" + case.replace(" ", "_"))
    capture(shop, tmp_path)
    insert(shop, 1)
    capture(shop, tmp_path)
    insert(shop, 2)
    statements, reason = CASES[case]
    with shop.connect() as connection:
        for statement in statements(shop):
            connection.execute(statement.encode())
        connection.execute("SELECT pg_drop_replication_slot(%s)", (shop.witness,))
    capture(shop, tmp_path)
    insert(shop, 3)
    capture(shop, tmp_path)
    capture(shop, tmp_path)
    told = gaps(tmp_path)
    assert list(told) == [1, 2]
    assert told[1] is None
    assert reason in str(told[2])
    assert [b"3" in one.changes[-1][0] for one in journaled(tmp_path)][-1]


def test_a_publication_that_keeps_something_back_is_refused(server: PostgresServer, tmp_path: Path) -> None:
    """A copy without updates, deletes or truncates is another table. Before anything is made; and while it
    runs: then what was kept back is a gap, also for whoever comes after it was mended."""
    shop = Shop(server, "kept_back", publication=False)
    with shop.connect() as connection:
        connection.execute("CREATE PUBLICATION truecut FOR ALL TABLES WITH (publish = 'insert, update')")
        (found,) = findings(shop.address)
        assert found.fault.code == "TC2155"
        assert "delete, truncate" in found.fault.message
        with pytest.raises(TruecutError, match="TC2155"):
            capture(shop, tmp_path)
        assert connection.execute(SLOTS, (shop.slot,)).fetchone() == (0,)
        connection.execute(found.fault.fix.encode())
        capture(shop, tmp_path)
        connection.execute("ALTER PUBLICATION truecut SET (publish = 'insert, update, delete')")
        for _ in range(2):
            with pytest.raises(TruecutError, match="TC2155"):
                capture(shop, tmp_path)
        connection.execute(found.fault.fix.encode())
        capture(shop, tmp_path)
        assert list(gaps(tmp_path)) == [1, 2, 3]
        connection.execute("SELECT pg_drop_replication_slot(%s)", (shop.slot,))


def test_a_table_taken_out_and_put_in_again_is_a_gap_and_another_one_is_none(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Changes in between are missing, of that table; a new table has no copy that could lack them."""
    shop = Shop(server, "gap_tables", publication=False)
    with shop.connect() as connection:
        connection.execute("CREATE PUBLICATION truecut FOR TABLE lines")
        capture(shop, tmp_path)
        connection.execute("ALTER PUBLICATION truecut ADD TABLE orders")
        capture(shop, tmp_path)
        assert list(gaps(tmp_path)) == [1]
        connection.execute("ALTER PUBLICATION truecut DROP TABLE lines")
        connection.execute("ALTER PUBLICATION truecut ADD TABLE lines")
        capture(shop, tmp_path)
    assert "has changed for public.lines" in str(gaps(tmp_path)[2])


def test_another_server_is_a_gap(server: PostgresServer, tmp_path: Path) -> None:
    """Although slot, publication and tables have the same names."""
    shop = Shop(server, "moved_house")
    capture(shop, tmp_path)
    with postgres_server(version=16, settings=SETTINGS) as other:
        there = Shop(other, "moved_house")
        with there.connect() as connection:  # a slot that was never ours: taken as it stands
            connection.execute(_create(there).encode())
        insert(there, 5)
        capture(there, tmp_path)
        insert(there, 4)
        capture(there, tmp_path)
    assert "another one" in str(gaps(tmp_path)[2])
    assert len(journaled(tmp_path)) == 2


def test_a_gap_that_comes_while_it_reads(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the look with which it began, and before the slot was read: nothing of what was read is appended
    in the generation that ended, for something may be missing before it."""
    shop = Shop(server, "gap_reads", publication=False)
    with shop.connect() as connection:
        connection.execute("CREATE PUBLICATION truecut FOR TABLE lines")
        capture(shop, tmp_path)
        connection.execute("INSERT INTO lines VALUES (1, 'x')")
        portions = Gulp.portions

        def late(gulp: Gulp, *arguments: Any) -> Iterator[list[bytes]]:
            monkeypatch.undo()
            connection.execute("ALTER PUBLICATION truecut DROP TABLE lines")
            connection.execute("INSERT INTO lines VALUES (2, 'x')")
            connection.execute("ALTER PUBLICATION truecut ADD TABLE lines")
            connection.execute("INSERT INTO lines VALUES (3, 'x')")
            return portions(gulp, *arguments)

        monkeypatch.setattr(Gulp, "portions", late)
        capture(shop, tmp_path)
        connection.execute("INSERT INTO lines VALUES (4, 'x')")
        capture(shop, tmp_path)
    assert "has changed for public.lines" in str(gaps(tmp_path)[2])
    held = [entry for entry in LocalReader(tmp_path).read(after=None) if entry.record.kind is Kind.CHANGES]
    assert {entry.position.generation for entry in held} == {2}


def test_a_gap_while_it_streams(server: PostgresServer, tmp_path: Path) -> None:
    """The publication is made anew while a stream runs: found by itself, and gone on behind it."""
    shop = Shop(server, "gap_live")
    journal = LocalJournal(tmp_path)
    running = Capture(shop.address, journal, pace=Pace(look_s=0.05, wait_s=0.01))
    steps: list[str] = []

    def stop(drained: bool) -> bool:
        if running.progress.mode is Mode.TAIL and not steps:
            with shop.connect() as connection:
                connection.execute("DROP PUBLICATION truecut")
                connection.execute("CREATE PUBLICATION truecut FOR ALL TABLES")
            steps.append("anew")
        return bool(running.progress.gap)

    running.run(stop)
    journal.close()
    assert "made anew" in str(gaps(tmp_path)[2])


class Late(LocalJournal):
    """Its disk takes its time while `waits`."""

    waits = False

    def _commit(self, group: list[Submission]) -> None:
        if self.waits:
            threading.Event().wait(2)
        super()._commit(group)


def test_a_gap_while_appends_are_under_way(server: PostgresServer, tmp_path: Path) -> None:
    """They are waited for: the new generation stands behind them."""
    shop = Shop(server, "gap_under_way")
    journal = Late(tmp_path)
    running = Capture(shop.address, journal, pace=Pace(look_s=0.3, wait_s=0.01))
    steps: list[str] = []

    def stop(drained: bool) -> bool:
        if running.progress.mode is Mode.TAIL and not steps:
            journal.waits = True
            with shop.connect() as connection:
                connection.execute("INSERT INTO lines VALUES (1, 'x')")
                connection.execute("DROP PUBLICATION truecut")
                connection.execute("CREATE PUBLICATION truecut FOR ALL TABLES")
            steps.append("anew")
        return bool(running.progress.gap)

    running.run(stop)
    journal.close()
    assert "made anew" in str(gaps(tmp_path)[2])
    assert len(journaled(tmp_path)) == 1


def test_two_tables_whose_names_read_alike_are_two(server: PostgresServer, tmp_path: Path) -> None:
    """a.b.c is a table of the schema a.b and one of the schema a: each is missed."""
    shop = Shop(server, "gap_alike", publication=False)
    with shop.connect() as connection:
        for schema, table in (("a.b", "c"), ("a", "b.c")):
            connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
            connection.execute(f'CREATE TABLE "{schema}"."{table}" (id int)'.encode())
        connection.execute('CREATE PUBLICATION truecut FOR TABLE "a.b"."c", "a"."b.c"')
        capture(shop, tmp_path)
        connection.execute('ALTER PUBLICATION truecut DROP TABLE "a.b"."c"')
        capture(shop, tmp_path)
        connection.execute('ALTER PUBLICATION truecut DROP TABLE "a"."b.c"')
        capture(shop, tmp_path)
    assert list(gaps(tmp_path)) == [1, 2, 3]


def test_a_server_that_goes_while_the_publication_is_made_is_waited_for(server: PostgresServer) -> None:
    """Only what the server says about the publication itself is the user's to mend."""
    shop = Shop(server, "gone_meanwhile", publication=False)
    connection = connect(shop.address)
    server.psql(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
    with pytest.raises(TruecutError) as caught:
        create_publication(connection, shop.address)
    assert (caught.value.fault.code, caught.value.fault.retry) == ("TC2100", Retry.RETRYABLE)
    connection.close()


def test_a_slot_is_given_up_when_its_budget_says_so(server: PostgresServer, tmp_path: Path) -> None:
    """The source keeps nothing for us any more; the next run begins a generation."""
    shop = Shop(server, "budget")
    journal = LocalJournal(tmp_path)
    budget = WalBudget(bytes_max=0, give_up=True)
    running = Capture(shop.address, journal, budget=budget, pace=Pace(look_s=0.05, wait_s=0.01))
    with pytest.raises(TruecutError) as caught:
        running.run(lambda drained: False)
    journal.close()
    assert caught.value.fault.code == "TC2115"
    assert server.psql(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{shop.slot}'") == "0"
    capture(shop, tmp_path)
    assert "is gone" in str(gaps(tmp_path)[2])


def test_a_slot_that_somebody_else_uses_is_left_to_them(server: PostgresServer, tmp_path: Path) -> None:
    """Their session goes on; ours says who it is."""
    shop = Shop(server, "shared")
    capture(shop, tmp_path)
    stranger = replace(shop.address, slot=shop.slot)
    with _streaming(shop):
        journal = LocalJournal(tmp_path)
        with pytest.raises(TruecutError) as caught:
            Capture(stranger, journal, pace=Pace(free_s=0.1)).run(lambda drained: drained)
        journal.close()
        assert caught.value.fault.code == "TC2108"
        assert server.psql("SELECT count(*) FROM pg_stat_replication") == "1"


def _streaming(shop: Shop) -> _Stranger:
    return _Stranger(shop)


class _Stranger:
    """A session that streams from the slot, under a name of its own."""

    def __init__(self, shop: Shop) -> None:
        self._command = (
            f"START_REPLICATION SLOT {shop.slot} LOGICAL 0/0 (proto_version '1', publication_names 'truecut')"
        )
        self._conninfo = shop.conninfo + " replication=database application_name=stranger"

    def __enter__(self) -> None:
        from psycopg import pq

        self._pg = pq.PGconn.connect(self._conninfo.encode())
        assert self._pg.exec_(self._command.encode()).status == pq.ExecStatus.COPY_BOTH

    def __exit__(self, *_: object) -> None:
        self._pg.finish()


def test_a_table_that_is_dropped_is_no_gap(server: PostgresServer, tmp_path: Path) -> None:
    """It is out of the publication, and nothing is missing for that: what was written to it before comes, and
    the others go on in the same generation. One that is only taken out is a gap."""
    shop = Shop(server, "dropped_table", publication=False)
    with shop.connect() as connection:
        connection.execute('CREATE PUBLICATION truecut FOR TABLE orders, lines, "Odd Näme"')
        shop.witness_now()
        capture(shop, tmp_path)
        connection.execute("INSERT INTO lines VALUES (1, 'the last one')")
        connection.execute("DROP TABLE lines")
        connection.execute("INSERT INTO orders VALUES (1, 'x', 1, 'sad')")
        capture(shop, tmp_path)
        assert generations(tmp_path) == [1]
        assert journaled(tmp_path) == shop.committed()
        connection.execute('ALTER PUBLICATION truecut DROP TABLE "Odd Näme"')
        capture(shop, tmp_path)
        assert generations(tmp_path) == [1, 2]
