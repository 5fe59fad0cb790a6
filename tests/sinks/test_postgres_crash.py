"""The sink's PostgreSQL dies, all of it at once, at each step of a delivery; it recovers from its log when it
is started again, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sinks.database import cursor_of, read, sink
from tests.sinks.test_crash import AFTER, BEFORE, POINTS, SEED, WINDOW
from truecut.config.secret import Secret
from truecut.errors import Retry
from truecut.model.order import Receipt
from truecut.sinks.contract import Packet
from truecut.sinks.postgres import sink as sink_module
from truecut.sinks.postgres import transaction
from truecut.sinks.postgres.address import PostgresAddress
from truecut.testing.orders import applied, changes, order, packets, position, rows, seed

# Whoever has committed and waits for a standby to have it, too: it counts, and nobody has been told.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE '{0}%'"
PROBE = "SELECT pg_logical_emit_message(true, 'probe', '')"


@pytest.fixture(scope="module", params=ON_BOTH)
def mortal(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server of these tests alone."""
    with postgres_server(version=request.param) as server:
        yield server


@pytest.fixture
def target(mortal: PostgresServer) -> PostgresAddress:
    name = f"dies_{mortal.psql('SELECT count(*) FROM pg_database')}"
    made = PostgresAddress(Secret(mortal.create_database(name)))
    applied(sink(made).recover(epoch=1, token=1))
    applied(sink(made).apply(order(None, 4, t=seed(), log=seed("append")), packets(t=SEED, log=SEED)))
    return made


def deliver(target: PostgresAddress, *, token: int) -> Receipt:
    """One order for a mirror and an append table."""
    found = [Packet("main.t", rows(WINDOW)), Packet("main.log", rows(WINDOW))]
    return sink(target).apply(order(4, 5, token=token, t=changes(), log=changes("append")), iter(found))


def assert_all_or_nothing(target: PostgresAddress, *, committed: bool) -> None:
    """Data, log and cursor together; the next owner has the order's effect, once."""
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == (AFTER if committed else BEFORE)
    assert read(target, "SELECT count(*) FROM main.log") == [(len(SEED) + (len(WINDOW) if committed else 0),)]
    assert cursor_of(target)[0] == str(position(5 if committed else 4))
    applied(sink(target).recover(epoch=2, token=9))
    assert deliver(target, token=9).outcome == ("already" if committed else "applied")
    assert read(target, "SELECT id, value FROM main.t ORDER BY 1") == AFTER
    told = read(
        target, "SELECT _truecut_op, id, value FROM main.log ORDER BY _truecut_position, _truecut_seq, id"
    )
    assert told[:2] == [("read", 1, "a"), ("read", 2, "b")]
    assert sorted(told[2:]) == [("delete", 2, "b"), ("insert", 3, "c"), ("update", 1, "a1")]


@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_dies_at_a_step(
    mortal: PostgresServer, target: PostgresAddress, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """All of the order, or nothing, and an answer that says to try again; never a part of it."""

    def die(name: str) -> None:
        if name == point:
            monkeypatch.undo()
            mortal.stop()
            mortal.start()

    for module in (transaction, sink_module):
        monkeypatch.setattr(module, "failpoint", die)
    if point == "after_takeover":
        receipt = sink(target).recover(epoch=2, token=2)
    else:
        receipt = deliver(target, token=1)
    if receipt.outcome == "failed":
        assert receipt.fault is not None
        assert (receipt.fault.code, receipt.fault.retry) == ("TC4030", Retry.RETRYABLE)
    else:
        assert POINTS[point], "it said that it was carried out"
    assert_all_or_nothing(target, committed=POINTS[point])


def test_a_server_that_dies_when_it_has_committed(
    mortal: PostgresServer, target: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost: the receipt is a failure, the cursor says that the order is there, and it has no
    second effect."""
    monkeypatch.setattr(
        transaction, "failpoint", lambda name: _no_answers(mortal) if name == "before_sink_commit" else None
    )
    receipts: list[Receipt] = []
    thread = threading.Thread(target=lambda: receipts.append(deliver(target, token=1)))
    thread.start()
    while mortal.psql(WAITING.format("commit")) != "1":
        assert thread.is_alive()
    mortal.stop()
    thread.join(PATIENCE_S)
    mortal.start()
    mortal.psql("ALTER SYSTEM RESET synchronous_standby_names")
    mortal.psql("SELECT pg_reload_conf()")
    monkeypatch.undo()
    assert [receipt.outcome for receipt in receipts] == ["failed"]
    assert_all_or_nothing(target, committed=True)


def _no_answers(server: PostgresServer) -> None:
    """From now on every commit waits for a standby that there is not."""
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.psql("SELECT pg_reload_conf()")
    threading.Thread(target=_probe, args=(server,), daemon=True).start()
    while server.psql(WAITING.format("select pg_logical")) == "0":
        pass


def _probe(server: PostgresServer) -> None:
    with suppress(psycopg.Error), psycopg.connect(server.conninfo(), autocommit=True) as connection:
        while True:
            connection.execute(PROBE)
