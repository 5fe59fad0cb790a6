"""A PostgreSQL that is written to all the time: orders that come, change and go with their lines in one
transaction, and the overlapping transactions of `Busy` beside them.

Everything is in one thread, a statement at a time, so sessions overlap and never wait for each other.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.patience import PATIENCE_S
from tests.sources.postgres.busy import BIG, Busy
from tests.sources.postgres.piped import frontier

MADE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, note text, total numeric(14,3), doc jsonb, stamp timestamp,"
    " big text)",
    "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE lines (order_id bigint, n int, price numeric(14,3), note text, PRIMARY KEY (order_id, n))",
)
SESSIONS = 3
KEYS = 90
MOVED = 1_000_000 * SESSIONS
# Every column of every table, for a client that compares texts.
COLUMNS = {
    "orders": "id, note, total, doc::text, stamp, big",
    "lines": "order_id, n, price, note",
    "items": "id, n, big, note",
    "pairs": "a, b, n, big",
}
# What holds at every commit: nobody ever sees an order without all of its lines.
TORN = (
    "SELECT count(*) FROM {0}orders o FULL JOIN"
    " (SELECT order_id, sum(price) AS paid FROM {0}lines GROUP BY 1) l"
    " ON l.order_id = o.id WHERE coalesce(o.total, 0) IS DISTINCT FROM coalesce(l.paid, 0)"
)


@dataclass(frozen=True, slots=True)
class Database:
    conninfo: str

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, autocommit=True)


class Trade(Busy):
    """`Busy` and orders. Nobody truncates while `whole` is held: a truncate empties older snapshots, too."""

    def __init__(self, shop: Database, rng: random.Random, *, orders: int = KEYS) -> None:
        super().__init__(shop, rng)
        self.whole = threading.Lock()
        with shop.connect() as connection:
            for statement in MADE:
                connection.execute(statement.encode())
            keys = f"FROM generate_series(1, {orders}) i"
            connection.execute(
                f"INSERT INTO orders SELECT i, 'first', i, '{{\"a\": [1, null]}}', now(), {BIG.format('i')}"
                f" {keys}"
            )
            connection.execute(f"INSERT INTO lines SELECT i, 1, i {keys}")
        self.clerks = [psycopg.connect(shop.conninfo) for _ in range(SESSIONS)]
        self._scripts: list[list[str]] = [[] for _ in self.clerks]
        self._changes: queue.SimpleQueue[tuple[tuple[str, ...], threading.Event]] = queue.SimpleQueue()

    def close(self) -> None:
        super().close()
        for clerk in self.clerks:
            clerk.close()

    def step(self) -> None:
        """A statement of the one, and one of the others."""
        self._change_tables()
        super().step()
        own = self.rng.randrange(SESSIONS)
        script = self._scripts[own] = self._scripts[own] or self._order(own)
        statement = script.pop(0)
        if statement == "COMMIT":
            self.clerks[own].commit()
        elif statement == "ROLLBACK":
            self.clerks[own].rollback()
        else:
            self.clerks[own].execute(statement.encode())

    def change(self, *statements: str) -> None:
        """What needs tables for itself: done in its turn, while nobody has a transaction open."""
        done = threading.Event()
        self._changes.put((statements, done))
        assert done.wait(PATIENCE_S), statements

    def _change_tables(self) -> None:
        with suppress(queue.Empty):
            statements, done = self._changes.get_nowait()
            self.settle()
            with self.shop.connect() as connection:
                for statement in statements:
                    connection.execute(statement.encode())
            done.set()

    def _order(self, own: int) -> list[str]:
        rng = self.rng
        key = rng.randrange(KEYS // SESSIONS) * SESSIONS + own
        paid = f"(SELECT coalesce(sum(price), 0) FROM lines WHERE order_id = {key})"
        total = f"UPDATE orders SET total = {paid} WHERE id = {key}"
        big = BIG.format(rng.randrange(10**6))
        wrong = [
            "SAVEPOINT s",
            f"DELETE FROM lines WHERE order_id = {key}",
            f"DELETE FROM orders WHERE id = {key}",
        ]
        lines = (
            "INSERT INTO lines SELECT id, n, id / 8.0 + n"
            f" FROM orders, generate_series(2, {rng.randrange(3, 9)}) n"
            f" WHERE id = {key} ON CONFLICT DO NOTHING"
        )
        work = rng.choice(
            [
                [
                    f"INSERT INTO orders VALUES ({key}, 'new', 0, '[]', now(), {big}) ON CONFLICT DO NOTHING",
                    lines,
                    total,
                ],
                [f"UPDATE orders SET note = 'n{rng.random()}' WHERE id = {key}", lines, total],
                [f"DELETE FROM lines WHERE order_id = {key} AND n > 3", total],
                [f"DELETE FROM orders WHERE id = {key}", f"DELETE FROM lines WHERE order_id = {key}"],
                [
                    f"DELETE FROM orders WHERE id = {key + MOVED}",
                    f"DELETE FROM lines WHERE order_id = {key + MOVED}",
                    f"UPDATE orders SET id = id + {MOVED} WHERE id = {key}",
                    f"UPDATE lines SET order_id = order_id + {MOVED} WHERE order_id = {key}",
                ],
                [f"UPDATE orders SET big = {big}, doc = doc || '{{}}' WHERE id = {key}"],
            ]
        )
        undone = [*wrong, "ROLLBACK TO s"] if rng.random() < 0.3 else []
        return [*undone, *work, "COMMIT" if rng.random() < 0.85 else "ROLLBACK"]

    def _truncate(self) -> None:
        if not self.whole.acquire(blocking=False):
            return
        try:
            super()._truncate()
            if self.rng.random() < 0.2:
                for clerk in self.clerks:
                    clerk.rollback()
                self._scripts = [[] for _ in self.clerks]
                with self.shop.connect() as connection, connection.transaction():
                    connection.execute("TRUNCATE orders, lines")
                    connection.execute("INSERT INTO orders SELECT i, 'again', 2 FROM generate_series(1, 9) i")
                    connection.execute("INSERT INTO lines SELECT i, 1, 2 FROM generate_series(1, 9) i")
        finally:
            self.whole.release()

    def settle(self) -> None:
        super().settle()
        for clerk in self.clerks:
            clerk.rollback()
        self._scripts = [[] for _ in self._scripts]

    @contextmanager
    def frontier(self) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
        """A place of the log, and a session that sees all tables as they were there."""
        with self.whole, frontier(self.shop.conninfo) as (lsn, seen):
            seen.execute("SET TimeZone = 'UTC'")
            yield lsn, seen


@contextmanager
def trading(conninfo: str, *, seed: int, pause_s: float = 0.004) -> Iterator[Trade]:
    """Tables with content, and somebody who goes on writing to them until the block ends."""
    trade = Trade(Database(conninfo), random.Random(seed))
    over = threading.Event()
    failed: list[Exception] = []

    def write() -> None:
        try:
            while not over.wait(pause_s):
                trade.step()
            trade.settle()
        except Exception as error:  # noqa: BLE001 - it is told below
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield trade
    finally:
        over.set()
        thread.join()
        trade.close()
    assert not failed, failed
