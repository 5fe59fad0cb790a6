"""A runner as a process: it has a turn now and then, can be stopped, woken and killed.

A turn is one round of the real loop (`Runner.turn`). A process that is asked to stop runs `Runner.run` to its
end, which waits in between: so it gets a thread, which runs only while it has the turn. Nobody else runs
meanwhile, so a life is one order of steps, whatever the machine's threads do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.runtime.simulation.clockwork import Clockwork
from truecut.errors import Fault, TruecutError
from truecut.runtime.background import Background
from truecut.runtime.runner import Runner
from truecut.runtime.until import Outcome

Answer = TypeVar("Answer")


class Killed(BaseException):
    """kill -9: the process has no more steps, not even its last ones."""


class InFlight:
    """What a call of the background returns when its answer is still to come."""

    def __init__(self) -> None:
        self._listener: Callable[[Any, Fault | None], None] | None = None
        self.over = False

    def on_end(self, listener: Callable[[Any, Fault | None], None]) -> None:
        """Whom to tell, once."""
        self._listener = listener

    def end(self, answer: Any, fault: Fault | None = None) -> None:
        """The first end counts."""
        if not self.over and self._listener is not None:
            self.over = True
            self._listener(answer, fault)


class Process:
    """One runner's life from start to exit."""

    def __init__(
        self,
        clockwork: Clockwork,
        name: str,
        *,
        pace_ms: tuple[int, int],
        on_exit: Callable[[Process], None],
    ) -> None:
        self.name = name
        self.started_ms = clockwork.now_ms
        self.over = False
        self.killed = False
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.frozen_until_ms = 0
        self.frozen_last_ms = 0
        self.pace_ms = pace_ms
        self._on_exit = on_exit
        self._clockwork = clockwork
        self._runner: Runner | None = None
        self._ticket = 0
        self._leaving: _Leaving | None = None

    @property
    def runner(self) -> Runner:
        """Only between start and exit."""
        assert self._runner is not None
        return self._runner

    @property
    def frozen(self) -> bool:
        """Stopped by a signal, or by a machine that has no time for it."""
        return self._clockwork.now_ms < self.frozen_until_ms

    def start(self, runner: Runner, *, to_its_end: bool = False) -> None:
        """Begin now: turn by turn, or with a run that ends by itself."""
        self._runner = runner
        if to_its_end:
            self._leaving = _Leaving(self._run)
        self._wait()

    def stop(self) -> None:
        """SIGTERM: it ends what it is at, then leaves."""
        self.runner.stop()
        self._leaving = _Leaving(self._run)
        self.poke()

    def freeze(self, duration_ms: int) -> None:
        """It has no steps for so long, and does not know it."""
        self.frozen_until_ms = self.frozen_last_ms = self._clockwork.now_ms + duration_ms

    def thaw(self) -> None:
        """It goes on now, if it was stopped."""
        self.frozen_until_ms = min(self.frozen_until_ms, self._clockwork.now_ms)
        self.poke()

    def kill(self) -> None:
        """kill -9."""
        if not self.over:
            self.killed = True
            self._turn()

    def poke(self) -> None:
        """There is an answer: wake up, soon."""
        self._wake_after(self._clockwork.between(0, self.pace_ms[0]))

    def await_answers(self) -> None:
        """Called by the loop when it has nothing to do. Only who is leaving waits inside a turn."""
        if self._leaving is not None:
            self._wait()
            self._leaving.hand_back()
        if self.killed:
            raise Killed

    # --- turns ------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._ticket += 1
        self._wake_after(self._clockwork.between(*self.pace_ms))

    def _wake_after(self, delay_ms: int) -> None:
        ticket = self._ticket
        self._clockwork.after_ms(delay_ms, lambda: self._wake(ticket))

    def _wake(self, ticket: int) -> None:
        if self.over or ticket != self._ticket:
            return
        if self.frozen:
            self._wake_after(self.frozen_until_ms - self._clockwork.now_ms)
        else:
            self._turn()

    def _turn(self) -> None:
        try:
            if self._leaving is not None:
                self._leaving.take_turn()
            elif self.killed:
                raise Killed
            else:
                self.runner.turn()
                self._wait()
        except BaseException as error:  # noqa: BLE001 - whatever ends a process is told to the life
            self.error, self.over = error, True
        if self.over:
            self._on_exit(self)

    def _run(self) -> None:
        try:
            self.outcome = self.runner.run()
        except BaseException as error:  # noqa: BLE001 - as above
            self.error = error
        self.over = True


class _Leaving:
    """A thread for a process that leaves: it runs while it has the turn."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def take_turn(self) -> None:
        """Let it run until it waits or has ended."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._turn.release()
        self._back.acquire()

    def hand_back(self) -> None:
        """In the thread: wait for the next turn."""
        self._back.release()
        self._turn.acquire()

    def _run(self) -> None:
        self._body()
        self._back.release()


class SimulatedBackground(Background):
    """Calls begin and answers come when the life says so. A process that is stopped begins nothing."""

    def __init__(
        self, process: Process, clockwork: Clockwork, delay_ms: Callable[[], int]
    ) -> None:  # no threads, so nothing of the real one's
        self._process = process
        self._clockwork = clockwork
        self._delay_ms = delay_ms
        self._ready: list[Callable[[], None]] = []

    def submit(
        self, call: Callable[[], Answer], then: Callable[[Answer], None], otherwise: Callable[[Fault], None]
    ) -> None:
        """Later, `call`; later still, in the loop, `then` or `otherwise`."""
        self._clockwork.after_ms(self._delay_ms(), lambda: self._begin(call, then, otherwise))

    def _begin(
        self, call: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[Fault], None]
    ) -> None:
        process = self._process
        if process.over:
            return
        if process.frozen:
            wait_ms = process.frozen_until_ms - self._clockwork.now_ms
            self._clockwork.after_ms(wait_ms, lambda: self._begin(call, then, otherwise))
            return

        def ended(answer: Any, fault: Fault | None) -> None:
            act = (lambda: then(answer)) if fault is None else (lambda: otherwise(fault))
            self._clockwork.after_ms(self._delay_ms(), lambda: self._answer(act))

        try:
            answer = call()
        except TruecutError as error:
            ended(None, error.fault)
        except Killed:
            process.kill()
        else:
            if isinstance(answer, InFlight):
                answer.on_end(ended)
            else:
                ended(answer, None)

    def _answer(self, act: Callable[[], None]) -> None:
        self._ready.append(act)
        self._process.poke()

    def take_answers(self, *, wait_s: float) -> None:
        """Take up all answers that are there, after a wait if there are none."""
        if not self._ready:
            self._process.await_answers()
        ready, self._ready = self._ready, []
        for act in ready:
            act()

    def close(self) -> None:
        """Nothing to give back."""
