"""Sessions that cannot be relied upon: a server that falls silent, an address of two servers."""

from __future__ import annotations

import os
import signal

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.shop import Shop
from truecut.errors import Retry, TruecutError
from truecut.sources.postgres import server as asking
from truecut.sources.postgres.tail import Tail


def test_a_server_that_never_answers_is_not_waited_for(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel acknowledges, its process does not answer: the question ends as one to a server that is
    away, and a question that is answered in time ends nothing."""
    shop = Shop(postgres, "silent")
    identity = asking.identify(shop.address)
    connection = asking.connect(shop.address)
    asking.look(connection, shop.address, identity)
    asking.look(connection, shop.address, identity)
    monkeypatch.setattr(asking, "ANSWER_S", 0.3)
    os.kill(connection.info.backend_pid, signal.SIGSTOP)
    try:
        with pytest.raises(TruecutError, match="TC2100"):
            asking.look(connection, shop.address, identity)
    finally:
        os.kill(connection.info.backend_pid, signal.SIGCONT)
        connection.close()


def test_a_session_at_another_server_is_not_believed(postgres: PostgresServer) -> None:
    """Who was asked for its identity and who is read from must be one: another server under the address, or
    another timeline, is refused, by gulps and by the stream; a run tries again."""
    shop = Shop(postgres, "one_of_two")
    identity = asking.identify(shop.address)
    with postgres_server() as other, asking.connect(shop.address) as connection:
        asking.require_same(connection, shop.address, identity)
        elsewhere = Shop(other, "two_of_two")
        with asking.connect(elsewhere.address) as wrong, pytest.raises(TruecutError, match="TC2152") as found:
            asking.require_same(wrong, elsewhere.address, identity)
        assert found.value.fault.retry is Retry.RETRYABLE
        with elsewhere.connect() as made:
            made.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (elsewhere.slot,))
        with pytest.raises(TruecutError, match="TC2152"):
            Tail(elsewhere.address, after=0, identity=identity)
