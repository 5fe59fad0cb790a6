"""The control store's laws, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from truecut.config.secret import Secret
from truecut.errors import ExitCode, TruecutError
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


def test_every_claim_gets_a_token_never_given_before(store: ControlStore) -> None:
    """A released or expired lease goes to the next owner with a larger token."""
    first = store.claim("a", ["s"], duration_ms=LEASE_MS, count_max=1)["s"]
    store.release("a", ["s"])
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
    assert store.raise_token("a", {"s": seen}, duration_ms=LEASE_MS) == {"s": seen + 1}
    assert store.raise_token("b", {"s": seen + 99}, duration_ms=LEASE_MS) == {}


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
