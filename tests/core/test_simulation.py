"""The machine in a hostile world, and that the world would notice if the machine were wrong."""

from __future__ import annotations

import pytest

from tests.core import simulation
from tests.core.faults import FAULTS, injected
from truecut.model.table import Mode

SEEDS = 150


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_every_law_holds_and_every_sink_becomes_current(mode: Mode) -> None:
    """Through crashes, lost leases and answers, late and repeated tasks: content, cursors and fences hold
    after every step, and when the trouble ends every sink becomes current."""
    moved = 0
    for seed in range(SEEDS):
        finished = simulation.run(seed, mode=mode)
        moved += sum(sink.cursor is not None for sink in finished.sinks.values())
    assert moved > 2 * SEEDS


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_in_the_machine_survives(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug, injected into the code, breaks a law that the simulation checks."""
    law = injected(monkeypatch, fault)
    with pytest.raises(simulation.Broken, match=law):
        _many_lives()


def _many_lives() -> None:
    for seed in range(SEEDS):
        simulation.run(seed)
