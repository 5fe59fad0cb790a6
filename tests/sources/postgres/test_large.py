"""A transaction of any size, in little memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.sources.postgres import pgoutput
from tests.sources.postgres.processes import Process, wait_until_captured
from tests.sources.postgres.shop import Shop, journaled
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind

SIZE = 40_000 * 2048
ROWS = 2_000_000
FIRST = 1_000_000  # every key has seven digits
ROOM_MIB = 224  # beside what a capture has when it begins; the rows as objects in memory take twice as much


@pytest.fixture(scope="module", params=ON_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with postgres_server(version=request.param) as running:
        yield running


@pytest.mark.parametrize("way", ["drain", "stream"])
def test_a_large_transaction_stays_out_of_memory(server: PostgresServer, tmp_path: Path, way: str) -> None:
    """It waits for its commit on disk, and goes to the journal in parts; as a backlog and while it runs."""
    shop = Shop(server, f"large_{way}")
    first = Process(shop, tmp_path, "drain", SIZES="usual")
    small = first.peak_bytes()
    running = Process(shop, tmp_path, SIZES="usual") if way == "stream" else None
    if running is not None:
        wait_until_captured(shop, tmp_path, running)
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO lines SELECT i, repeat(md5(i::text), 64) FROM generate_series(1, 40000) i"
        )
    if running is None:
        running = Process(shop, tmp_path, "drain", SIZES="usual")
    else:
        wait_until_captured(shop, tmp_path, running)
        (tmp_path / "stop").touch()
    assert running.peak_bytes() - small < SIZE // 2
    assert pgoutput.difference(journaled(tmp_path / "journal"), shop.committed()) is None
    assert LocalReader(tmp_path / "journal").size() > SIZE


@pytest.mark.parametrize("way", ["drain", pytest.param("stream", marks=pytest.mark.soak)])
def test_two_million_rows_in_one_transaction(server: PostgresServer, tmp_path: Path, way: str) -> None:
    """Under a cap on memory that ends a capture which keeps them there: all are in the journal, in order."""
    shop = Shop(server, f"million_{way}")
    capped = {"SIZES": "usual", "ROOM_MIB": str(ROOM_MIB)}
    assert Process(shop, tmp_path, "drain", **capped).end() == 0
    arguments = ("drain",) if way == "drain" else ()
    running = None if way == "drain" else Process(shop, tmp_path, **capped)
    if running is not None:
        wait_until_captured(shop, tmp_path, running)
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO lines SELECT i, 'note' FROM generate_series(%s::bigint, %s) i",
            (FIRST, FIRST + ROWS - 1),
        )
    if running is None:
        fails = Process(shop, tmp_path, *arguments, BUFFERED="1", **capped)
        assert fails.end() != 0
        assert "MemoryError" in fails.said.read_text()
        running = Process(shop, tmp_path, *arguments, **capped)
    else:
        wait_until_captured(shop, tmp_path, running)
        (tmp_path / "stop").touch()
    assert running.end() == 0, running.said.read_text()
    assert_in_order(tmp_path / "journal")


def assert_in_order(folder: Path) -> None:
    """One transaction with every row; a few at a time, and no more than their bytes."""
    number, kinds = FIRST, []
    for entry in LocalReader(folder).read(after=None):
        if entry.record.kind is not Kind.CHANGES:
            continue
        messages = pgoutput.split(entry.record.payload)
        kinds += [one[:1] for one in messages if one[:1] in (b"B", b"C")]
        rows = [one for one in messages if one[:1] == b"I"]
        head = rows[0][:5] if rows else b""
        expected = [head + _row(n) for n in range(number, number + len(rows))]
        assert rows == expected, number
        number += len(rows)
    assert (number, kinds) == (FIRST + ROWS, [b"B", b"C"])


def _row(number: int) -> bytes:
    return b"N\0\2t" + struct.pack(">I7s", 7, b"%d" % number) + b"t" + struct.pack(">I4s", 4, b"note")
