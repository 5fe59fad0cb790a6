"""Capture goes on by itself: who may capture, what is tried again, what is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.e2e.world import eventually
from tests.patience import PATIENCE_S
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.runtime import capture_lease, capture_watch
from truecut.runtime.capture_lease import CaptureLease, lease_lost
from truecut.runtime.capture_watch import PAUSE_MAX_S, PAUSE_MIN_S, watch
from truecut.runtime.control import ControlStore, open_control
from truecut.sources.postgres import faults

LONG_MS = 600_000


class Work:
    """Stands where a capture and its journal would: each run does the next thing of a list."""

    def __init__(self, *things: Callable[[], None]) -> None:
        self.things = list(things)
        self.check: Callable[[], None] = lambda: None
        self.opened = self.closed = 0

    def open(self) -> Any:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def make(self, journal: Any, check: Callable[[], None]) -> Any:
        self.check = check
        return self

    def run(self, stop: Callable[[bool], bool]) -> None:
        self.things.pop(0)()


def fail(error: TruecutError) -> Callable[[], None]:
    def thing() -> None:
        raise error

    return thing


def store_at(folder: Path) -> ControlStore:
    return open_control(Secret(str(folder / "control.db")), pipeline="shop/capture")


def lease_of(store: ControlStore, owner: str = "one", duration_ms: int = LONG_MS) -> CaptureLease:
    return CaptureLease(store, owner=owner, source="slot", duration_ms=duration_ms)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    found = store_at(tmp_path)
    yield found
    found.close()


def watched(lease: CaptureLease, work: Work, wait: Callable[[float], object] = lambda _: None) -> None:
    watch(lease, work.open, work.make, stop=lambda drained: False, wait=wait)
    assert work.opened == work.closed


def test_a_control_store_that_is_away_is_waited_for(store: ControlStore, tmp_path: Path) -> None:
    """Also by whoever has no lease yet: the standby must be there when the store is back."""
    store.close()
    path = tmp_path / "control.db"
    path.rename(tmp_path / "elsewhere")
    path.mkdir()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            path.rmdir()
            (tmp_path / "elsewhere").rename(path)

    watched(lease_of(store), Work(lambda: None), wait)
    assert len(waits) == 3


def test_what_passes_is_tried_again_and_what_does_not_is_raised(store: ControlStore) -> None:
    """The lease is given back and the journal closed each time."""
    again = [faults.unreachable("x"), lease_lost(), TruecutError("TC6003", "fenced", fix="none")]
    work = Work(*map(fail, again), fail(faults.refused("somebody")))
    with pytest.raises(TruecutError, match="TC2101"):
        watched(lease_of(store), work)
    assert (work.opened, work.closed, work.things) == (4, 4, [])
    assert lease_of(store, "another").acquire()


def test_pauses_grow_and_begin_anew_after_a_run_that_lasted(
    store: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that ran for weeks is not kept waiting for what went wrong when it began."""
    waits: list[float] = []
    quick, last = [fail(faults.unreachable("x"))] * 9, lambda: None
    watched(lease_of(store), Work(*quick, last), waits.append)
    assert all(one <= min(PAUSE_MAX_S, PAUSE_MIN_S * 2**n) for n, one in enumerate(waits))
    assert waits[-1] > PAUSE_MAX_S / 4
    monkeypatch.setattr(capture_watch, "PAUSE_MIN_S", 0.001)
    monkeypatch.setattr(capture_watch, "PAUSE_MAX_S", 0.3)

    def long() -> None:
        time.sleep(0.31)
        raise faults.unreachable("x")

    watched(lease_of(store), Work(*quick, long, last), waits.append)
    assert waits[-1] <= 0.001


def test_a_lease_is_one_process_s_until_it_is_released(store: ControlStore) -> None:
    """And nobody passes its check without it: not before, not after."""
    one, other = lease_of(store), lease_of(store, "two")
    for lease in (one, other):
        with pytest.raises(TruecutError, match="TC2114"):
            lease.check()
    assert one.acquire()
    assert not other.acquire()
    one.check()
    one.release()
    with pytest.raises(TruecutError, match="TC2114"):
        one.check()
    assert other.acquire()
    other.check()
    other.release()


class Granting:
    """A store that gives and renews; the last renewal was answered when `renewed` says so. `away`: it says
    nothing to renewals."""

    def __init__(self) -> None:
        self.renewed = 0
        self.away = False

    def claim(self, owner: str, sources: list[str], **_: Any) -> dict[str, int]:
        return dict.fromkeys(sources, 1)

    def heartbeat(self, owner: str, *, ours: list[str], **_: Any) -> tuple[set[str], int]:
        self.renewed += 1
        if self.away:
            raise faults.unreachable("x")
        return set(ours), 1

    def leave(self, owner: str) -> None:
        pass


def test_a_lease_lasts_from_its_last_renewal_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewed by itself it does not run out; without the store's answers it does, a duration after the last
    one was asked for."""
    seconds = [0.0]
    monkeypatch.setattr(capture_lease, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    store = Granting()
    lease = lease_of(cast("ControlStore", store), duration_ms=125)  # an eighth: exact

    def renewals() -> None:
        """Two: the first may have been asked for before."""
        before = store.renewed
        eventually(lambda: store.renewed >= before + 2, pause_s=0.01, what="it is renewed")

    assert lease.acquire()
    for _ in range(3):
        seconds[0] += 7 / 64
        renewals()
        lease.check()
    store.away = True
    renewals()
    seconds[0] += 7 / 64
    lease.check()
    renewals()
    seconds[0] += 1 / 64
    assert is_lost(lease)
    lease.release()


class Slow(Granting):
    """One answer takes its time, by the clock of the test; then the store is away."""

    def __init__(self, seconds: list[float]) -> None:
        super().__init__()
        self.seconds = seconds
        self.takes_s = 0.0

    def claim(self, owner: str, sources: list[str], **named: Any) -> dict[str, int]:
        self._answer()
        return super().claim(owner, sources, **named)

    def heartbeat(self, owner: str, *, ours: list[str], **named: Any) -> tuple[set[str], int]:
        answer = super().heartbeat(owner, ours=ours, **named)
        self._answer()
        return answer

    def _answer(self) -> None:
        if self.takes_s:
            self.seconds[0] += self.takes_s
            self.takes_s, self.away = 0.0, True


@pytest.mark.parametrize("question", ["claim", "renewal"])
def test_a_lease_is_counted_from_when_it_was_asked_for(
    question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store counts from before it answers. Whoever counted from the answer would believe in a lease that
    somebody else may have by now."""
    seconds = [0.0]
    monkeypatch.setattr(capture_lease, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    store = Slow(seconds)
    lease = lease_of(cast("ControlStore", store), duration_ms=125)
    if question == "claim":
        store.takes_s = 3 / 32
    assert lease.acquire()
    if question == "renewal":
        store.takes_s = 3 / 32
    eventually(lambda: store.away, pause_s=0.01, what="it has been answered")
    before = store.renewed
    eventually(lambda: store.renewed >= before + 2, pause_s=0.01, what="the answer has been taken")
    lease.check()
    seconds[0] += 1 / 32
    assert is_lost(lease)
    lease.release()


def test_a_lease_that_the_store_gave_away_is_lost_with_the_next_renewal(store: ControlStore) -> None:
    """By our own clock it would last; renewals of what is not ours any more do not make it last longer."""
    lease = lease_of(store, duration_ms=2_000)
    assert lease.acquire()
    store.leave("one")

    deadline = time.monotonic() + PATIENCE_S
    while not is_lost(lease):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lease.release()


def is_lost(lease: CaptureLease) -> bool:
    try:
        lease.check()
    except TruecutError as error:
        return error.fault.code == "TC2114"
    return False
