"""Catalogs of all three kinds, in other hands than ours: missing, locked, busy, unchanged."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from tests.sources.lake_writer import LakeWriter
from truecut.errors import Retry, TruecutError
from truecut.lake import LakeAddress, parse_address
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import TableRead, WindowLimits
from truecut.sources.ducklake import attach
from truecut.sources.ducklake.source import DuckLakeSource

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
    (tmp_path / "people.csv").write_text("id,name\n1,hush\n")
    with closing(sqlite3.connect(tmp_path / "lite.db")) as lite:
        lite.execute("CREATE TABLE x (i)")
    conninfo = postgres.create_database("empty") + " password=hush"
    for catalog, code in (
        ("notes.txt", "TC4008"),
        ("people.csv", "TC4008"),
        ("lite.db", "TC4018"),
        (f"postgres:{conninfo}", "TC4014"),
    ):
        with pytest.raises(TruecutError) as caught:
            DuckLakeSource(parse_address(catalog, "data", base=tmp_path), generation=1).observe()
        assert (caught.value.fault.code, caught.value.fault.retry) == (code, Retry.NOT_RETRYABLE)
        assert "the catalog does not exist" not in str(caught.value)
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
        seen += [row["id"] for row in changes_of(b for task in window.tasks for _, b in task.read())]
        position = window.upto
    thread.join()
    assert sorted(seen) == list(ids)


# --- attachments that are kept ------------------------------------------------------------------------


def rows_of(address: LakeAddress) -> tuple[str, list[tuple[object, ...]]]:
    """The alias under which a reader gets the lake, and the table's rows."""
    with attach.connection() as own, attach.attached(address, own) as lake:
        return lake.alias, own.execute(f"FROM {lake.alias}.main.t ORDER BY id").fetchall()


def attached_now(address: LakeAddress) -> list[str]:
    """The aliases under which this process has a lake attached."""
    with attach.connection() as own:
        return [
            str(row[0])
            for row in own.execute(
                "SELECT database_name FROM duckdb_databases() WHERE path LIKE '%' || ?",
                [address.target.reveal()],
            ).fetchall()
            if str(row[0]).startswith("source_")
        ]


@pytest.mark.parametrize("inlining", [0, 10], ids=["files", "inlined"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_kept_attachment_sees_every_commit(
    make_lake: MakeLake, postgres: PostgresServer, kind: str, inlining: int
) -> None:
    """The next reader gets the same attachment, and in it rows, columns and tables made since by others.

    Where rows are inlined, a new schema has a new table for them: then the lake is attached anew.
    """
    catalogs = {
        "sqlite": "sqlite:s.sqlite",
        "postgres": "postgres:" + postgres.create_database(f"kept_{kind}_{inlining}"),
    }
    writer = filled(make_lake(catalogs[kind], inlining=inlining))
    alias, first = rows_of(writer.address)
    writer.run("INSERT INTO t VALUES (2, 'b')", "DELETE FROM t WHERE id = 1")
    same, second = rows_of(writer.address)
    assert (first, second) == ([(1, "a")], [(2, "b")])
    assert same == alias
    writer.run("ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7", "INSERT INTO t VALUES (3, 'c', 8)")
    altered, third = rows_of(writer.address)
    writer.run("DROP TABLE t", "CREATE TABLE t (id VARCHAR)", "INSERT INTO t VALUES ('new')")
    replaced, fourth = rows_of(writer.address)
    assert (third, fourth) == ([(2, "b", 7), (3, "c", 8)], [("new",)])
    assert (altered == replaced == alias) == (inlining == 0)


def test_readers_at_the_same_time_see_their_own_moment(make_lake: MakeLake) -> None:
    """One view is one moment, also when somebody else reads a later one through the same attachment."""
    writer = filled(make_lake("sqlite:s.sqlite"))
    with attach.connection() as own, attach.attached(writer.address, own) as lake:
        with attach.one_view(lake):
            first = own.execute(f"FROM {lake.alias}.main.t").fetchall()
            writer.run("INSERT INTO t VALUES (2, 'b')")
            assert rows_of(writer.address) == (lake.alias, [(1, "a"), (2, "b")])
            assert own.execute(f"FROM {lake.alias}.main.t").fetchall() == first == [(1, "a")]
        assert own.execute(f"FROM {lake.alias}.main.t").fetchall() == [(1, "a"), (2, "b")]


def test_a_failed_attachment_is_not_used_again(make_lake: MakeLake) -> None:
    """Whatever went wrong, the next reader starts afresh; who still reads through the old one goes on."""
    writer = filled(make_lake("sqlite:s.sqlite"))
    with attach.connection() as own, attach.attached(writer.address, own) as lake:
        with pytest.raises(TruecutError), attach.attached(writer.address, own):
            own.execute("SELECT error('no')")
        alias, rows = rows_of(writer.address)
        assert alias != lake.alias
        assert rows == own.execute(f"FROM {lake.alias}.main.t").fetchall() == [(1, "a")]
    assert rows_of(writer.address) == (alias, rows)
    assert attached_now(writer.address) == [alias]


def test_few_attachments_are_kept_and_no_file(make_lake: MakeLake) -> None:
    """The least recently read go first; a DuckDB-file catalog is let go at once."""
    writers = [filled(make_lake(f"sqlite:{n}.sqlite")) for n in range(attach.KEPT_MAX + 2)]
    for writer in writers:
        assert rows_of(writer.address)[1] == [(1, "a")]
    kept = [bool(attached_now(writer.address)) for writer in writers]
    assert kept == [False, False, *[True] * attach.KEPT_MAX]
    file = filled(make_lake())
    assert rows_of(file.address)[1] == [(1, "a")]
    assert attached_now(file.address) == []


def test_another_lake_at_the_address_is_noticed(make_lake: MakeLake) -> None:
    """A kept attachment knows the old lake's schemas: it is not used for another one under that name."""
    old, new = filled(make_lake("sqlite:s.sqlite")), make_lake("sqlite:s.sqlite")
    new.run("CREATE TABLE t (id VARCHAR)", "INSERT INTO t VALUES ('other')")
    source = DuckLakeSource(old.address, generation=1)
    before = source.observe().identity
    assert rows_of(old.address)[1] == [(1, "a")]
    copy_lake(new, old)
    assert rows_of(old.address)[1] == [("other",)]
    assert source.observe().identity == DuckLakeSource(new.address, generation=1).observe().identity != before


def test_an_older_state_of_the_lake_is_noticed(make_lake: MakeLake, tmp_path: Path) -> None:
    """Restored from a backup and altered in another way: the same schema version, but another schema."""
    writer = filled(make_lake("sqlite:s.sqlite"))
    backup = tmp_path / "backup.sqlite"
    shutil.copyfile(writer.address.target.reveal(), backup)
    writer.run("ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7")
    assert rows_of(writer.address)[1] == [(1, "a", 7)]
    writer.release()
    shutil.copyfile(backup, writer.address.target.reveal())
    writer.run("INSERT INTO t VALUES (2, 'b')", "ALTER TABLE t ADD COLUMN z VARCHAR DEFAULT 'z'")
    assert rows_of(writer.address)[1] == [(1, "a", "z"), (2, "b", "z")]


def test_a_flush_that_drops_inlined_tables_is_noticed(make_lake: MakeLake) -> None:
    """The extension remembers which tables hold inlined rows; a flush drops some without a new schema."""
    writer = filled(make_lake("sqlite:s.sqlite", inlining=10))
    writer.run("ALTER TABLE t ADD COLUMN w INTEGER", "INSERT INTO t VALUES (2, 'b', 2)")
    rows = [(1, "a", None), (2, "b", 2)]
    assert rows_of(writer.address)[1] == rows
    writer.run("CALL ducklake_flush_inlined_data('lake')")
    assert rows_of(writer.address)[1] == rows


def copy_lake(origin: LakeWriter, target: LakeWriter) -> None:
    """Put one lake in the place of another: catalog and files."""
    for writer in (origin, target):
        writer.release()
    shutil.copyfile(origin.address.target.reveal(), target.address.target.reveal())
    data = Path(str(origin.address.data_path))
    if data.exists():  # not when all rows are inlined
        shutil.copytree(data, str(target.address.data_path), dirs_exist_ok=True)


FORK = """
import os, sys
from pathlib import Path
from truecut.lake import parse_address
from truecut.sources.ducklake import attach
address = parse_address(sys.argv[1], sys.argv[2], base=Path("/"))
def rows():
    with attach.connection() as own, attach.attached(address, own) as lake:
        return own.execute(f"FROM {lake.alias}.main.t").fetchall()
assert rows() == [(1, "a")]
parents = attach._shared()
child = os.fork()
if child == 0:
    fine = rows() == [(1, "a")] and attach._shared() is not parents
    os._exit(0 if fine else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_does_not_use_its_parents_attachment(make_lake: MakeLake) -> None:
    """A connection does not survive a fork: the child attaches the lake itself."""
    writer = filled(make_lake("sqlite:s.sqlite"))
    arguments = [f"sqlite:{writer.address.target.reveal()}", str(writer.address.data_path)]
    done = subprocess.run([sys.executable, "-c", FORK, *arguments], timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
