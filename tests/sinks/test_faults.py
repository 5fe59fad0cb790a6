"""What can be wrong with a lake becomes a classified fault: no value, no secret, never an exception."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import duckdb
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer, postgres_server
from tests.sinks.conftest import MakeLake
from tests.sinks.world import applied, changes, order, packets, read, rows, seed, sink, standing, tenant
from truecut.errors import Fault, Retry
from truecut.lake import LakeAddress, parse_address
from truecut.model.change import INSERT, READ
from truecut.model.table import Column, Mode, TableSchema
from truecut.sinks.contract import Packet
from truecut.sinks.ducklake import pool

SEED = [(READ, 4, n, "secret value") for n in range(50)]


def fault_of_recover(address: LakeAddress) -> Fault:
    receipt = sink(address).recover(epoch=1, token=1)
    assert (receipt.outcome, receipt.cursor) == ("failed", None)
    assert receipt.fault is not None
    return receipt.fault


def test_a_locked_catalog_is_tried_again(make_lake: MakeLake) -> None:
    """Somebody else has the DuckDB file open: retryable, and it works once they are gone."""
    address = make_lake("duckdb")
    applied(sink(address).recover(epoch=1, token=1))
    code = f"import duckdb; c = duckdb.connect({address.target.reveal()!r}); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        fault = fault_of_recover(address)
        other.communicate(b"\n")
    assert (fault.code, fault.retry) == ("TC4001", Retry.RETRYABLE)
    applied(sink(address).recover(epoch=1, token=1))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file where a folder should be, for catalog or data: not retryable."""
    (tmp_path / "file").write_text("in the way")
    for catalog, data in (
        ("file/a.ducklake", "data"),
        ("sqlite:file/a", "data"),
        ("a.ducklake", "file/data"),
    ):
        fault = fault_of_recover(parse_address(catalog, data, base=tmp_path))
        assert (fault.code, fault.retry) == ("TC4007", Retry.NOT_RETRYABLE)


@pytest.mark.parametrize("scheme", ["", "sqlite:"])
def test_a_file_that_is_no_catalog(tmp_path: Path, scheme: str) -> None:
    """Some other file at the catalog's path is left as it is."""
    other = tmp_path / "notes.txt"
    other.write_text("no catalog " * 2000)
    fault = fault_of_recover(parse_address(f"{scheme}notes.txt", "data", base=tmp_path))
    assert (fault.code, fault.retry) == ("TC4008", Retry.NOT_RETRYABLE)
    assert other.read_text() == "no catalog " * 2000


def test_a_catalog_of_a_newer_format(make_lake: MakeLake) -> None:
    """A format from the future is refused, not migrated or overwritten."""
    file, lite = make_lake("duckdb"), make_lake("sqlite")
    newer = "UPDATE ducklake_metadata SET value = '9.0' WHERE key = 'version'"
    for address in (file, lite):
        applied(sink(address).recover(epoch=1, token=1))
    with duckdb.connect(file.target.reveal()) as catalog:
        catalog.execute(newer)
    pool.forget()
    with sqlite3.connect(lite.target.reveal()) as lite_catalog:
        lite_catalog.execute(newer)
    for address in (file, lite):
        assert fault_of_recover(address).code == "TC4004"


def test_another_data_path_than_the_catalogs(make_lake: MakeLake) -> None:
    """Data would be split over two places: refused."""
    address = make_lake("duckdb")
    applied(sink(address).recover(epoch=1, token=1))
    moved = LakeAddress("duckdb", address.target, f"{address.data_path}-elsewhere")
    assert fault_of_recover(moved).code == "TC4009"


def test_a_server_that_does_not_answer(postgres: PostgresServer, tmp_path: Path) -> None:
    """No connection is retryable, and the password is nowhere in the answer."""
    for conninfo in (
        "host=127.0.0.1 port=1 user=me password=hunter2 dbname=x",
        f"{postgres.conninfo('no_such_database')} password=hunter2",
    ):
        fault = fault_of_recover(parse_address(f"postgres:{conninfo}", "data", base=tmp_path))
        assert (fault.code, fault.retry) == ("TC4005", Retry.RETRYABLE)
        assert "hunter2" not in repr(fault)


def test_a_lost_connection_is_made_again(make_lake: MakeLake, postgres: PostgresServer) -> None:
    """A kept attachment whose server side is gone fails at most once; the next call works."""
    address = make_lake("postgres")
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
    database = address.target.reveal().rpartition("dbname=")[2]
    postgres.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
    wanted, window = order(4, 5, t=changes()), [(INSERT, 5, 99, "n")]
    first = sink(address).apply(wanted, packets(t=window))
    if first.outcome == "failed":
        assert first.fault is not None
        assert first.fault.retry is Retry.RETRYABLE
    assert sink(address).apply(wanted, packets(t=window)).outcome in ("applied", "already")
    assert len(read(address, "t")) == 51


def test_a_full_disk_leaves_the_sink_as_it_was(make_lake: MakeLake, tmp_path: Path) -> None:
    """Data files that cannot be written: retryable, cursor and content untouched, no value in the answer."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
    code = (
        "import pickle, resource, signal, sys\n"
        "sink, order, packets = pickle.load(open(sys.argv[1], 'rb'))\n"
        "sink.recover(epoch=1, token=1)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        "pickle.dump(sink.apply(order, iter(packets)), sys.stdout.buffer)\n"
    )
    values = Random(1)
    window = [(INSERT, 5, n, f"secret {values.getrandbits(2000):x}") for n in range(1000, 6000)]
    (tmp_path / "work").write_bytes(
        pickle.dumps((sink(address), order(4, 5, t=changes()), list(packets(t=window))))
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "work")], capture_output=True, check=True
    )
    receipt = pickle.loads(done.stdout)
    assert receipt.fault is not None
    assert (receipt.outcome, receipt.fault.code, receipt.fault.retry) == ("failed", "TC4002", Retry.RETRYABLE)
    assert "secret" not in repr(receipt)
    assert len(read(address, "t")) == 50
    applied(sink(address).apply(order(4, 5, t=changes()), packets(t=window)))
    assert len(read(address, "t")) == 5050


def test_sinks_of_one_process_do_not_wait_for_one_another(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that hangs inside its transaction keeps only its own sink; others go on beside it."""
    stuck, free = make_lake("sqlite"), make_lake("sqlite")
    for address in (stuck, free):
        applied(sink(address).recover(epoch=1, token=1))
    inside, release = threading.Event(), threading.Event()

    def hang(name: str) -> None:
        if name == "after_sink_data" and threading.current_thread().name == "stuck":
            inside.set()
            release.wait(PATIENCE_S)

    monkeypatch.setattr("truecut.sinks.ducklake.transaction.failpoint", hang)
    results = []
    thread = threading.Thread(
        name="stuck",
        target=lambda: results.append(sink(stuck).apply(order(None, 4, t=seed()), packets(t=SEED))),
    )
    thread.start()
    assert inside.wait(PATIENCE_S)
    applied(sink(free).apply(order(None, 4, t=seed()), packets(t=SEED)))
    applied(sink(stuck).recover(epoch=2, token=2))
    applied(sink(stuck).apply(order(None, 3, token=2, t=seed()), packets(t=SEED[:5])))
    release.set()
    thread.join(PATIENCE_S)
    assert [receipt.fenced_by for receipt in results] == [2]
    assert (len(read(free, "t")), len(read(stuck, "t"))) == (50, 5)


def test_the_pool_is_bounded(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shared lakes a process serves, it keeps only a few attached; unused ones make room."""
    pool.forget()
    monkeypatch.setattr(pool, "KEPT_MAX", {"sqlite": 2})
    lakes = [make_lake("sqlite") for _ in range(4)]
    for address in lakes:
        applied(sink(address).recover(epoch=1, token=1))
    with pool.session() as connection:
        kept = connection.execute(
            "SELECT count(*) FROM duckdb_databases() WHERE type = 'ducklake'"
        ).fetchone()
    assert kept == (2,)
    assert list(pool._idle) == lakes[:2]
    monkeypatch.setattr(pool, "KEPT_S", 0)
    for address in lakes:
        applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
        assert len(read(address, "t")) == 50
    assert list(pool._idle) == lakes[2:]


def test_connections_that_are_kept_do_not_keep_a_lake_out(tmp_path: Path) -> None:
    """A server has no connection left because lakes of it are kept attached: they are let go for the next."""
    pool.forget()
    with postgres_server(settings=("fsync=off", "max_connections=10")) as server:
        databases = [server.create_database(f"lake_{number}") for number in range(6)]
        for number, conninfo in enumerate(databases):
            address = parse_address(f"postgres:{conninfo}", f"data-{number}", base=tmp_path)
            applied(sink(address).recover(epoch=1, token=1))
            applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
        pool.forget()
        assert len(read(address, "t")) == 50


def test_rows_that_the_sink_does_not_take_stop_their_table_alone(make_lake: MakeLake) -> None:
    """They would be refused again and again; the other tables of the order go on, and no value is told."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    numbers = TableSchema("8", (Column(1, "id", "BIGINT"), Column(2, "value", "INTEGER")))
    unfit = Packet("main.u", rows([(READ, 4, 1, "secret")]))  # as texts
    fit = Packet("main.t", rows([(READ, 4, 1, "a")]))
    receipt = applied(
        sink(address).apply(order(None, 4, t=seed(), u=seed(schema=numbers)), iter([fit, unfit]))
    )
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.u"].hold
    assert hold is not None
    assert hold.code == "TC3028"
    assert "secret" not in repr(receipt)
    assert receipt.cursor.copies["main.t"].hold is None
    assert read(address, "t") == [(1, "a")]


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_tenants_constraint_stops_its_table_alone(make_lake: MakeLake, mode: Mode) -> None:
    """A NOT NULL that the tenant has put on a table, changes or a seed that do not keep it: that table is
    held with the true reason, the other one goes on. Without the constraint it is seeded."""
    address = make_lake("duckdb")
    applied(sink(address).recover(epoch=1, token=1))
    first = order(None, 4, t=seed(mode), u=seed())
    applied(sink(address).apply(first, packets(t=SEED, u=SEED)))
    tenant(address, "ALTER TABLE lake.main.t ALTER COLUMN value SET NOT NULL")
    new = [(INSERT, 5, 50, None)]
    receipt = applied(sink(address).apply(order(4, 5, t=changes(mode), u=changes()), packets(t=new, u=new)))
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.t"].hold
    assert hold is not None
    assert (hold.code, "NOT NULL" in hold.message) == ("TC3029", True)
    assert len(read(address, "t")) == 50
    assert len(read(address, "u")) == 51
    again = standing(seed(mode), 4, hold="TC3029", answers=1)
    receipt = applied(sink(address).apply(order(4, 5, t=again), packets(t=[(READ, 5, 50, None)])))
    assert receipt.cursor is not None
    assert receipt.cursor.copies["main.t"].hold == hold
    tenant(address, "ALTER TABLE lake.main.t ALTER COLUMN value DROP NOT NULL")
    again = standing(seed(mode), 4, hold="TC3029", resumed=1, answers=2)
    applied(sink(address).apply(order(4, 5, t=again), packets(t=[(READ, 5, 50, None)])))
    assert (50, None) in read(address, "t", "id, value")


def test_a_key_that_is_twice_in_the_seed_of_an_append_table_holds_it(make_lake: MakeLake) -> None:
    """Nobody could tell later which of the two rows has changed: as for a mirror, the table is held."""
    address = make_lake("duckdb")
    applied(sink(address).recover(epoch=1, token=1))
    twice = [(READ, 4, 1, "x"), (READ, 4, 1, "y")]
    receipt = applied(sink(address).apply(order(None, 4, t=seed("append")), packets(t=twice)))
    assert receipt.cursor is not None
    hold = receipt.cursor.copies["main.t"].hold
    assert hold is not None
    assert hold.code == "TC3020"
