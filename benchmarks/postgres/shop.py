"""What is measured against: a private PostgreSQL 18 that syncs its disk, a table of eight columns, its work.

Half of the changes insert, a third update, the rest delete. Everything here is plain SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.postgres_server import PostgresServer, postgres_server

SETTINGS = (
    "wal_level=logical",
    "max_connections=100",
    "max_wal_size=8GB",
    "shared_buffers=512MB",
    "synchronous_commit=off",  # of whoever writes: what is measured is not the writer
    "wal_sender_timeout=0",  # of those who are stopped while a backlog is written
)
_TABLE = """
CREATE TABLE events (id bigint PRIMARY KEY, note text, amount numeric(12,2), changed timestamptz, doc jsonb,
                     paid boolean, n integer, weight double precision)
"""
_ROW = (
    "{id}, 'note of ' || {id}, mod({id}, 10000) / 100.0,"
    " '2026-01-01'::timestamptz + {id} * interval '1 second',"
    " jsonb_build_object('kind', mod({id}, 7)), mod({id}, 2) = 0, mod({id}, 1000), {id} / 7.0"
)
_FILL = f"INSERT INTO events SELECT {_ROW.format(id='i')} FROM generate_series(%s::bigint, %s::bigint) i"
# Of twenty changes ten insert, seven update and three delete: rows of this work alone, so each finds its row.
_WORK = f"""
CREATE PROCEDURE work(low bigint, changes bigint, each bigint) LANGUAGE plpgsql AS $$
DECLARE i bigint; r bigint;
BEGIN
  FOR i IN 0 .. changes - 1 LOOP
    r := low + (i / 20) * 10;
    IF i % 20 < 10 THEN INSERT INTO events SELECT {_ROW.format(id="(r + i % 20)")};
    ELSIF i % 20 < 17 THEN UPDATE events SET n = n + 1, note = note || '!' WHERE id = r + i % 20 - 10;
    ELSE DELETE FROM events WHERE id = r + i % 20 - 17; END IF;
    IF (i + 1) % each = 0 THEN COMMIT; END IF;
  END LOOP;
END $$
"""


@dataclass(frozen=True)
class Shop:
    """The source's database, one that is empty, and a folder."""

    server: PostgresServer
    dsn: str
    target: str
    folder: Path

    def url(self, scheme: str) -> str:
        """The source's database for those who want it as a URL."""
        dsn = dict(part.split("=") for part in self.dsn.split())
        return f"{scheme}://postgres@127.0.0.1:{dsn['port']}/{dsn['dbname']}"

    def fill(self, rows: int, *, low: int = 1) -> None:
        """So many rows, in one transaction."""
        with self._connected() as shop:
            shop.execute(_FILL.encode(), (low, low + rows - 1))
            shop.execute("VACUUM (ANALYZE) events")

    def work(self, *, low: int, changes: int, each: int) -> None:
        """So many changes, in transactions of `each`, of rows from `low` on."""
        with self._connected() as shop:
            shop.execute("CALL work(%s, %s, %s)", (low, changes, each))

    def end_of_log(self) -> int:
        """Whatever has committed stands before it, and something behind it, so that it can be reached."""
        with self._connected() as shop:
            row = shop.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
            shop.execute("SELECT pg_logical_emit_message(true, 'benchmark', 'the end')")
        assert row is not None
        return int(row[0])

    def released(self, slot: str) -> int:
        """How far the slot's reader has said that it is durable."""
        with self._connected() as shop:
            row = shop.execute(
                "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
                " WHERE slot_name = %s",
                (slot,),
            ).fetchone()
        return 0 if row is None or row[0] is None else int(row[0])

    def streams(self, slot: str) -> bool:
        """Whether somebody is reading it."""
        with self._connected() as shop:
            row = shop.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,)
            ).fetchone()
        return row is not None and bool(row[0])

    def content(self) -> tuple[Any, ...]:
        """The table in brief, for comparing what a copy holds."""
        with self._connected() as shop:
            row = shop.execute(content("events")).fetchone()
        assert row is not None
        return tuple(row)

    def server_cpu_s(self) -> float:
        """What the server has used so far, processes that ended included."""
        postmaster = psutil.Process(
            int((self.server.folder / "data" / "postmaster.pid").read_text().split()[0])
        )
        living = []
        for child in postmaster.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # ended meanwhile: then the postmaster has its times
                living.append(child.cpu_times())
        own = postmaster.cpu_times()
        return float(
            own.user
            + own.system
            + own.children_user
            + own.children_system
            + sum(t.user + t.system for t in living)
        )

    def pipeline(self, name: str, sinks: Sequence[dict[str, Any]], **spec: Any) -> Path:
        """A pipeline file for this table. Its leases outlive a stop of several minutes."""
        document = {
            "apiVersion": "truecut/v1",
            "kind": "Pipeline",
            "metadata": {"name": name},
            "spec": {
                "source": {"type": "postgres", "dsn": self.dsn},
                "tables": [{"name": "public.events"}],
                "sinks": list(sinks),
                "lease": {"duration": "1h"},
                **spec,
            },
        }
        folder = self.folder / name
        folder.mkdir()
        file = folder / "pipeline.yaml"
        file.write_text(json.dumps(document))
        return file

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            yield connection


LAKE = {"name": "lake", "type": "ducklake", "catalog": "sqlite:lake.db", "data_path": "lake"}


def warehouse(shop: Shop) -> dict[str, Any]:
    """The other database as a sink."""
    return {"name": "warehouse", "type": "postgres", "dsn": shop.target}


def content(table: str) -> bytes:
    """Rows and sums that a lost, doubled or older row changes; in words that DuckDB speaks, too."""
    return f"SELECT count(*), sum(id), sum(n), sum(length(note)), sum(amount) FROM {table}".encode()


@contextmanager
def shop(folder: Path) -> Iterator[Shop]:
    """A server with the table, which is empty."""
    with postgres_server(settings=SETTINGS) as server:
        dsn, target = server.create_database("shop"), server.create_database("warehouse")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_TABLE)
            connection.execute(_WORK.encode())
        yield Shop(server, dsn, target, folder)
