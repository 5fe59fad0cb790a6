"""Looking at the head often must be cheap, and must not miss a commit."""

from __future__ import annotations

import os
import time

import pytest

from tests.sources.conftest import MakeLake
from truecut.lake import LakeAddress
from truecut.sources.ducklake import attach, source
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.sources.ducklake.stamp import SETTLED_NS, stamp_of

CATALOGS = pytest.mark.parametrize("catalog", ["source.ducklake", "sqlite:source.sqlite"])


@CATALOGS
def test_every_commit_is_seen_at_the_next_look(make_lake: MakeLake, catalog: str) -> None:
    """Right after the one before, and after a rest."""
    lake = make_lake(catalog)
    lake.run("CREATE TABLE t (id INTEGER)")
    seeing = DuckLakeSource(lake.address, generation=1)
    for n in range(30):
        lake.run(f"INSERT INTO t VALUES ({n})")
        head = lake.head()
        lake.release()
        assert seeing.observe().head.place == head
        if n % 10 == 0:
            time.sleep(2 * SETTLED_NS / 1e9)
            assert seeing.observe().head.place == head


@CATALOGS
def test_a_file_at_rest_is_not_opened(
    make_lake: MakeLake, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it changes, or it is time to be sure (of a file that may be open without harm)."""
    lake = make_lake(catalog)
    lake.run("CREATE TABLE t (id INTEGER)")
    lake.release()
    monkeypatch.setattr(source, "LOOK_S", 3600.0)
    time.sleep(2 * SETTLED_NS / 1e9)
    seeing = DuckLakeSource(lake.address, generation=1)
    seeing.observe()  # who opens an SQLite file gives it a log, and keeps it open
    time.sleep(2 * SETTLED_NS / 1e9)
    seen = seeing.observe()
    opened: list[LakeAddress] = []
    monkeypatch.setattr(attach, "_require_file", lambda address, **_: opened.append(address))  # at first
    assert [seeing.observe() for _ in range(3)] == [seen] * 3
    assert opened == []
    lake.run("INSERT INTO t VALUES (1)")
    lake.release()
    assert seeing.observe().head > seen.head
    assert len(opened) == 1
    time.sleep(2 * SETTLED_NS / 1e9)
    seeing.observe()
    monkeypatch.setattr(source, "LOOK_S", 0.0)
    opened.clear()
    seeing.observe()
    assert len(opened) == (1 if lake.address.shared else 0)


def test_a_young_file_proves_nothing(make_lake: MakeLake) -> None:
    """Two commits within one tick of the file system's clock look the same."""
    lake = make_lake("sqlite:source.sqlite")
    lake.run("CREATE TABLE t (id INTEGER)")
    lake.release()
    path = lake.address.target.reveal()
    os.utime(path)
    assert stamp_of(lake.address) is None
    long_ago = time.time_ns() - 2 * SETTLED_NS
    os.utime(path, ns=(long_ago, long_ago))
    assert stamp_of(lake.address) is not None
