"""Captures as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.patience import PATIENCE_S
from tests.sources.postgres.shop import Shop
from truecut.errors import TruecutError
from truecut.journal.reader import LocalReader
from truecut.sources.postgres.journaled import ending


class Process:
    """A capture of its own, and what it captured."""

    def __init__(self, shop: Shop, folder: Path, *more: str, **environment: str) -> None:
        self._folder = folder
        self.said = folder / f"stderr-{len(list(folder.glob('stderr-*')))}"
        (folder / "stop").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "tests.sources.postgres.capturing",
            shop.conninfo,
            shop.slot,
            str(folder),
        ]
        self.process = subprocess.Popen(
            [*command, *more], env={**os.environ, **environment}, stderr=self.said.open("w")
        )

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)

    def wait_until_it_says(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.said.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def peak_bytes(self) -> int:
        """How much memory it had at most, once it has ended well."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        assert self.process.returncode == 0, self.said.read_text()
        return usage.ru_maxrss * 1024

    def stop(self) -> None:
        (self._folder / "stop").touch()
        assert self.end() == 0, self.said.read_text()


def wait_until_captured(shop: Shop, folder: Path, running: Process) -> None:
    """Until the journal has what has committed by now."""
    with shop.connect() as connection:
        target = place(connection)
    deadline = time.monotonic() + PATIENCE_S
    while _reached(folder) < target:
        waiting = time.monotonic() < deadline and running.process.poll() is None
        assert waiting, running.said.read_text()
        time.sleep(0.05)


def _reached(folder: Path) -> int:
    try:
        place = ending(LocalReader(folder / "journal")).place
    except TruecutError:
        return 0
    return place.lsn if place else 0


def place(connection: psycopg.Connection[Any]) -> int:
    """Where the server's log ends now."""
    row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone()
    assert row is not None
    return int(row[0])
