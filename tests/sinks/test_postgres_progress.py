"""A statement of a PostgreSQL sink that works for long is seen to work; one that waits for a lock is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from tests.e2e.world import eventually
from truecut.pulse import Pulse
from truecut.sinks.postgres import progress, server
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.server import begin, connect, run

# Each row is computed, as those of a large seed are; it ends when somebody says so, and not by a clock.
_WORK = """
DO $$ BEGIN
  LOOP
    PERFORM sum(i) FROM generate_series(1, 20000) i;
    EXIT WHEN EXISTS (SELECT FROM public.over);
  END LOOP;
END $$
"""


@pytest.fixture
def watched(target: PostgresAddress, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """Another session; statements are looked at from their beginning."""
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with closing(psycopg.connect(target.dsn.reveal(), autocommit=True)) as other:
        other.execute("CREATE TABLE public.over (id int); CREATE TABLE public.t (id int)")
        yield other


@contextmanager
def _running(target: PostgresAddress, sql: str) -> Iterator[Pulse]:
    """As a sink's thread does it."""
    pulse, begun = Pulse(), threading.Event()

    def work() -> None:
        with pulse.taken(), closing(connect(target)) as connection, suppress(psycopg.Error):
            begin(connection)
            begun.set()
            run(connection, sql)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    yield pulse
    thread.join()


def _felt(pulse: Pulse) -> int:
    """How often a look has found it at work; what was begun by ourselves left out."""
    _, _, *told = pulse.read()
    return int(sum(told))


def test_a_statement_that_works_is_felt(target: PostgresAddress, watched: psycopg.Connection) -> None:
    """However long it takes, without a word of its own: the deadline never comes."""
    with _running(target, _WORK) as pulse:
        try:
            eventually(lambda: _felt(pulse) > 2, what="it is seen at work")
        finally:
            watched.execute("INSERT INTO public.over VALUES (1)")


def test_a_statement_that_waits_for_a_lock_is_not(
    target: PostgresAddress, watched: psycopg.Connection
) -> None:
    """It was looked at, again and again, and is late in the end; also where others work beside it."""
    with psycopg.connect(target.dsn.reveal()) as holder:
        holder.execute("LOCK TABLE public.t")
        with _running(target, "INSERT INTO public.t SELECT 1") as pulse:
            *_, looks = server._progress.values()
            eventually(lambda: _waiting(watched), what="it waits for the lock")
            before, asked = _felt(pulse), looks.asked
            eventually(lambda: _felt(pulse) >= 0 and looks.asked > asked + 3, what="it was looked at")
            assert _felt(pulse) == before
            holder.rollback()


def test_a_server_that_cannot_be_asked_tells_of_no_work(target: PostgresAddress) -> None:
    """Then a statement has its one deadline, as before."""
    looks = progress.Progress("host=127.0.0.1 port=1 connect_timeout=1", 1)
    with looks.running():
        looks.look()
        assert (looks.read(), looks.asked) == (0.0, 0)


def _waiting(other: psycopg.Connection) -> bool:
    return other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None
