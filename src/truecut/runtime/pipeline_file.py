"""The pipeline file, and the `for_each` files it names, while the pipeline runs.

Promises: a file is read again when it has changed and then rested for one look, so that nobody sees it half
written; what it says then is told once; one that cannot be used is told once, too, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from truecut.config.finding import ConfigError
from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import ExitCode, TruecutError

_Look = tuple[tuple[int, int, int] | None, ...]


class PipelineFile:
    """The files of one pipeline, as they were when it was loaded."""

    def __init__(self, began: Pipeline, environ: Mapping[str, str]) -> None:
        self.began = began
        self._environ = dict(environ)
        self._files = began.files
        self._used: _Look | None = None  # the first look reads it: it may have changed since it was loaded
        self._last: _Look | None = None
        self._told: Pipeline | str | None = None  # what they said last, or why they cannot be used

    def read_again(self) -> Pipeline | None:
        """What the files say now; None while that is nothing new. TruecutError when they cannot be used."""
        look = _look(self._files)
        rested, self._last = look == self._last, look
        if look == self._used or not rested:
            return None
        self._used = look
        try:
            written = load(self.began.path, environ=self._environ)
        except ConfigError as error:
            self._used = None  # it may lack a file that nobody looks at yet
            if self._is_new(str(error.findings[0])):
                raise _unusable(error) from None
            return None
        if written.files != self._files:
            self._files, self._used = written.files, None  # nobody has looked at all of them yet
        return written if self._is_new(written) else None

    def _is_new(self, told: Pipeline | str) -> bool:
        before, self._told = self._told, told
        return before != told


def _look(files: tuple[Path, ...]) -> _Look:
    return tuple(_state(file) for file in files)


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _unusable(error: ConfigError) -> TruecutError:
    return TruecutError(
        "TC1161",
        f"the pipeline file was changed and cannot be used: {error.findings[0]}",
        fix="Correct it (`truecut validate` lists everything); until then the run goes on as it was.",
        exit_code=ExitCode.WRONG_INPUT,
    )
