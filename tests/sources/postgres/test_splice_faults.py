"""One story with everything that makes a splice hard; told right, and with each fault put into the code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres.busy import BIG, SETUP
from tests.sources.postgres.copying import Content, Copying, at_source_now, copying
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.splice_faults import FAULTS, Story, injected
from truecut.sources.contract import Stopped

SETTINGS = ("fsync=off", "wal_level=logical", "max_replication_slots=30")
_numbers = count(1)


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param, settings=SETTINGS) as running:
        yield running


def test_the_story_told_right(server: PostgresServer, tmp_path: Path) -> None:
    """Content and places agree with the source."""
    shop = Shop(server, f"story{next(_numbers)}")
    with copying(shop, tmp_path) as copy:
        for at, held in told(copy, Story(shop)):
            assert copy.seeded("items", at) == held


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each of them gives other content than the source has, at one of the places, or what no key has."""
    shop = Shop(server, f"story{next(_numbers)}")
    story = Story(shop)
    with copying(shop, tmp_path) as copy:
        injected(monkeypatch, fault, story)
        assert any(_is_wrong(copy, at, held) for at, held in told(copy, story))


def _is_wrong(copy: Copying, at: int, held: Content) -> bool:
    try:
        return copy.seeded("items", at) != held
    except Stopped as stopped:
        return {fault.code for fault in stopped.faults.values()} == {"TC2137"}


def told(copy: Copying, story: Story) -> list[tuple[int, Content]]:
    """What happens; and what the table holds at two places of it."""
    shop = copy.shop
    with (
        shop.connect() as plain,
        psycopg.connect(shop.conninfo) as first,
        psycopg.connect(shop.conninfo) as late,
    ):
        plain.execute("SET synchronous_commit = local")
        plain.execute(SETUP)
        plain.execute(f"INSERT INTO items SELECT i, 0, {BIG.format('i')}, '' FROM generate_series(1, 90) i")
        edition = copy.begin("items")
        for session in (first, late):
            session.execute("SET synchronous_commit = local")
        story.parts.update([_subtransaction(first)])
        plain.execute("UPDATE items SET n = 2 WHERE id = 2")  # its id is above that of the subtransaction
        with _logged_but_not_visible(shop, "UPDATE items SET n = 3 WHERE id = 3"):
            copy.read(edition, 0)
        plain.execute("UPDATE items SET n = 4 WHERE id = 4")  # whose large value is not told
        plain.execute("INSERT INTO items VALUES (7000, 7, 'tail', NULL)")
        first.commit()
        for unit in range(1, len(edition.plan.parts)):
            copy.read(edition, unit)
        late.execute("UPDATE items SET n = 5 WHERE id = 5")
        places = [_now(shop)]
        story.began_before = _next_id(plain)
        late.commit()
        plain.execute("TRUNCATE items")
        plain.execute("INSERT INTO items VALUES (1, 1, NULL, 'after'), (80, 80, NULL, 'after')")
        places.append(_now(shop))
        copy.wait_for(places[-1][0])
    return places


def _now(shop: Shop) -> tuple[int, Content]:
    at, held = at_source_now(shop, ["items"])
    return at, held["items"]


def _subtransaction(session: psycopg.Connection[Any]) -> tuple[int, int]:
    """One that is under way, with a change by a part of it."""
    session.execute("SELECT pg_current_xact_id()")
    session.execute("SAVEPOINT s")
    row = session.execute(
        "UPDATE items SET n = 1 WHERE id = 1 RETURNING pg_current_xact_id()::text, xmin::text"
    ).fetchone()
    session.execute("RELEASE s")
    assert row is not None
    return int(row[0]), int(row[1])


def _next_id(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert row is not None
    return int(row[0])


class _logged_but_not_visible:
    """A transaction whose commit is in the log, and which waits for a standby before anybody sees it."""

    def __init__(self, shop: Shop, statement: str) -> None:
        self._shop = shop
        self._statement = statement
        self._thread = threading.Thread(target=self._commit)

    def _commit(self) -> None:
        with self._shop.connect() as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute(self._statement)

    def __enter__(self) -> None:
        self._demand("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        self._thread.start()
        with self._shop.connect() as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            deadline = time.monotonic() + PATIENCE_S
            while connection.execute(waiting).fetchone() != (1,):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def __exit__(self, *error: object) -> None:
        self._demand("ALTER SYSTEM RESET synchronous_standby_names")
        self._thread.join(PATIENCE_S)

    def _demand(self, statement: str) -> None:
        """And wait until it holds."""
        with self._shop.connect() as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(statement)
            connection.execute("SELECT pg_reload_conf()")
        wanted = "" if "RESET" in statement else "nobody"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with self._shop.connect() as connection:
                if connection.execute("SHOW synchronous_standby_names").fetchone() == (wanted,):
                    return
            assert time.monotonic() < deadline
            time.sleep(0.02)
