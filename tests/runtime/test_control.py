"""The control store's laws, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.e2e.world import eventually
from tests.postgres_server import PostgresServer, postgres_server
from truecut.config.secret import Secret
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.runtime import database
from truecut.runtime.control import ControlStore, open_control

LEASE_MS = 60_000


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Secret:
    if request.param == "sqlite":
        return Secret(str(tmp_path / "control.db"))
    server: PostgresServer = request.getfixturevalue("postgres")
    return Secret(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")


@pytest.fixture
def store(address: Secret) -> Iterator[ControlStore]:
    control = open_control(address, pipeline="p")
    control.forget()
    yield control
    control.close()


def test_a_sink_has_one_owner(store: ControlStore, address: Secret) -> None:
    """Two runners never hold the same lease."""
    other = open_control(address, pipeline="p")
    first = store.claim("a", ["s1", "s2", "s3"], duration_ms=LEASE_MS, count_max=2)
    second = other.claim("b", ["s1", "s2", "s3"], duration_ms=LEASE_MS, count_max=3)
    other.close()
    assert set(first) == {"s1", "s2"}
    assert set(second) == {"s3"}


def test_a_lease_that_ran_out_is_free_for_the_next(store: ControlStore) -> None:
    """Its owner is told so, and the next one may have it at once."""
    store.claim("a", ["s"], duration_ms=-1, count_max=1)
    held, _ = store.heartbeat("a", duration_ms=LEASE_MS, report={}, ours=["s"])
    assert held == set()
    assert set(store.claim("b", ["s"], duration_ms=LEASE_MS, count_max=1)) == {"s"}


def test_every_claim_gets_a_token_never_given_before(store: ControlStore) -> None:
    """A released or expired lease goes to the next owner with a larger token."""
    first = store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"]
    store.heartbeat("a", duration_ms=LEASE_MS, report={}, ours=[])  # given back
    second = store.claim("b", ["s"], duration_ms=-1, count_max=1)["s"]
    third = store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"]
    assert first < second < third
    store.forget()  # lost
    assert store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"] > third


def test_a_lease_that_ran_out_is_not_renewed(store: ControlStore) -> None:
    """Even when nobody took it: what happened meanwhile is unknown."""
    store.claim("a", ["gone"], duration_ms=-1, count_max=1)
    store.claim("a", ["kept"], duration_ms=LEASE_MS, count_max=1)
    held, alive = store.heartbeat("a", duration_ms=LEASE_MS, report={})
    assert held == {"kept"}
    assert alive == 1


def test_a_raised_token_is_above_what_the_sink_has_seen(store: ControlStore) -> None:
    """A lost store starts again at 1; the sinks know better."""
    seen = store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"] + 10**6
    raised = store.raise_token("a", {"s": seen}, duration_ms=LEASE_MS)
    assert raised.keys() == {"s"}
    assert raised["s"] > seen
    assert store.raise_token("b", {"s": seen + 99}, duration_ms=LEASE_MS) == {}


def test_two_stores_do_not_raise_to_one_token(tmp_path: Path) -> None:
    """A sink tells two runners, of two stores, the same: with one token both would own it."""
    stores = [open_control(Secret(str(tmp_path / name)), pipeline="p") for name in ("one", "other")]
    seen = 1 + max(one.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"] for one in stores)
    raised = {one.raise_token("a", {"s": seen}, duration_ms=LEASE_MS)["s"] for one in stores}
    for one in stores:
        one.close()
    assert len(raised) == 2


def test_a_new_source_gets_a_new_generation(store: ControlStore) -> None:
    """Generations grow when the source's identity changes, and stay when it does not."""
    assert [store.generation(i) for i in ("x", "y", "x", "y")] == [1, 2, 1, 2]
    assert store.generation("y", at_least=7) == 7
    assert store.generation("z") == 8


def test_reports_come_back_as_they_were_written(store: ControlStore) -> None:
    """`status` shows what the runners said last, and whether one is alive."""
    store.heartbeat("a", duration_ms=LEASE_MS, report={"head": "h"})
    store.report_sinks({"s": {"state": "behind"}, "t": {"state": "current"}})
    store.report_sinks({"s": {"state": "current"}})
    reports = store.reports()
    assert reports.running
    assert reports.runners == {"a": {"head": "h"}}
    assert reports.sinks == {"s": {"state": "current"}, "t": {"state": "current"}}
    store.leave("a")
    assert not store.reports().running


def test_pipelines_do_not_see_each_other(store: ControlStore, address: Secret) -> None:
    """One database may serve many pipelines."""
    other = open_control(address, pipeline="q")
    store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)
    assert set(other.claim("b", ["s"], duration_ms=LEASE_MS, count_max=1)) == {"s"}
    other.forget()
    assert store.heartbeat("a", duration_ms=LEASE_MS, report={})[0] == {"s"}
    other.close()


def test_a_damaged_store_is_a_clear_error(tmp_path: Path) -> None:
    """A truncated or foreign file is refused with the remedy, exit 3, and left as it is."""
    path = tmp_path / "control.db"
    control = open_control(Secret(str(path)), pipeline="p")
    control.claim("a", [f"s{i}" for i in range(2000)], duration_ms=LEASE_MS, count_max=2000)
    control.close()
    damaged = path.read_bytes()[:5000]
    for content in (damaged, b"this is not a database, it is a text of some length" * 20):
        path.write_bytes(content)
        with pytest.raises(TruecutError) as caught:
            open_control(Secret(str(path)), pipeline="p").reports()
        assert caught.value.exit_code == ExitCode.UNFIT_ENVIRONMENT
        assert "Move the file away" in caught.value.fault.fix
        assert path.read_bytes() == content


def test_an_unreachable_postgres_says_so_without_its_password(tmp_path: Path) -> None:
    """No part of the connection string appears in the error."""
    with pytest.raises(TruecutError) as caught:
        open_control(Secret("postgresql://user:hunter2@127.0.0.1:1/nowhere"), pipeline="p")
    assert "hunter2" not in str(caught.value)
    assert caught.value.fault.code == "TC5011"


def test_what_the_runner_does_not_know_of_is_given_back(store: ControlStore) -> None:
    """A claim whose answer was lost: the lease is nobody's, and the next claim has a larger token."""
    known = store.claim("a", ["known"], duration_ms=LEASE_MS, count_max=1)
    unheard = store.claim("a", ["unheard"], duration_ms=LEASE_MS, count_max=1)
    held, _ = store.heartbeat("a", duration_ms=LEASE_MS, report={}, ours=known)
    assert held == {"known"} == store.held("a")
    again = store.claim("b", ["known", "unheard"], duration_ms=LEASE_MS, count_max=2)
    assert set(again) == {"unheard"}
    assert again["unheard"] > unheard["unheard"]


# --- a store that is away for a while -----------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be stopped."""
    with postgres_server() as running:
        yield running


def _open(server: PostgresServer) -> ControlStore:
    return open_control(Secret(f"postgresql://postgres@127.0.0.1:{server.port}/postgres"), pipeline="p")


def _refused(store: ControlStore) -> TruecutError:
    with pytest.raises(TruecutError) as caught:
        store.heartbeat("a", duration_ms=LEASE_MS, report={})
    assert caught.value.fault.retry is Retry.RETRYABLE
    return caught.value


def test_a_server_that_was_restarted_is_found_again(server: PostgresServer) -> None:
    """While it is away every call says so; afterwards the same store goes on, with the same leases."""
    with closing(_open(server)) as store:
        store.forget()
        store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)
        server.stop()
        told = [_refused(store).fault.code for _ in range(3)]
        server.start()
        assert told == ["TC5011"] * 3
        assert store.held("a") == {"s"}


def test_a_database_that_was_made_anew_gets_its_tables(server: PostgresServer) -> None:
    """Restored from nothing: leases are gone, as after the loss of any store."""
    with closing(_open(server)) as store:
        store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)
        server.psql("DROP TABLE truecut_lease, truecut_runner, truecut_sink, truecut_source")
        _refused(store)
        assert store.held("a") == set()


def test_a_server_that_says_nothing_is_not_waited_for(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of everything, it takes what is sent and answers nothing."""
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    with closing(_open(server)) as store:
        store.forget()
        store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)
        with _silent(server):
            _refused(store)
        monkeypatch.setattr(database, "ANSWER_S", 60.0)
        assert store.held("a") == {"s"}


@contextmanager
def _silent(server: PostgresServer) -> Iterator[None]:
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


def test_a_locked_file_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program holds it: retryable, and it works once the lock is gone."""
    monkeypatch.setattr(database, "CONNECT_S", 0.1)
    path = tmp_path / "control.db"
    with (
        closing(open_control(Secret(str(path)), pipeline="p")) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)
        other.execute("BEGIN EXCLUSIVE")
        told = [_refused(store).fault.code for _ in range(2)]
        other.execute("ROLLBACK")
        assert told == ["TC5014", "TC5014"]
        assert store.held("a") == {"s"}


def test_a_server_lets_one_writer_in_at_a_time(server: PostgresServer) -> None:
    """The advisory lock: who comes second waits for the first one's transaction to end, and sees it."""
    dsn = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
    given: dict[str, int] = {}
    with closing(_open(server)) as store, psycopg.connect(dsn) as first:
        store.forget()
        first.execute("SELECT pg_advisory_xact_lock(hashtextextended('truecut/p', 0))")
        second = threading.Thread(
            target=lambda: given.update(store.claim("b", ["s", "t"], duration_ms=LEASE_MS, count_max=2))
        )
        second.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: server.psql(waiting) == "1", pause_s=0.1, what="the second one waits")
        first.execute(f"INSERT INTO truecut_lease VALUES ('p', 's', 'a', 7, {2**62})")
        first.commit()
        second.join(timeout=60)
    assert set(given) == {"t"}
