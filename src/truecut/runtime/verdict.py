"""Whether a run that was asked for a result has it, or never will: looks at what the runner knows, decides
nothing else."""

from __future__ import annotations

from dataclasses import replace

from truecut.model.position import Position
from truecut.runtime.bulletin import Bulletin
from truecut.runtime.delivery_state import Machine
from truecut.runtime.leases import Leases
from truecut.runtime.requests import Requests, told_of
from truecut.runtime.run_report import View
from truecut.runtime.timetable import Clock
from truecut.runtime.until import Outcome, Until, judge
from truecut.runtime.until_answered import judge_answer


class Verdict:
    """Of one runner. `target`: the position to reach, once the source was looked at."""

    def __init__(
        self,
        until: Until,
        machine: Machine,
        leases: Leases,
        bulletin: Bulletin,
        requests: Requests,
        view: View,
        clock: Clock,
        *,
        runner: str,
        lease_ms: int,
    ) -> None:
        self._until = until
        self._machine = machine
        self._leases = leases
        self._bulletin = bulletin
        self._requests = requests
        self._view = view
        self._clock = clock
        self._runner = runner
        self._lease_ms = lease_ms
        self._began_ms = clock.now_ms()
        self.target: Position | None = None

    def is_final(self) -> bool:
        """Whether there is nothing more to wait for."""
        if not self._until.finite:
            return False
        limit = self._until.timeout_ms
        if limit is not None and self._clock.now_ms() - self._began_ms > limit:
            return True
        outcome, final = self.now()
        if self._until.answer is not None:
            return outcome.reached or final
        asked = self._requests.pending(of_others=not self._settled, but=self._leases.given_up)
        return (outcome.reached or final) and not asked

    @property
    def _settled(self) -> bool:
        """The leases of whoever was killed before we began have run out, and may be ours."""
        return self._clock.now_ms() - self._began_ms > 2 * self._lease_ms

    def now(self) -> tuple[Outcome, bool]:
        """Where it stands, and whether that will stay so."""
        if self.target is None:
            fault = self._view.source_fault
            return Outcome(
                reached=False, stragglers={"source": fault.message if fault else "no answer"}
            ), False
        state, given_up = self._machine.state, self._leases.given_up
        if (asked := self._until.answer) is not None:
            told = told_of(self._bulletin.reports, asked.table)
            outcome, final = judge_answer(state, asked, told, given_up=given_up)
        else:
            alone = all(sink.phase != "unowned" for sink in state.wanted.values())
            elsewhere = {} if alone else self._bulletin.elsewhere(but=self._runner)
            exact = self._until.position is not None
            outcome, final = judge(state, self.target, elsewhere, given_up=given_up, exact=exact)
        left = {name: fault.message for name, fault in given_up.items()}
        stragglers = {name: left.get(name, why) for name, why in outcome.stragglers.items()}
        return replace(outcome, stragglers=stragglers), final
