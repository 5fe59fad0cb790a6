"""The demo's shop: orders and their lines in a PostgreSQL that is never at rest, and a comparison that trusts
nobody.

Uses psycopg and plain DuckDB only: nothing here goes through the pipeline it demonstrates.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from truecut.demo.folder import fresh
from truecut.lake import attach_sql, connect, parse_address

TABLES = ("orders", "order_lines")
SINKS = ("lake", "warehouse")
LINES = 3  # of each order, at first
_WRITE_PAUSE_S = 0.004

_PIPELINE = """\
# Written by `truecut demo`.
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: shop
spec:
  source:
    type: postgres
    dsn: "{source}"
  tables:
    - name: public.*
  sinks:
    - {{name: lake, type: ducklake, catalog: "./lake.ducklake", data_path: "./lake"}}
    - {{name: warehouse, type: postgres, dsn: "{warehouse}"}}
  batch: {{interval: 500ms}}
  certificate: {{path: ./certificates, interval: 2s}}
  lease: {{duration: 3s}}
"""
_MADE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, status text, placed timestamp, "
    "total numeric(12,2))",
    "CREATE TABLE order_lines (order_id bigint REFERENCES orders, n int, item text, price numeric(10,2), "
    "PRIMARY KEY (order_id, n))",
)
_ORDERS = (
    "INSERT INTO orders SELECT i, 'customer ' || mod(i, 977), 'paid', timestamp '2026-01-01' + "
    "i * interval '1 second', mod(i, 10000) / 100.0 FROM generate_series(1, %s) i"
)
_ORDER_LINES = (
    "INSERT INTO order_lines SELECT i, n, 'item ' || mod(i * n, 97), mod(i, 1000) / 100.0 "
    "FROM generate_series(1, %s) i, generate_series(1, %s) n"
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One table at one sink beside the source's own."""

    sink: str
    table: str
    rows: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """Row for row, duplicates included."""
        return self.missing == self.extra == 0


class Shop:
    """The demo's folder, and its two databases on a server that runs."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.file = folder / "pipeline.yaml"
        self._server = dsn
        self.source, self.warehouse = f"{dsn}shop", f"{dsn}warehouse"

    def make(self, *, orders: int) -> None:
        """A fresh folder with a pipeline file, and a filled shop."""
        fresh(self.folder)
        self.file.write_text(_PIPELINE.format(source=self.source, warehouse=self.warehouse))
        with psycopg.connect(f"{self._server}postgres", autocommit=True) as server:
            for name in ("shop", "warehouse"):
                server.execute(f"CREATE DATABASE {name}".encode())
        with psycopg.connect(self.source, autocommit=True) as shop:
            for statement in _MADE:
                shop.execute(statement.encode())
            shop.execute(_ORDERS, (orders,))
            shop.execute(_ORDER_LINES, (orders, LINES))
            shop.execute("ANALYZE")

    def end_of_log(self) -> int:
        """Everything that has committed stands before this place of the source's log."""
        with psycopg.connect(self.source, autocommit=True) as shop:
            place = shop.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
            shop.execute("SELECT pg_logical_emit_message(true, 'truecut demo', 'the end')")
        assert place is not None
        return int(place[0])

    def tamper(self) -> int:
        """Somebody changes an order in the lake, behind our back; which one."""
        with connect() as lake:
            address = parse_address("lake.ducklake", "lake", base=self.folder)
            lake.execute(attach_sql(address, "lake"))
            found = lake.execute("SELECT quantile_disc(id, 0.4) FROM lake.public.orders").fetchone()
            assert found is not None
            lake.execute(f"UPDATE lake.public.orders SET total = total + 100 WHERE id = {found[0]}")
            return int(found[0])

    def compare(self) -> list[Compared]:
        """Every table at every sink against the source, both ways, counting duplicates."""
        with psycopg.connect(self.source) as shop, psycopg.connect(self.warehouse) as warehouse:
            found: list[Compared] = []
            for table in TABLES:
                expected = Counter(shop.execute(f"SELECT * FROM public.{table}".encode()))
                copies = {
                    "lake": self._in_lake(table),
                    "warehouse": warehouse.execute(f"SELECT * FROM public.{table}".encode()).fetchall(),
                }
                found += [_compared(sink, table, expected, Counter(copies[sink])) for sink in SINKS]
            return found

    def _in_lake(self, table: str) -> list[tuple[Any, ...]]:
        with connect() as lake:
            address = parse_address("lake.ducklake", "lake", base=self.folder)
            lake.execute(attach_sql(address, "lake", read_only=True))
            return lake.execute(f"FROM lake.public.{table}").fetchall()


def _compared(sink: str, table: str, expected: Counter[Any], got: Counter[Any]) -> Compared:
    return Compared(sink, table, got.total(), (expected - got).total(), (got - expected).total())


class Customers:
    """They order, change their mind and cancel, all the time: an order and its lines in one transaction."""

    def __init__(self, shop: Shop, *, orders: int) -> None:
        self._dsn = shop.source
        self._orders = orders
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="customers")
        self._ordering: Future[None] | None = None
        self.transactions = 0

    def start(self) -> None:
        """Begin."""
        self._ordering = self._thread.submit(self._order)

    def stop(self) -> None:
        """End after the current transaction; raises what ended it before."""
        self._over.set()
        if self._ordering is not None:
            self._ordering.result()

    def _order(self) -> None:
        chance = random.Random(7)
        with psycopg.connect(self._dsn) as shop:
            new = self._orders
            while not self._over.wait(_WRITE_PAUSE_S):
                new += 1
                self._one(shop, new, old=chance.randrange(1, new), kind=chance.randrange(4))
                shop.commit()
                self.transactions += 1

    def _one(self, shop: psycopg.Connection[Any], new: int, *, old: int, kind: int) -> None:
        if kind == 0:  # cancelled
            shop.execute("DELETE FROM order_lines WHERE order_id = %s", (old,))
            shop.execute("DELETE FROM orders WHERE id = %s", (old,))
        elif kind == 1:  # changed
            shop.execute("UPDATE order_lines SET price = price + 1 WHERE order_id = %s", (old,))
            shop.execute("UPDATE orders SET total = total + 1, status = 'changed' WHERE id = %s", (old,))
        else:
            shop.execute("INSERT INTO orders VALUES (%s, 'new customer', 'placed', now(), 3)", (new,))
            shop.execute(
                "INSERT INTO order_lines SELECT %s, n, 'new item', 1 FROM generate_series(1, 3) n", (new,)
            )
