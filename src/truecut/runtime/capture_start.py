"""Capture beside a run, or alone: from a pipeline to the loop that captures its source.

Promises: one capture of a source at a time (its lease); a fault that a retry cannot help with is kept for
whoever asks, and ends nothing else; a stop is clean: what was read is in the journal, and released.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline, SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.journal.contract import Journal
from truecut.journal.local import SEGMENT_BYTES_MAX, LocalJournal, remove_log
from truecut.journal.opening import journal_of
from truecut.model.position import Position
from truecut.runtime.capture_lease import CaptureLease
from truecut.runtime.capture_report import control_name
from truecut.runtime.capture_watch import FULL, watch
from truecut.runtime.control import open_control
from truecut.runtime.trimming import Trimming
from truecut.sources.captured import Capturing, Progress
from truecut.sources.registry import captured_source
from truecut.state_folder import SPOOL

STOP_S = 30.0
SEGMENTS_MIN = 8  # of a full journal


def is_captured(pipeline: Pipeline) -> bool:
    """Whether its source keeps no history of its own."""
    return SOURCES[pipeline.source.type].captured


def capture(
    pipeline: Pipeline,
    *,
    owner: str,
    stop: threading.Event,
    once: bool = False,
    came: set[str] | None = None,
    on_begun: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Until `stop` is set, or, `once`, until everything that is there is captured. `came`: sinks that
    somebody has had while this process captured, for the journal to be kept for them. `on_begun` gets what
    tells how it is, whenever capture begins here."""
    came = set() if came is None else came
    spool = _spool(pipeline)
    control = open_control(pipeline.control, pipeline=control_name(pipeline))
    source = captured_source(pipeline.source)
    running: list[_Tended] = []

    def report() -> dict[str, Any]:
        told = running[-1].document() if running else {}
        return {**told, "seen_at_ms": time.time_ns() // 1_000_000}

    lease = CaptureLease(
        control, owner=owner, source=source.name, duration_ms=pipeline.lease_ms, report=report
    )

    def make(journal: Journal, check: Callable[[], None]) -> _Tended:
        made = source.capture(journal, check=check, spool_folder=spool)
        before = running[-1].waits if running else None
        waits = before if before is not None and before.code == FULL else None
        running[:] = [_Tended(made, pipeline, journal, came, waits, journal.head())]
        on_begun(made.progress)
        return running[0]

    try:
        watch(
            lease,
            lambda: open_writer(pipeline.source),
            make,
            stop=lambda drained: stop.is_set() or (once and drained),
            wait=stop.wait,
        )
    finally:
        control.close()


@dataclass(slots=True)
class _Tended:
    """A capture whose journal is trimmed meanwhile."""

    capture: Capturing
    pipeline: Pipeline
    journal: Journal
    came: set[str]
    waits: Fault | None  # what the attempt before this one, or this one, has ended by
    began_at: Position | None

    def document(self) -> dict[str, Any]:
        """For `status`: how it is, and why it waits while it does."""
        is_still = self.journal.head() == self.began_at
        hindrance = (self.waits if is_still else None) or self.journal.hindrance()
        waits = None if hindrance is None else hindrance.message
        return {**self.capture.progress.document(), "waits_for": waits}

    def run(self, stop: Callable[[bool], bool]) -> None:
        """Until `stop` says so."""
        trimming = Trimming(self.pipeline, self.journal, self.came)
        try:
            self.capture.run(stop)
        except TruecutError as error:
            self.waits, self.began_at = error.fault, self.journal.head()
            raise
        finally:
            trimming.close()


def open_writer(source: SourceSettings) -> Journal:
    """The journal, taken over from whoever wrote to it before."""
    settings, where = source.journal, journal_of(source)
    assert settings is not None, "the file's own, or its default"
    # The last segment stays, whoever has it: a full journal has room again only where it has others.
    sizes: dict[str, int] = {
        "bytes_max": settings.bytes_max,
        "segment_bytes_max": min(SEGMENT_BYTES_MAX, settings.bytes_max // SEGMENTS_MIN),
    }
    if where.folder is not None:
        return LocalJournal(Path(where.folder), take_over=True, **sizes)
    from truecut.journal.replicated.producer import ReplicatedJournal

    assert where.coordinator is not None
    assert where.log is not None
    return ReplicatedJournal(where.coordinator, where.log, security=where.security, **sizes)


def _spool(pipeline: Pipeline) -> Path:
    folder = pipeline.state / SPOOL
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class CaptureThread:
    """Capture in a thread of a run."""

    def __init__(self, pipeline: Pipeline, *, owner: str) -> None:
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._progress: Progress | None = None  # None: others capture
        self._pipeline, self._owner = pipeline, owner
        self._thread = threading.Thread(target=self._run, name="truecut capture", daemon=True)

    def start(self) -> CaptureThread:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask for the end, and wait for it, but not for ever."""
        self._stop.set()
        self._thread.join(STOP_S)

    @property
    def retained_bytes(self) -> int | None:
        """What the source keeps of its log for us, if we are who captures."""
        return None if self._progress is None else self._progress.kept_bytes

    def check(self) -> None:
        """Raise what it could not go on with."""
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            capture(self._pipeline, owner=self._owner, stop=self._stop, on_begun=self._begun)
        except TruecutError as error:
            self._failed = error
        except Exception as error:  # noqa: BLE001 - told by whoever looks after the thread
            self._failed = error

    def _begun(self, progress: Progress) -> None:
        self._progress = progress


# --- the end of a pipeline ------------------------------------------------------------------------------


def drop_at_source(pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """Remove what capture has made at the source; returns what is gone, and what is not ours."""
    if not is_captured(pipeline):
        return [], []
    with closing(open_control(pipeline.control, pipeline=control_name(pipeline))) as control:
        if control.reports().running:
            raise _captured_now(pipeline.name)
    return captured_source(pipeline.source).drop_made()


def forget_capture(pipeline: Pipeline) -> None:
    """Its lease, its journal on this machine, its scratch files."""
    if not is_captured(pipeline):
        return
    with closing(open_control(pipeline.control, pipeline=control_name(pipeline))) as control:
        control.forget()
    where = journal_of(pipeline.source)
    if where.folder is not None:
        remove_log(Path(where.folder))
    captured_source(pipeline.source).forget()
    spool = pipeline.state / SPOOL
    with suppress(OSError):  # not there, or not empty: then it is somebody else's, too
        spool.rmdir()


def _captured_now(pipeline: str) -> TruecutError:
    """Whoever drops it would take the journal from under a capture."""
    return TruecutError(
        "TC2125",
        f"the source of pipeline {pipeline} is being captured",
        fix="Stop `truecut capture` first, then drop it.",
    )
