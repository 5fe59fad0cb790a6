"""A busy little database: several sessions at once, with savepoints, rollbacks, large transactions,
truncates and schema changes. And its own account of what committed: a second slot, made at the start and
read at the end by plain SQL."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.sources.postgres import pgoutput
from truecut.config.secret import Secret
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind
from truecut.sources.postgres.server import Address


class Shop:
    """One database of a server."""

    def __init__(self, server: PostgresServer, database: str, *, publication: bool = True) -> None:
        self.conninfo = server.create_database(database)
        self.slot = f"cut_{database}"
        self.witness = f"witness_{database}"
        self.address = Address(Secret(self.conninfo), self.slot, "truecut")
        self._columns = 0
        self._base = 0
        with self.connect() as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, what text, n numeric, m mood)")
            connection.execute("CREATE TABLE lines (id bigint PRIMARY KEY, note text)")
            connection.execute("ALTER TABLE lines REPLICA IDENTITY FULL")
            connection.execute('CREATE TABLE "Odd Näme" (id bigint PRIMARY KEY, "a ""b" text)')
            if publication:
                connection.execute("CREATE PUBLICATION truecut FOR ALL TABLES")
        if publication:
            self.witness_now()

    def witness_now(self) -> None:
        """From here on a second slot keeps account."""
        with self.connect() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self.witness,))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, autocommit=True)

    def work(self, rng: random.Random, steps: int, *, sessions: int = 3, large_rows: int = 400) -> None:
        """So many statements, in transactions that overlap."""
        connections = [psycopg.connect(self.conninfo) for _ in range(sessions)]
        try:
            for _ in range(steps):
                self._base += 10_000
                self._step(rng, rng.choice(connections), base=self._base, large_rows=large_rows)
            for connection in connections:
                connection.commit()
        finally:
            for connection in connections:
                connection.close()
        self.flush()

    def flush(self) -> None:
        """A message that is of no transaction is not durable at once, and is not shown before it is."""
        with self.connect() as connection:
            written = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            connection.execute("SELECT pg_current_xact_id()")  # which the server's writer sees to
            deadline = time.monotonic() + PATIENCE_S
            waiting = "SELECT pg_current_wal_flush_lsn() < %s::pg_lsn"
            while connection.execute(waiting, written).fetchone() == (True,):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def _step(self, rng: random.Random, one: psycopg.Connection[Any], *, base: int, large_rows: int) -> None:
        """Sessions never wait for each other: each writes rows of its own."""
        what = rng.random()
        if what < 0.35:
            self._insert(one, base, rng.randrange(1, 5))
        elif what < 0.5:
            self._insert(one, base, 3)
            one.execute("UPDATE orders SET n = n + 1 WHERE id BETWEEN %s AND %s", (base, base + 2))
            one.execute("DELETE FROM lines WHERE id = %s", (base + 1,))
        elif what < 0.62:
            self._savepoints(rng, one, base)
        elif what < 0.7:
            self._insert(one, base, large_rows)
        elif what < 0.85:
            one.commit()
        elif what < 0.92:
            one.rollback()
        elif what < 0.96:
            one.execute("SELECT pg_logical_emit_message(%s, 'note', 'hello')", (rng.random() < 0.5,))
        else:
            one.commit()
            self._alone(rng, base)

    def _insert(self, one: psycopg.Connection[Any], base: int, count: int) -> None:
        one.execute(
            "INSERT INTO orders (id, what, n, m) SELECT i, repeat('x', (i %% 50)::int), i / 7.0, 'glad'"
            " FROM generate_series(%s::bigint, %s) i",
            (base, base + count - 1),
        )
        one.execute(
            "INSERT INTO lines SELECT i, 'line ' || i FROM generate_series(%s::bigint, %s) i",
            (base, base + count - 1),
        )

    def _savepoints(self, rng: random.Random, one: psycopg.Connection[Any], base: int) -> None:
        for n in range(rng.randrange(1, 4)):
            one.execute("SAVEPOINT s")
            self._insert(one, base + 50 * n, rng.randrange(1, 40))
            if rng.random() < 0.5:
                one.execute("ROLLBACK TO s")

    def _alone(self, rng: random.Random, base: int) -> None:
        """What needs a table for itself, as far as nobody else holds it."""
        with self.connect() as connection:
            connection.execute("SET lock_timeout = '50ms'")
            try:
                what = rng.randrange(4)
                if what == 0:
                    connection.execute("TRUNCATE orders, lines")
                elif what == 1:
                    self._columns += 1
                    connection.execute(f"ALTER TABLE orders ADD COLUMN c{self._columns} int DEFAULT 5")
                elif what == 2:
                    connection.execute('INSERT INTO "Odd Näme" VALUES (%s, %s)', (base, "x"))
                else:
                    connection.execute("ALTER TABLE lines ALTER note TYPE varchar(100)")
            except psycopg.errors.LockNotAvailable:
                pass

    def committed(self) -> list[pgoutput.Transaction]:
        """What the second slot says, read from its beginning."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
                " 'publication_names', 'truecut', 'messages', 'true')",
                (self.witness,),
            ).fetchall()
        return pgoutput.transactions(bytes(row[0]) for row in rows)


def journaled(folder: Path) -> list[pgoutput.Transaction]:
    """What the journal holds, each record read with nothing but what it announces itself."""
    found: list[pgoutput.Transaction] = []
    parts: list[bytes] = []
    count = 0
    for entry in LocalReader(folder).read(after=None):
        record = entry.record
        if record.kind is not Kind.CHANGES:
            assert count == 0 or record.last, "nothing stands between the parts of a transaction"
            continue
        messages = pgoutput.split(record.payload)
        assert record.part == count
        pgoutput.require_announced(messages)
        parts += messages
        count += 1
        if record.last:
            found += pgoutput.transactions(parts)
            parts, count = [], 0
    assert not parts, "the last transaction is whole"
    return found


def generations(folder: Path) -> Sequence[int]:
    """Those of the records, in order."""
    return sorted({entry.position.generation for entry in LocalReader(folder).read(after=None)})
