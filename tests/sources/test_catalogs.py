"""Catalogs of all three kinds, in other hands than ours: missing, locked, busy, unchanged."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry, TruecutError
from truecut.lake import LakeAddress, parse_address
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import TableRead, WindowLimits
from truecut.sources.ducklake import DuckLakeSource, attach

TABLE = TableRead(TableName("main", "t"), ("id",), None)

HOLD = """
import sys, duckdb
from truecut.lake import attach_sql, connect, parse_address
from pathlib import Path
lake = connect()
lake.execute(attach_sql(parse_address(sys.argv[1], None, base=Path("/")), "lake"))
print("held", flush=True)
sys.stdin.read()
"""


def filled(writer: LakeWriter) -> LakeWriter:
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)", "INSERT INTO t VALUES (1, 'a')")
    writer.release()
    return writer


def test_observation_is_identity_and_bounds(make_lake: MakeLake) -> None:
    """The uuid lasts; oldest and head are the first and the last snapshot that can be read."""
    writer, stranger = filled(make_lake()), filled(make_lake())
    source = DuckLakeSource(writer.address, generation=7)
    first = source.observe()
    writer.run("INSERT INTO t VALUES (2, 'b')")
    head, committed = writer.rows(
        "SELECT snapshot_id, epoch_ms(snapshot_time) FROM ducklake_snapshots('lake') ORDER BY 1 DESC LIMIT 1"
    )[0]
    writer.run(f"CALL ducklake_expire_snapshots('lake', versions => [0, 1, {head - 1}])")
    oldest = writer.snapshots()[0]
    writer.release()
    later = source.observe()
    assert (later.oldest, later.head) == (Position(7, oldest), Position(7, head))
    assert later.head_committed_at_ms == committed
    assert first.identity == later.identity != ""
    assert DuckLakeSource(stranger.address, generation=7).observe().identity != first.identity


def test_an_idle_poll_does_not_touch_the_catalog(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DuckDB-file catalog that has not changed is not opened: its writers are not disturbed."""
    writer = filled(make_lake())
    source = DuckLakeSource(writer.address, generation=1)
    seen = source.observe()
    opened: list[LakeAddress] = []
    monkeypatch.setattr(attach, "_require_file", opened.append)  # the first step of every attachment
    assert [source.observe() for _ in range(3)] == [seen] * 3
    assert opened == []
    writer.run("INSERT INTO t VALUES (2, 'b')")
    writer.release()
    assert source.observe().head > seen.head
    assert len(opened) == 1


def test_a_missing_catalog_is_said_and_not_created(tmp_path: Path) -> None:
    """A source is never created by looking at it."""
    for catalog in ("nowhere.ducklake", "sqlite:nowhere.sqlite"):
        address = parse_address(catalog, "data", base=tmp_path)
        with pytest.raises(TruecutError) as caught:
            DuckLakeSource(address, generation=1).observe()
        assert caught.value.fault.code == attach.MISSING
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_that_is_no_lake_is_said(tmp_path: Path, postgres: PostgresServer) -> None:
    """A file of something else, an empty database: a clear message, nothing created, no secret."""
    (tmp_path / "notes.txt").write_text("not a database, " * 1000)
    conninfo = postgres.create_database("empty") + " password=hush"
    for catalog, code in (("notes.txt", "TC4008"), (f"postgres:{conninfo}", "TC4014")):
        with pytest.raises(TruecutError) as caught:
            DuckLakeSource(parse_address(catalog, "data", base=tmp_path), generation=1).observe()
        assert caught.value.fault.code == code
        assert "hush" not in str(caught.value)
    assert (
        postgres.psql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ducklake%'", database="empty")
        == "0"
    )


def test_a_missing_table_is_said(make_lake: MakeLake) -> None:
    """With its name and what to do."""
    source = DuckLakeSource(filled(make_lake()).address, generation=1)
    with pytest.raises(TruecutError, match=r"main\.nothing does not exist"):
        source.describe(TableRead(TableName("main", "nothing"), ("id",), None), at=source.observe().head)


def test_a_locked_catalog_can_be_tried_again(make_lake: MakeLake) -> None:
    """Another process holds the file: retryable, and fine once it has let go."""
    writer = filled(make_lake())
    source = DuckLakeSource(writer.address, generation=1)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, writer.address.target.reveal()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(TruecutError) as caught:
        source.observe()
    assert (caught.value.fault.code, caught.value.fault.retry) == ("TC4001", Retry.RETRYABLE)
    holder.communicate("")
    assert source.observe().head.place == writer.head()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_shared_catalogs_are_read_while_they_are_written(
    make_lake: MakeLake, postgres: PostgresServer, kind: str
) -> None:
    """A writer commits all the time; what is read up to each head is exactly what was committed."""
    catalog = {
        "sqlite": "sqlite:s.sqlite",
        "postgres": "postgres:" + postgres.create_database(f"busy_{kind}"),
    }
    writer = make_lake(catalog[kind], inlining=10)
    writer.run("CREATE TABLE t (id INTEGER, v VARCHAR)")
    position = Position(1, writer.head())
    ids = range(60)
    thread = threading.Thread(target=lambda: writer.run(*(f"INSERT INTO t VALUES ({n}, 'x')" for n in ids)))
    source = DuckLakeSource(writer.address, generation=1)
    thread.start()
    seen: list[int] = []
    while thread.is_alive() or source.observe().head > position:
        head = source.observe().head
        window = source.plan_window(
            {TABLE.name: (TABLE, position, frozenset({"mirror"}))},
            upto_max=head,
            limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
            parallelism=1,
        )
        seen += [row["id"] for row in changes_of(b for task in window.tasks for b in task.read())]
        position = window.upto
    thread.join()
    assert sorted(seen) == list(ids)
