"""The demo's lakes: a source that somebody keeps changing, and a comparison that trusts nobody.

Uses plain DuckDB only: nothing here goes through the pipeline it demonstrates.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb

from truecut.demo.folder import fresh
from truecut.lake import LakeAddress, attach_sql, connect, parse_address

TENANTS = ("acme", "globex", "hooli", "initech", "umbrella")

_PIPELINE = """\
# Written by `truecut demo`.
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: demo
spec:
  source:
    type: ducklake
    catalog: sqlite:./source.ducklake
    data_path: ./source-data
  tables:
    - name: main.orders
      key: [id]
      route_by: tenant
  sinks:
    - name: "{tenant}"
      type: ducklake
      catalog: "./lakes/{tenant}.ducklake"
      data_path: "./lakes/{tenant}"
      route: "{tenant}"
      for_each: {file: tenants.csv}
  lease: {duration: 3s}
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """One tenant's lake beside its share of the source."""

    tenant: str
    rows: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """Row for row, duplicates included."""
        return self.missing == self.extra == 0


class Lakes:
    """The demo's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "pipeline.yaml"
        self._source = parse_address("sqlite:source.ducklake", "source-data", base=folder)

    def make(self, *, rows: int) -> None:
        """A fresh folder with a pipeline file and a filled source."""
        fresh(self.folder)
        self.file.write_text(_PIPELINE)
        (self.folder / "tenants.csv").write_text("tenant\n" + "".join(f"{t}\n" for t in TENANTS))
        with _attached(self._source, create=True) as lake:
            lake.execute(
                "CREATE TABLE lake.main.orders"
                " (id BIGINT, tenant VARCHAR, item VARCHAR, amount DECIMAL(12, 2), version INTEGER)"
            )
            tenants = ", ".join(f"'{tenant}'" for tenant in TENANTS)
            lake.execute(
                f"INSERT INTO lake.main.orders SELECT i, ([{tenants}])[1 + i * 7 % {len(TENANTS)}],"
                f" 'item ' || (i % 97), (i % 10000) / 100, 0 FROM range({rows}) r(i)"
            )

    def head(self) -> int:
        """The source's last commit."""
        with _attached(self._source) as lake:
            found = lake.execute("FROM lake.current_snapshot()").fetchone()
        assert found is not None
        return int(found[0])

    def compare(self) -> list[Compared]:
        """Every tenant against the source, both ways, counting duplicates."""
        with _attached(self._source) as lake:
            return [self._compare(lake, tenant) for tenant in TENANTS]

    def _compare(self, lake: duckdb.DuckDBPyConnection, tenant: str) -> Compared:
        address = parse_address(f"lakes/{tenant}.ducklake", f"lakes/{tenant}", base=self.folder)
        lake.execute(attach_sql(address, "tenant", read_only=True))
        try:
            share = f"(FROM lake.main.orders WHERE tenant = '{tenant}')"
            copy = "(FROM tenant.main.orders)"
            counts = [
                f"(SELECT count(*) FROM {query})"
                for query in (copy, f"({share} EXCEPT ALL {copy})", f"({copy} EXCEPT ALL {share})")
            ]
            found = lake.execute(f"SELECT {', '.join(counts)}").fetchone()
            assert found is not None
            return Compared(tenant, *found)
        finally:
            lake.execute("DETACH tenant")


class Writer:
    """Somebody who changes the source all the time: new orders, edits, cancellations, moved customers."""

    def __init__(self, lakes: Lakes, *, rows: int) -> None:
        self._address = lakes._source
        self._rows = rows
        self._done = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="orders")
        self._writing: Future[None] | None = None
        self.transactions = 0

    def start(self) -> None:
        """Begin."""
        self._writing = self._thread.submit(self._write)

    def stop(self) -> None:
        """End after the current transaction; raises what ended it before."""
        self._done.set()
        if self._writing is not None:
            self._writing.result()

    def _write(self) -> None:
        chance = random.Random(7)
        with _attached(self._address) as lake:
            next_id = self._rows
            while not self._done.wait(0.02):
                low = chance.randrange(self._rows)
                lake.execute("BEGIN")
                lake.execute(
                    f"INSERT INTO lake.main.orders SELECT i, '{chance.choice(TENANTS)}', 'new', 1, 0"
                    f" FROM range({next_id}, {next_id + 20}) r(i)"
                )
                lake.execute(
                    "UPDATE lake.main.orders SET amount = amount + 1, version = version + 1"
                    f" WHERE id BETWEEN {low} AND {low + 200}"
                )
                lake.execute(f"DELETE FROM lake.main.orders WHERE id BETWEEN {low + 300} AND {low + 310}")
                lake.execute(
                    f"UPDATE lake.main.orders SET tenant = '{chance.choice(TENANTS)}'"
                    f" WHERE id BETWEEN {low + 400} AND {low + 405}"
                )
                lake.execute("COMMIT")
                next_id += 20
                self.transactions += 1


class _attached:
    """A plain DuckDB with one lake attached as `lake`."""

    def __init__(self, address: LakeAddress, *, create: bool = False) -> None:
        self._connection = connect()
        self._connection.execute(attach_sql(address, "lake", create=create))

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()
