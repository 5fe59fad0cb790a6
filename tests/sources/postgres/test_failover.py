"""A standby takes over: its log goes on where the journal ends if the slot came with it; else it is a gap."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.postgres_server import PostgresServer, _binary, _run, postgres_server
from tests.sources.postgres.shop import Shop, journaled
from tests.sources.postgres.test_gaps import capture, gaps, insert
from truecut.config.secret import Secret

SETTINGS = ("fsync=off", "wal_level=logical", "hot_standby_feedback=on", "primary_slot_name=standby")

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


def _promote(primary: PostgresServer, standby: PostgresServer) -> None:
    """Once it has everything."""
    end = primary.psql("SELECT pg_current_wal_flush_lsn()")
    wait_for(standby, f"SELECT pg_last_wal_replay_lsn() >= '{end}'")
    primary.stop()
    standby.psql("SELECT pg_promote()")
    wait_for(standby, "SELECT NOT pg_is_in_recovery()")


def test_a_standby_that_takes_over(tmp_path: Path) -> None:
    """With the slot, nothing is missing and nothing begins anew; without it, a generation begins."""
    with postgres_server(settings=SETTINGS) as primary:
        shop = Shop(primary, "failover")
        other = Shop(primary, "left_behind")
        capture(shop, tmp_path / "with")
        capture(other, tmp_path / "without")
        primary.psql(f"SELECT pg_drop_replication_slot('{other.slot}')")  # so that it stays behind
        with standby_of(primary, shop) as standby:
            insert(shop, 1)
            _synchronise(primary, standby, shop, tmp_path / "with")
            insert(shop, 2)
            assert standby.psql(f"{SLOTS} '{other.slot}'") == "0"
            _promote(primary, standby)
            for one in (shop, other):
                moved = one.conninfo.replace(str(primary.port), str(standby.port))
                one.conninfo, one.address = moved, replace(one.address, conninfo=Secret(moved))
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
