"""A catalog in SQLite that another process keeps locked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.world import applied, sink
from truecut.errors import Retry
from truecut.lake import parse_address
from truecut.sinks.ducklake import pool
from truecut.sinks.ducklake import sink as ducklake_sink

WRITES = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as catalog:
    catalog.execute("BEGIN IMMEDIATE")
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_whoever_keeps_a_catalog_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that is inside a write; a retry can help, and does once it has left."""
    monkeypatch.setattr(ducklake_sink, "PATIENCE_S", 0.0)
    address = parse_address("sqlite:lake.db", "data", base=tmp_path)
    applied(sink(address).recover(epoch=1, token=1))
    pool.forget()
    command = [sys.executable, "-c", WRITES, address.target.reveal()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        receipt = sink(address).recover(epoch=2, token=2)
        process.communicate("")
    assert receipt.fault is not None
    assert (receipt.fault.code, receipt.fault.retry) == ("TC4001", Retry.RETRYABLE)
    assert receipt.fault.message.endswith(f"(process {process.pid})")
    applied(sink(address).recover(epoch=3, token=3))
