"""A standby takes over: its log goes on where the journal ends if the slot came with it; else it is a gap."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.postgres_server import PostgresServer, _binary, _run, postgres_server
from tests.sources.postgres.copying import Copying
from tests.sources.postgres.shop import Shop, journaled
from tests.sources.postgres.test_checks import refusal
from tests.sources.postgres.test_gaps import capture, gaps, insert
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.journal.opening import open_reader
from truecut.model.table import TableName
from truecut.sources.postgres.captured import CapturedLog, Extent
from truecut.sources.postgres.checks import findings
from truecut.sources.postgres.unit_ledger import Edition
from truecut.sources.postgres.unit_state import Standing, standing
from truecut.sources.postgres.unit_work import to_read

SETTINGS = ("fsync=off", "wal_level=logical", "hot_standby_feedback=on", "primary_slot_name=standby")

LOST, KEPT = 7, 8
SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE slot_name ="


@contextmanager
def standby_of(primary: PostgresServer, shop: Shop) -> Iterator[PostgresServer]:
    """From a base backup, on a port of its own."""
    folder = primary.folder / "standby"
    primary.psql("SELECT pg_create_physical_replication_slot('standby')")
    source = f"{primary.conninfo()} application_name=standby"
    _run(["mkdir", str(folder)], primary.folder)
    backup = [_binary(18, "pg_basebackup"), "-D", str(folder / "data"), "-d", source, "-R", "-c", "fast"]
    _run([*backup, "-S", "standby"], primary.folder)
    port = free_port()
    options = re.sub(rf"-p {primary.port}\b", f"-p {port}", primary.options)
    options = options.replace(f"-k {primary.folder}", f"-k {folder}")
    conninfo = shop.conninfo.replace(" ", "\\ ")
    standby = replace(primary, port=port, folder=folder, options=f"{options} -c primary_conninfo={conninfo}")
    standby.start()
    try:
        yield standby
    finally:
        standby.stop()


def wait_for(server: PostgresServer, sql: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while server.psql(sql) != "t":
        assert time.monotonic() < deadline, sql
        time.sleep(0.1)


def _promote(primary: PostgresServer, standby: PostgresServer, meanwhile: Callable[[], None]) -> None:
    """Once it has everything, but for what happens `meanwhile`: no standby ever hears of that."""
    end = primary.psql("SELECT pg_current_wal_flush_lsn()")
    wait_for(standby, f"SELECT pg_last_wal_replay_lsn() >= '{end}'")
    standby.stop()
    meanwhile()
    primary.stop()
    standby.start()
    standby.psql("SELECT pg_promote()")
    wait_for(standby, "SELECT NOT pg_is_in_recovery()")


def _read_what_is_lost(copy: Copying, lines: Edition) -> None:
    """A row that no standby has, in a unit; and a table whose reading is begun."""
    insert(copy.shop, LOST)
    copy.read(lines, 0)
    copy.begin("orders")


def _copied(copy: Copying) -> list[int]:
    """Keys that a seed gives at the journal's end."""
    _, extent = _standing(copy, "lines")
    window = copy.window("lines", extent.last.lsn - 1)
    batches = [rows.batch for task in window.tasks for rows in task.read()]
    return sorted(id for batch in batches for id in batch.column("id").to_pylist())


def _standing(copy: Copying, table: str) -> tuple[Standing, Extent]:
    log = CapturedLog(open_reader(copy.journal))
    extent = log.extent()
    assert extent is not None
    return standing(copy.ledger, TableName("public", table), log, extent), extent


def test_a_standby_that_takes_over(tmp_path: Path) -> None:
    """With the slot, nothing is missing and nothing begins anew; without it, a generation begins. A unit that
    was read of the server that is gone holds what never was, and its snapshot means other transactions by
    now: it is read again."""
    with postgres_server(settings=SETTINGS) as primary:
        shop = Shop(primary, "failover")
        other = Shop(primary, "left_behind")
        copy = Copying(Shop(primary, "copied"), tmp_path / "copied")
        capture(shop, tmp_path / "with")
        capture(other, tmp_path / "without")
        capture(copy.shop, copy.folder / "journal")
        primary.psql(f"SELECT pg_drop_replication_slot('{other.slot}')")  # so that it stays behind
        with standby_of(primary, shop) as standby:
            there = Secret(shop.conninfo.replace(str(primary.port), str(standby.port)))
            address = replace(shop.address, conninfo=there)
            assert [one.fault.code for one in findings(address)] == ["TC2116"]
            assert refusal(address, tmp_path / "standby") == "TC2116"
            insert(shop, 1)
            _synchronise(primary, standby, shop, tmp_path / "with")
            _synchronise(primary, standby, copy.shop, copy.folder / "journal")
            lines = copy.begin("lines")
            insert(shop, 2)
            capture(copy.shop, copy.folder / "journal")  # behind where it was begun
            assert standby.psql(f"{SLOTS} '{other.slot}'") == "0"
            _promote(primary, standby, lambda: _read_what_is_lost(copy, lines))
            for one in (shop, other, copy.shop):
                moved = one.conninfo.replace(str(primary.port), str(standby.port))
                one.conninfo, one.address = moved, replace(one.address, conninfo=Secret(moved))
            insert(copy.shop, KEPT)  # under the id that the lost one had
            standby.psql("SELECT pg_logical_emit_message(true, 'far', repeat('x', 100000))")
            capture(copy.shop, copy.folder / "journal")
            with pytest.raises(TruecutError, match="did not go on"):
                _copied(copy)
            found, _ = _standing(copy, "lines")
            assert [copy.read(lines, unit) for unit in to_read(lines, found)] == [1]
            begun, _ = _standing(copy, "orders")
            assert begun.edition is None
            assert "taken over" in str(begun.why)
            capture(copy.shop, copy.folder / "journal")
            assert _copied(copy) == [KEPT]
            insert(shop, 3)
            capture(shop, tmp_path / "with")
            capture(other, tmp_path / "without")
    ids = [
        int(re.findall(rb"t\x00\x00\x00\x01(\d)", one.changes[0][0])[0])
        for one in journaled(tmp_path / "with")
    ]
    assert ids == [1, 2, 3]
    assert list(gaps(tmp_path / "with")) == [1]
    assert "is gone" in str(gaps(tmp_path / "without")[2])


def _synchronise(primary: PostgresServer, standby: PostgresServer, shop: Shop, folder: Path) -> None:
    """The standby takes the slot over once it is not behind what the standby itself keeps."""
    there = (
        f"SELECT bool_or(synced AND NOT temporary) FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"
    )
    deadline = time.monotonic() + PATIENCE_S
    while standby.psql(there) != "t":
        assert time.monotonic() < deadline
        primary.psql("SELECT pg_log_standby_snapshot()")
        capture(shop, folder)
        end = primary.psql("SELECT pg_current_wal_flush_lsn()")
        wait_for(standby, f"SELECT pg_last_wal_replay_lsn() >= '{end}'")
        standby.psql("SELECT pg_sync_replication_slots()")
