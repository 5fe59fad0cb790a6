"""The machine in a hostile world, and that the world would notice if the machine were wrong."""

from __future__ import annotations

import pytest

from tests.core import simulation
from tests.core.faults import FAULTS, injected
from tests.core.laws import Broken
from tests.core.simulation import Modes

SEEDS = 100
SEEDS_OF_A_FAULT = 400  # some need a rare meeting; most are caught in the first few lives
MODES: tuple[Modes, ...] = (("mirror", "mirror"), ("append", "mirror"), ("append", "append"))


@pytest.mark.parametrize("modes", MODES, ids="-".join)
def test_every_law_holds_and_every_copy_becomes_current(modes: Modes) -> None:
    """Through crashes, lost leases and answers, late and repeated tasks, pauses, holds, requests and changed
    settings: content, cursors and fences hold after every step, and when the trouble ends every copy becomes
    current and every request is answered."""
    editions = 0
    for seed in range(SEEDS):
        finished = simulation.run(seed, modes=modes)
        editions += sum(k.version.edition for sink in finished.sinks.values() for k in sink.copies.values())
    assert editions > 4 * SEEDS, "some were seeded again"


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_in_the_machine_survives(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug, injected into the code, breaks a law that the simulation checks."""
    law = injected(monkeypatch, fault)
    with pytest.raises(Broken, match=law):
        _many_lives()


def _many_lives() -> None:
    for seed in range(SEEDS_OF_A_FAULT):
        for modes in MODES:
            simulation.run(seed, modes=modes)
