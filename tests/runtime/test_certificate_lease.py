"""One at a time issues certificates, however long it takes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.runtime.test_certifier import bench, copy_of, shown
from truecut.certificate.folding import Claim, Folding
from truecut.runtime.certificate_lease import LEASE, control_name
from truecut.runtime.control import ControlStore, open_control


def test_the_lease_lasts_as_long_as_the_folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many times a lease's life: nobody else issues meanwhile; afterwards somebody may."""
    run = bench(tmp_path)
    pipeline, clock_ms, renewed = run.pipeline, [1_000_000], threading.Semaphore(0)
    monkeypatch.setattr(ControlStore, "_now_ms", lambda store: clock_ms[0])
    renew = ControlStore.renew

    def noticed(store: ControlStore, runner: str, *, duration_ms: int) -> None:
        renew(store, runner, duration_ms=duration_ms)
        renewed.release()

    monkeypatch.setattr(ControlStore, "renew", noticed)

    def somebody_else() -> dict[str, int]:
        name = control_name(pipeline.name)
        with closing(open_control(pipeline.control, pipeline=name)) as control:
            return control.claim("another", [LEASE], duration_ms=pipeline.lease_ms, count_max=1)

    def fold(foldings: Sequence[Folding]) -> list[Claim]:
        for _ in range(4):
            while renewed.acquire(blocking=False):
                pass  # of before
            clock_ms[0] += pipeline.lease_ms // 2
            assert renewed.acquire(timeout=PATIENCE_S)
            assert renewed.acquire(timeout=PATIENCE_S)  # one that began after the clock had moved
        assert not somebody_else()
        return [Claim("certified", "", 0, bytes(32), ()) for _ in foldings]

    run.certifier._fold = fold
    issued = run.certifier._issue(shown(run, copy_of(run, edition=1, at=3)))
    assert issued is not None
    assert issued.number == 1
    assert somebody_else()


def test_what_rests_on_a_lost_lease_is_not_issued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped for longer than a lease, and goes on."""
    run = bench(tmp_path)
    pipeline, clock_ms = run.pipeline, [1_000_000]
    monkeypatch.setattr(ControlStore, "_now_ms", lambda store: clock_ms[0])
    monkeypatch.setattr(ControlStore, "renew", lambda store, runner, *, duration_ms: None)

    def fold(foldings: Sequence[Folding]) -> list[Claim]:
        clock_ms[0] += pipeline.lease_ms
        return [Claim("certified", "", 0, bytes(32), ()) for _ in foldings]

    run.certifier._fold = fold
    assert run.certifier._issue(shown(run, copy_of(run, edition=1, at=3))) is None
    assert not list(tmp_path.glob("*.json"))
