"""A pipeline file is read again while its pipeline runs: in the background, every so often."""

from __future__ import annotations

from collections.abc import Callable

from truecut.config.settings import Pipeline
from truecut.errors import Fault
from truecut.runtime import announce
from truecut.runtime.background import Background
from truecut.runtime.pipeline_file import PipelineFile
from truecut.runtime.timetable import Timetable

FILE_MS = 1_000


class FileWatch:
    """One look at a time; `on_read` is called, in the loop, when it says something new."""

    def __init__(
        self,
        file: PipelineFile | None,
        background: Background,
        times: Timetable,
        *,
        on_read: Callable[[Pipeline], None],
    ) -> None:
        self._file = file
        self._background = background
        self._times = times
        self._on_read = on_read
        self._reading = False

    def tend(self) -> None:
        """Look, if there is a file and it is time."""
        if self._file is None or self._reading or not self._times.is_due("file", FILE_MS):
            return
        self._reading = True
        self._background.submit(self._file.read_again, self._read, self._unusable)

    def _read(self, written: Pipeline | None) -> None:
        self._reading = False
        if written is not None:
            self._on_read(written)

    def _unusable(self, fault: Fault) -> None:
        self._reading = False
        announce.file_unusable(fault)
