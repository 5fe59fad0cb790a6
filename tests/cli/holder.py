"""Another process that has a DuckDB file open for writing, as a tenant's own program would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S

_PROGRAM = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@contextmanager
def holding(path: Path) -> Iterator[int]:
    """The file is locked in this block by the process of this number, and free after it."""
    popen = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "held\n"
        yield popen.pid
    finally:
        popen.communicate("")
        assert popen.wait(timeout=PATIENCE_S) == 0
