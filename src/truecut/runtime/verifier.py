"""Verifies all copies while they run, aside of the waves, some time after the last time.

Promises: one at a time in a pipeline, whoever runs it (a lease of its own, and what was found last is looked
at first); it delays no wave; what is found is kept, and a failure is told loudly, without a key. What could
not be looked at is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

from truecut.certificate.issue import certificate_paths
from truecut.config.settings import Level, Pipeline, VerifySettings
from truecut.errors import Fault, TruecutError
from truecut.events import tell, tell_fault
from truecut.runtime import verified
from truecut.runtime.background import Background
from truecut.runtime.certificate_lease import VERIFICATION, alone
from truecut.runtime.timetable import Timetable
from truecut.runtime.verified import Results

if TYPE_CHECKING:
    from truecut.runtime.checked import Checked

log = logging.getLogger(__name__)
LOOK_MS = 10_000  # between two looks at what is kept: others may have found something
Verify = Callable[[Level, Event], "list[Checked]"]


def remember(
    pipeline: Pipeline,
    checks: Iterable[Checked],
    *,
    level: Level,
    wanted: Iterable[tuple[str, str]],
    runner: str,
    at_ms: int,
) -> None:
    """What somebody has found who asked for it. Where it cannot be kept, or a run is at it that keeps its
    own, nothing is."""
    if pipeline.certificate is None or not pipeline.certificate.path.is_dir():
        return
    with suppress(TruecutError, OSError), alone(pipeline, runner, lease=VERIFICATION) as is_ours:
        if is_ours is not None:
            known = verified.kept_of(pipeline)
            found = verified.taken_in(known, checks, level=level, wanted=wanted, at_ms=at_ms)
            verified.keep(pipeline.certificate.path, found)


class Verifier:
    """Of one run."""

    def __init__(
        self, pipeline: Pipeline, verify: Verify, background: Background, times: Timetable, *, runner: str
    ) -> None:
        self._pipeline = pipeline
        self._verify, self._background, self._times = verify, background, times
        self._owner = f"{runner}-verifier"
        self._told: dict[tuple[str, str], str] = {}  # copies, and what could not be said of each
        self._ended = Event()
        self.busy = False
        self.last: Results = verified.kept_of(pipeline)

    def stop(self) -> None:
        """The run ends: what is under way is not waited for, and does not wait."""
        self._ended.set()

    def revised(self, pipeline: Pipeline, verify: Verify) -> None:
        """The pipeline has other sinks by now."""
        self._pipeline, self._verify = pipeline, verify

    def tend(self) -> None:
        """Look whether it is time, and begin if so."""
        often_ms = min(LOOK_MS, self._settings_of(self._pipeline).interval_ms)
        if self.busy or not self._times.is_due("verification", often_ms):
            return
        self.busy = True
        pipeline, verify = self._pipeline, self._verify  # one and the same from here to the end
        self._background.submit(lambda: self._look(pipeline, verify), self._looked, self._failed)

    def _looked(self, found: tuple[Results, bool]) -> None:
        self.busy = False
        self.last, fresh = found
        if fresh:
            self._tell(self.last.values())

    def _failed(self, fault: Fault) -> None:
        self.busy = False
        tell_fault(log, fault)

    def _tell(self, found: Iterable[verified.Verified]) -> None:
        """A failure each time; what could not be said once, until it is another reason."""
        passed = 0
        for one in found:
            fault, key = one.fault(), (one.table, one.sink)
            if fault is None:
                self._told.pop(key, None)
                passed += 1
            elif one.verdict == "fail":
                tell(
                    log,
                    logging.ERROR,
                    f"{fault.message}. {fault.fix}",
                    code=fault.code,
                    sinks=[one.sink],
                    table=one.table,
                )
            elif self._told.get(key) != one.detail:
                self._told[key] = one.detail
                tell_fault(log, fault, sinks=[one.sink], table=one.table)
        tell(log, logging.INFO, f"verified: {passed:,} of {len(self.last):,} copies pass")

    # --- in the background --------------------------------------------------------------------------------

    def _look(self, pipeline: Pipeline, verify: Verify) -> tuple[Results, bool]:
        """What is known now, and whether it was found just now."""
        assert pipeline.certificate is not None
        settings, folder = self._settings_of(pipeline), pipeline.certificate.path
        known = verified.kept_of(pipeline)
        if not self._is_due(known, settings.interval_ms) or not certificate_paths(folder):
            return known, False
        with alone(pipeline, self._owner, lease=VERIFICATION) as is_ours:
            known = verified.kept_of(pipeline)
            if is_ours is None or not self._is_due(known, settings.interval_ms):
                return known, False
            level, checks = settings.level, verify(settings.level, self._ended)
            if self._ended.is_set() or not is_ours():
                return known, False
            wanted, at_ms = verified.copies_of(pipeline), self._times.clock.wall_ms()
            found = verified.taken_in(known, checks, level=level, wanted=wanted, at_ms=at_ms)
            verified.keep(folder, found)
        return found, True

    @staticmethod
    def _settings_of(pipeline: Pipeline) -> VerifySettings:
        assert pipeline.certificate is not None
        assert pipeline.certificate.verify is not None
        return pipeline.certificate.verify

    def _is_due(self, known: Results, interval_ms: int) -> bool:
        """Also where a clock was set back."""
        last_ms = max((one.checked_at_ms for one in known.values()), default=None)
        return last_ms is None or not 0 <= self._times.clock.wall_ms() - last_ms < interval_ms
