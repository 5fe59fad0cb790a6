"""A capture that runs beside a test; units read when the test says so; and the source at a place, twice: as a
plain SELECT under the snapshot of a slot that was made there, and as units and log give it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from tests.patience import PATIENCE_S
from tests.sources.postgres.busy import TABLES
from tests.sources.postgres.shop import Shop
from truecut.config.secret import Secret
from truecut.journal.local import LocalJournal
from truecut.journal.opening import Where, open_reader
from truecut.journal.reader import LocalReader
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.contract import TableRead, Window
from truecut.sources.postgres import unit_work
from truecut.sources.postgres.capture import Capture, Pace
from truecut.sources.postgres.captured import CapturedLog
from truecut.sources.postgres.journaled import ending
from truecut.sources.postgres.messages import lsn_of
from truecut.sources.postgres.seed import plan_seed
from truecut.sources.postgres.server import Address
from truecut.sources.postgres.unit_ledger import Edition, UnitLedger
from truecut.sources.postgres.unit_read import shared_snapshot

Content = Counter[tuple[Any, ...]]
SMALL = 24 << 10


@dataclass
class Copying:
    """One database, its journal and the units of its tables."""

    shop: Shop
    folder: Path

    @property
    def journal(self) -> Where:
        return Where(str(self.folder / "journal"))

    @property
    def ledger(self) -> UnitLedger:
        return UnitLedger(self.folder / "units")

    def begin(self, table: str, *, unit_bytes: int = SMALL) -> Edition:
        return unit_work.begin(
            self.shop.address,
            self.journal,
            TableName("public", table),
            ledger=self.ledger,
            unit_bytes=unit_bytes,
        )

    def read(self, edition: Edition, unit: int, shared: str | None = None) -> int:
        return unit_work.ReadUnit(self.shop.address, self.journal, edition, unit, shared).run()

    def seeded(self, table: str, at: int, *, parallelism: int = 3) -> Content:
        """What a seed at a place gives."""
        window = self.window(table, at, parallelism=parallelism)
        assert not window.faults, window.faults
        rows: Content = Counter()
        numbers: list[int] = []
        for task in window.tasks:
            for _, batch in task.read():
                numbers += batch.column("_truecut_seq").to_pylist()
                columns = [batch.column(name).to_pylist() for name in TABLES[table]]
                rows.update(zip(*columns, strict=True))
        assert len(set(numbers)) == len(numbers), "each row has a number of its own"
        return rows

    def window(self, table: str, at: int, *, parallelism: int = 1) -> Window:
        """A seed at a place, planned."""
        return plan_seed(
            self.shop.address,
            self.journal,
            [TableRead(TableName("public", table), (), None)],
            at=Position(1, at),
            log=CapturedLog(open_reader(self.journal)),
            parallelism=parallelism,
            ledger=self.ledger,
        )

    def wait_for(self, at: int) -> None:
        """Until the journal has everything up to a place."""
        deadline = time.monotonic() + PATIENCE_S
        while (place := ending(LocalReader(self.folder / "journal")).place) is None or place.lsn <= at:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def copying(shop: Shop, folder: Path) -> Iterator[Copying]:
    """While it lasts, a capture runs."""
    over = threading.Event()
    journal = LocalJournal(folder / "journal", take_over=True)
    pace = Pace(look_s=0.2, wait_s=0.02, append_bytes=20_000, block_bytes=4_000)
    capture = Capture(shop.address, journal, pace=pace)
    thread = threading.Thread(target=capture.run, args=(lambda drained: over.is_set(),))
    thread.start()
    try:
        found = Copying(shop, folder)
        found.wait_for(0)
        yield found
    finally:
        over.set()
        thread.join(PATIENCE_S)
        journal.close()


def at_source(shop: Shop, tables: list[str]) -> tuple[int, dict[str, Content]]:
    """A place, and what the tables hold there: a slot is made, and its snapshot read. Waits for whatever
    runs when it is asked."""
    name = f"probe_{threading.get_ident()}_{time.monotonic_ns()}"
    link = pq.PGconn.connect(f"{shop.conninfo} replication=database".encode())
    try:
        made = link.exec_(
            f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')".encode()
        )
        assert made.status == pq.ExecStatus.TUPLES_OK, made.error_message
        point, snapshot = made.get_value(0, 1), made.get_value(0, 2)
        assert point is not None
        assert snapshot is not None
        with psycopg.connect(shop.conninfo) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.decode()}'")
            held = {
                table: Counter(
                    connection.execute(f"SELECT {', '.join(TABLES[table])} FROM {table}").fetchall()
                )
                for table in tables
            }
    finally:
        link.finish()
    return lsn_of(point.decode()) - 1, held


def at_source_now(shop: Shop, tables: list[str]) -> tuple[int, dict[str, Content]]:
    """The same where nobody commits meanwhile, though transactions may be under way."""
    with shop.connect() as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        held = {
            table: Counter(connection.execute(f"SELECT {', '.join(TABLES[table])} FROM {table}").fetchall())
            for table in tables
        }
    return lsn_of(row[0]) - 1, held


def read_all(conninfo: str, slot: str, folder: Path) -> None:
    """Go on with the units of `items`, as a process that was killed and started again does."""
    address = Address(Secret(conninfo), slot, "truecut")
    journal, ledger = Where(str(folder / "journal")), UnitLedger(folder / "units")
    table = TableName("public", "items")
    edition = ledger.current(table) or unit_work.begin(
        address, journal, table, ledger=ledger, unit_bytes=SMALL
    )
    for unit in range(len(edition.plan.parts)):
        unit_work.ReadUnit(address, journal, edition, unit).run()


__all__ = ["Content", "Copying", "at_source", "at_source_now", "copying", "shared_snapshot"]

if __name__ == "__main__":
    read_all(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
