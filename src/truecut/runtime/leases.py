"""This runner's share of the sinks: leases are renewed, claimed and given back.

Owns: what the control store is asked, and what its answers mean to the delivery machine. Promises: the loop
never waits for the store; there is one question at a time, asked again with backoff while the store cannot be
reached; a lease that ran out meanwhile, by our own clock, is lost to the machine before anything else starts;
what another runner should have is let go only between two waves; a sink that a runner of another store has
taken is given up, once and for all, instead of being fought for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from truecut.core import delivery
from truecut.errors import Fault
from truecut.failpoint import failpoint
from truecut.model.order import Receipt
from truecut.runtime import announce
from truecut.runtime.background import Background
from truecut.runtime.control import ControlStore
from truecut.runtime.delivery_state import Machine
from truecut.runtime.timetable import Timetable
from truecut.runtime.until import idle

HEARTBEATS = 4  # in the life of a lease
RETRY_FIRST_MS = 250


@dataclass(frozen=True, slots=True)
class _Renewed:
    """What a heartbeat, and the claim that follows it, came back with."""

    held: set[str]
    tokens: Mapping[str, int]  # newly claimed
    share: int  # how many should be ours


class Leases:
    """The leases of one runner."""

    def __init__(
        self,
        control: ControlStore,
        machine: Machine,
        background: Background,
        times: Timetable,
        *,
        runner: str,
        duration_ms: int,
        chance: random.Random,
        on_store: Callable[[Fault | None], None] = lambda _: None,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._control = control
        self._machine = machine
        self._background = background
        self._times = times
        self._runner = runner
        self._duration_ms = duration_ms
        self._chance = chance
        self._on_renewed = on_renewed  # our leases have just been confirmed
        self._on_store = on_store  # told how the store is: a fault, or None for well
        self._asking = False
        self._failures = 0
        self._renewed_ms = 0  # when the last heartbeat that we know to be written was asked for
        self._excess = 0
        self._above: dict[str, int] = {}  # sinks that have seen these tokens, larger than ours
        self._taken: dict[str, int] = {}  # sink → the token with which it became ours
        self.given_up: dict[str, Fault] = {}

    @property
    def busy(self) -> bool:
        """Whether the store has still to answer."""
        return self._asking

    def tend(self, report: Callable[[], Mapping[str, Any]], *, claim: bool = True) -> None:
        """Notice what ran out; ask the store the next question, if there is one and it is time."""
        self._expire()
        self._let_go()
        if self._asking:
            return
        if self._above and self._times.is_due("tokens", self._duration_ms // HEARTBEATS):
            self._raise()
        elif self._times.is_due("heartbeat", self._duration_ms // HEARTBEATS):
            self._renew(report(), claim=claim)

    def took_over(self, receipts: Iterable[Receipt]) -> None:
        """Sinks have told their cursors to us: with these tokens they are ours."""
        sinks = self._machine.state.sinks
        for receipt in receipts:
            sink = sinks[receipt.sink]
            if receipt.cursor is not None and receipt.epoch == sink.epoch:
                self._taken[receipt.sink] = sink.token

    def raise_tokens(self, above: Mapping[str, int]) -> None:
        """Sinks have seen larger tokens than ours: get larger ones still, or let them go."""
        self._above.update(above)
        self._times.at_once("tokens")

    def retire(self, sinks: Iterable[str]) -> None:
        """These are no longer wanted: their leases end with the next heartbeat, which is now."""
        for name in sinks:
            self.given_up.pop(name, None)
            self._above.pop(name, None)
        self._machine.become(delivery.retire(self._machine.state, sinks))
        self._times.at_once("heartbeat")

    # --- renewing and claiming ------------------------------------------------------------------------

    def _renew(self, report: Mapping[str, Any], *, claim: bool) -> None:
        sinks = self._machine.state.sinks
        ours = {name for name, sink in sinks.items() if sink.phase != "unowned"}
        wanted = self._machine.state.wanted
        free = [name for name in wanted if name not in ours and name not in self.given_up] if claim else []
        self._chance.shuffle(free)  # runners that start together must not fight for the same ones
        asked_ms = self._times.clock.now_ms()

        def ask() -> _Renewed:
            held, alive = self._control.heartbeat(
                self._runner, duration_ms=self._duration_ms, report=report, ours=ours
            )
            share = -(-len(wanted) // max(1, alive))
            tokens: Mapping[str, int] = {}
            if free and len(held) < share:
                tokens = self._control.claim(
                    self._runner, free, duration_ms=self._duration_ms, count_max=share - len(held)
                )
                failpoint("after_claim")
            return _Renewed(held, tokens, share if claim else len(wanted))

        self._ask(ask, lambda answer: self._renewed(answer, ours, asked_ms))

    def _renewed(self, answer: _Renewed, ours: set[str], asked_ms: int) -> None:
        if self._times.clock.now_ms() >= asked_ms + self._duration_ms:
            return  # the answer took a lease's whole life: what it gave may be somebody else's by now
        self._renewed_ms = asked_ms
        self._lose(ours - answer.held, "their leases ran out, or somebody else has taken them")
        self._machine.become(delivery.acquire(self._machine.state, answer.tokens))
        owned = [sink for sink in self._machine.state.sinks.values() if sink.phase != "unowned"]
        self._excess = max(0, len(owned) - answer.share)
        self._on_renewed()

    def _expire(self) -> None:
        """Without an answer of the store for so long, every lease of ours has run out."""
        if self._times.clock.now_ms() >= self._renewed_ms + self._duration_ms:
            owned = [name for name, sink in self._machine.state.sinks.items() if sink.phase != "unowned"]
            self._lose(owned, "their leases ran out while the control store did not answer")

    def _let_go(self) -> None:
        """Another runner has come: let go of what is above our share, as soon as its wave has ended.

        The store hears of it by the next heartbeat, which renews only what we know to be ours.
        """
        spare = sorted(idle(self._machine.state))[: self._excess]
        if spare:
            self._lose(spare, "another runner has come and gets its share")
            self._excess -= len(spare)
            self._times.at_once("heartbeat")

    # --- tokens ---------------------------------------------------------------------------------------

    def _raise(self) -> None:
        """A sink that was ours by this very token, and whose lease still is: somebody else has taken it who
        does not ask our store. Any other has seen a token from before the store was lost."""
        above, self._above = self._above, {}
        sinks = self._machine.state.sinks
        suspects = {name for name in above if self._taken.get(name) == sinks[name].token}
        outbid = {name: token for name, token in above.items() if name not in suspects}

        def ask() -> tuple[Mapping[str, int], set[str]]:
            held = self._control.held(self._runner) if suspects else set()
            return self._control.raise_token(self._runner, outbid, duration_ms=self._duration_ms), held

        def answered(answer: tuple[Mapping[str, int], set[str]]) -> None:
            tokens, held = answer
            state = self._machine.state
            still = {name: token for name, token in tokens.items() if state.sinks[name].phase != "unowned"}
            self._machine.become(delivery.acquire(state, still))
            wanted = self._machine.state.wanted  # without those that were retired since we asked
            self.given_up.update({name: _contested(name) for name in suspects & held if name in wanted})
            self._lose(suspects, "a runner with another control store has taken them")

        self._ask(ask, answered, lambda: self._above.update({**above, **self._above}))

    # --- asking ---------------------------------------------------------------------------------------

    def _ask(
        self, call: Callable[[], Any], then: Callable[[Any], None], undo: Callable[[], None] = lambda: None
    ) -> None:
        self._asking = True

        def answered(answer: Any) -> None:
            self._asking, self._failures = False, 0
            self._on_store(None)
            then(answer)

        def failed(fault: Fault) -> None:
            self._asking = False
            undo()
            pause_ms = min(RETRY_FIRST_MS << min(self._failures, 10), self._duration_ms // HEARTBEATS)
            self._failures += 1
            for question in ("heartbeat", "tokens"):
                self._times.not_within(question, pause_ms)
            self._on_store(fault)

        self._background.submit(call, answered, failed)

    def _lose(self, sinks: Iterable[str], why: str) -> None:
        owned = self._machine.state.sinks
        lost = [name for name in sinks if owned[name].phase != "unowned"]
        if lost:
            announce.lost(lost, why)
            self._machine.become(delivery.lose(self._machine.state, lost))


def _contested(sink: str) -> Fault:
    return Fault(
        "TC5023",
        f"sink {sink} was taken by a runner that uses another control store; it is left to that one",
        "Let all runners of the pipeline use one control store (`control: postgresql://…` for several "
        "machines), or stop the other one; then start this one again.",
    )
