"""Sessions that cannot be relied upon: a server that falls silent, an address of two servers."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.shop import Shop
from truecut.core.visibility import Snapshot
from truecut.errors import Retry, TruecutError
from truecut.sources.postgres import server as asking
from truecut.sources.postgres import tail as tails
from truecut.sources.postgres import unit_read
from truecut.sources.postgres.backlog import Gulp
from truecut.sources.postgres.schemas import Catalog
from truecut.sources.postgres.tail import Tail
from truecut.sources.postgres.unit_read import rows_of
from truecut.sources.postgres.units import Plan, describe, plan


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


NO_COLUMNS = b"R" + b"\0\0\0\1" + b"public\0t\0" + b"d" + b"\0\0"
QUESTIONS: dict[str, Callable[[asking.Connection, Shop], object]] = {
    "whose sessions": lambda connection, shop: asking.end_others(connection, shop.address),
    "tables to publish": lambda connection, shop: asking.publish_more(connection, shop.address),
    "what is published": lambda connection, shop: asking.kept_back(connection, shop.address),
    "which tables": lambda connection, shop: asking.existing(connection, shop.address, [1]),
    "a message": lambda connection, shop: asking.beat(connection, shop.address),
    "a publication": lambda connection, shop: asking.create_publication(connection, shop.address),
    "a slot": lambda connection, shop: asking.create_slot(connection, shop.address),
    "a slot further on": lambda connection, shop: asking.advance(connection, shop.address, 1),
    "no slot": lambda connection, shop: asking.drop_slot(connection, shop.address),
    "changes": lambda connection, shop: list(Gulp(after=0, flushed=1).portions(connection, shop.address)),
    "rows of a unit": lambda connection, shop: list(rows_of(connection, _whole(shop), 0)),
    "columns": lambda connection, shop: Catalog(connection, shop.address).describe(NO_COLUMNS),
}


def _whole(shop: Shop) -> Plan:
    """A table in one unit."""
    with asking.connect(shop.address) as connection:
        (oid,) = connection.execute("SELECT 'public.lines'::regclass::oid::int8").fetchone() or (0,)
        relation = describe(connection, shop.address, oid)
        assert relation is not None
        return plan(connection, shop.address, relation)


def test_a_unit_that_is_not_answered_is_left(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its session falls silent once it has its snapshot; the unit ends as one of a server that is away."""
    shop = Shop(postgres, "silent_unit")
    address = replace(shop.address, purpose="unit")
    stopped: list[int] = []

    def stop(_: Snapshot) -> bool:
        who = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{address.application}'"
        stopped.append(int(postgres.psql(who)))
        os.kill(stopped[0], signal.SIGSTOP)
        return True

    whole = _whole(shop)
    monkeypatch.setattr(asking, "ANSWER_S", 1.0)
    monkeypatch.setattr(unit_read, "LOCK_S", 1)
    try:
        with pytest.raises(TruecutError, match="TC2100"):
            unit_read.read_unit(address, whole, 0, tmp_path / "unit", fits=stop)
    finally:
        os.kill(stopped[0], signal.SIGCONT)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_of_a_capture_waits_for_ever(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """None that a fence asks, nor any other, of a session whose process is stopped."""
    shop = _silent_shop(postgres)
    monkeypatch.setattr(asking, "ANSWER_S", 0.2)
    monkeypatch.setattr(asking, "WORK_S", 0.2)
    connection = asking.connect(shop.address)
    os.kill(connection.info.backend_pid, signal.SIGSTOP)
    try:
        with pytest.raises(TruecutError, match="TC2100"), asking.answering(shop.address, "answer"):
            QUESTIONS[question](connection, shop)
    finally:
        os.kill(connection.info.backend_pid, signal.SIGCONT)
        connection.close()


def _silent_shop(server: PostgresServer, made: list[Shop] = []) -> Shop:  # noqa: B006 - one for all of them
    if not made:
        made.append(Shop(server, "silent_questions"))
    return made[0]


def test_a_stream_that_falls_silent_is_left(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle server answers when it is asked, however long nothing happens; a stopped one does not."""
    shop = Shop(postgres, "silent_stream")
    monkeypatch.setattr(tails, "SILENCE_S", 1.5)
    monkeypatch.setattr(tails, "STATUS_S", 0.1)
    with shop.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (shop.slot,))
        tail = Tail(shop.address, after=0, identity=asking.identify(shop.address))
        heard = [tail.hear(durable=0, timeout_s=0.05).idle_at for _ in range(40)]
        assert sum(idle is not None for idle in heard) > 3, "it was asked, and has answered"
        (pid,) = connection.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (shop.slot,)
        ).fetchone() or (0,)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TruecutError, match="TC2100"):
                any(tail.hear(durable=0, timeout_s=0.05) is None for _ in itertools.count())
        finally:
            os.kill(pid, signal.SIGCONT)
            tail.close()


def test_two_that_were_promoted_from_one_are_two(postgres: PostgresServer) -> None:
    """Of one system, and on timelines of one number: what tells them apart is asked in the same session as
    where the timelines part."""
    shop = Shop(postgres, "promoted_twice")
    identity = replace(asking.identify(shop.address), started="2001-01-01 00:00:00+00")
    with asking.connect(shop.address) as connection:
        with pytest.raises(TruecutError, match="TC2152"):
            asking.require_same(connection, shop.address, identity)
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (shop.slot,))
        with pytest.raises(TruecutError, match="TC2152"):
            Tail(shop.address, after=0, identity=identity)


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
