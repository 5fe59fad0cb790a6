"""This runner's share of the sinks: leases are renewed, claimed and given back.

Owns: what the control store is told and what its answers mean to the delivery machine. Promises: a lease
that is lost is lost to the machine before anything else starts; what another runner should have is let go
only between two waves.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from truecut.core import delivery
from truecut.runtime.control import ControlStore
from truecut.runtime.ending import idle
from truecut.runtime.failpoint import failpoint
from truecut.runtime.machine import Machine


class Leases:
    """The leases of one runner."""

    def __init__(self, control: ControlStore, machine: Machine, *, runner: str, duration_ms: int) -> None:
        self._control = control
        self._machine = machine
        self._runner = runner
        self._duration_ms = duration_ms
        self._excess = 0

    def renew(self, report: Mapping[str, Any], *, claim: bool) -> None:
        """Renew leases and notice lost ones; claim our share of the free ones, count what is above it."""
        held, alive = self._control.heartbeat(self._runner, duration_ms=self._duration_ms, report=report)
        sinks = self._machine.state.sinks
        ours = {name for name, sink in sinks.items() if sink.phase != "unowned"}
        self._lose(ours - held)
        if claim:
            self._balance(held, share=-(-len(sinks) // max(1, alive)))

    def _balance(self, held: set[str], *, share: int) -> None:
        self._excess = max(0, len(held) - share)
        if len(held) < share:
            state = self._machine.state
            wanted = [name for name, sink in state.sinks.items() if sink.phase == "unowned"]
            random.shuffle(wanted)  # runners that start together must not fight for the same ones
            tokens = self._control.claim(
                self._runner, wanted, duration_ms=self._duration_ms, count_max=share - len(held)
            )
            failpoint("after_claim")
            self._machine.become(delivery.acquire(state, tokens))

    def give_back(self) -> None:
        """Another runner has come: let go of what is above our share, as soon as its wave has ended."""
        if not self._excess:
            return
        spare = sorted(idle(self._machine.state))[: self._excess]
        if spare:
            self._control.release(self._runner, spare)
            self._lose(spare)
            self._excess -= len(spare)

    def raise_tokens(self, above: Mapping[str, int]) -> None:
        """Sinks have seen larger tokens than ours: get larger ones still."""
        tokens = self._control.raise_token(self._runner, above, duration_ms=self._duration_ms)
        self._machine.become(delivery.acquire(self._machine.state, tokens))

    def _lose(self, sinks: Iterable[str]) -> None:
        self._machine.become(delivery.lose(self._machine.state, sinks))
