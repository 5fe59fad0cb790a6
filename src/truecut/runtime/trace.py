"""A run in the words of specs/Delivery.tla: one JSON line for each action. Off unless a path is given."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

VARIABLE = "TRUECUT_TRACE"


class Trace:
    """Appends actions to a file; costs one comparison when off."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = None if path is None else path.open("a", buffering=1)

    @classmethod
    def from_environment(cls) -> Trace:
        """The file that TRUECUT_TRACE names, if any."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    def emit(self, action: str, **fields: object) -> None:
        """One action of the spec."""
        if self._file is not None:
            self._file.write(json.dumps({"action": action, **fields}) + "\n")
