"""The steps of a backfill: an edition of a table is begun on the driver, its units are read by executors.

Where the log has to be replayed from is settled first: by a snapshot that is older than those of all units,
which therefore see whatever it sees; and that one is taken when all have ended who had written to the table
before its rows were in the log (C2). Promises: a unit that has its record is not read again; one that was
found torn is read under a snapshot that sees all up to where that was found (C5).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from truecut.core import cut
from truecut.core.visibility import Snapshot
from truecut.errors import Retry, TruecutError
from truecut.failpoint import failpoint
from truecut.journal.contract import JournalReader
from truecut.journal.opening import Where, open_reader
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.postgres import faults, standpoint, unit_faults
from truecut.sources.postgres.captured import CapturedLog, Extent, Mark
from truecut.sources.postgres.footing import footings
from truecut.sources.postgres.history import Log, reach
from truecut.sources.postgres.published import place
from truecut.sources.postgres.server import Address, Connection, answering, connect, server_of
from truecut.sources.postgres.told import looked
from truecut.sources.postgres.unit_ledger import Edition, Settled, UnitLedger
from truecut.sources.postgres.unit_read import asked, read_unit
from truecut.sources.postgres.unit_state import Standing
from truecut.sources.postgres.units import UNIT_BYTES, describe, plan
from truecut.sources.postgres.writers import writers

_OID = """
SELECT c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


def begin(
    address: Address,
    journal: Where,
    table: TableName,
    *,
    ledger: UnitLedger,
    unit_bytes: int = UNIT_BYTES,
) -> Edition:
    """Plan the next edition of a table."""
    asked_for = ledger.asked(table)  # first: a request that comes meanwhile wants another one
    reader = open_reader(journal)
    connection = connect(address)
    try:
        with answering(address, "look at a table"):
            row = connection.execute(_OID, (table.schema, table.table)).fetchone()
        relation = describe(connection, address, row[0]) if row is not None else None
        if relation is None:
            name = ".".join(map(faults.identifier, (table.schema, table.table)))
            raise faults.not_published(address.publication, str(table), name)
        stand(connection, address, reader, table, relation.oid, ledger)
        await_writers(connection, address, reader, table, relation.oid, ledger)
        settled = settle(connection, address, reader, ledger)
        made = plan(connection, address, relation, unit_bytes=unit_bytes)
    finally:
        connection.close()
        reader.close()
    return ledger.begin(table, made, settled, asked=asked_for)


def stand(
    connection: Connection,
    address: Address,
    reader: JournalReader,
    table: TableName,
    oid: int,
    ledger: UnitLedger,
) -> None:
    """What the table stands on is known before anything of it is read: what shakes it later is seen."""
    identity = _extent(CapturedLog(reader)).identity
    known = standpoint.read(ledger.folder_of(table))
    if known is not None and known.log == identity:
        return
    with answering(address, "look at a table"):
        found = footings(connection, address, {}, only=oid).get(table)
        lsn = place(connection, beat=False)
    if found is not None:
        looked(ledger, table, found, log=identity, lsn=lsn)


def await_writers(
    connection: Connection,
    address: Address,
    reader: JournalReader,
    table: TableName,
    oid: int,
    ledger: UnitLedger,
) -> None:
    """C2: raises as long as somebody runs who had written to the table when it was first looked at, which
    was after it was published."""
    # of this server's history: what another one had published may not have been when this one took over
    log = f"{_extent(CapturedLog(reader)).identity}@{server_of(connection, address)}"
    awaited = ledger.awaited(table, log=log, oid=oid)
    if awaited is None:
        found = writers(connection, address, oid)
        awaited = ledger.await_first(table, found, log=log, oid=oid)
        failpoint("units_awaited")
    with answering(address, "look at its snapshot"):
        snapshot, _ = asked(connection)
    if running := cut.unended(awaited, snapshot):
        raise unit_faults.writers_first(table, len(running))


def _extent(log: CapturedLog) -> Extent:
    extent = log.extent()
    if extent is None:
        raise faults.not_captured_yet()
    return extent


def settle(connection: Connection, address: Address, reader: JournalReader, ledger: UnitLedger) -> Settled:
    """From where the log may hold what a snapshot of now, or a later one, does not see."""
    log = CapturedLog(reader)
    extent = _extent(log)
    server = server_of(connection, address)
    if server != extent.place.server:
        raise faults.exchanged()
    with answering(address, "look at its snapshot"):
        snapshot, end = asked(connection)
    lo, after = _known(ledger, log, extent)
    found = reach(Log(reader, after=after, near=snapshot.xmax), snapshot, lo=lo)
    mark = log.marked(found.after.place).lsn
    return Settled(snapshot, found.lo, found.after, extent.identity, mark, end - 1, server)


def _known(ledger: UnitLedger, log: CapturedLog, extent: Extent) -> tuple[int, Position]:
    """What whoever settled before us has found, if that is still where it was; else all that there is."""
    known = ledger.settled(extent.identity)
    if known is not None and log.has(extent, Mark(known.after.place, known.mark)):
        return known.lo, known.after
    return 0, Position(extent.generation, extent.first.record)


def to_read(edition: Edition, found: Standing) -> list[int]:
    """The units that are missing. What was read of a history that did not go on is void first."""
    for unit in found.strayed:
        edition.tear(unit, reading=edition.reading(unit), floor=0)
    return list(found.unread)


@dataclass(frozen=True)
class ReadUnit:
    """One unit to be read, on an executor."""

    address: Address
    journal: Where
    edition: Edition
    unit: int
    shared: str | None = None  # the snapshot of a table without a key
    rows_per_s: float | None = None  # at most

    @property
    def is_pinned(self) -> bool:
        """Pages mean what they are only under their snapshot."""
        return self.shared is not None

    def run(self) -> int:
        """How many rows it has; 0 if somebody has read it meanwhile, or nothing is to be read now."""
        edition = self.edition
        if edition.record(self.unit) is not None or edition.is_paused:
            return 0
        path = edition.new_file(self.unit)
        try:
            record = read_unit(
                self.address,
                edition.plan,
                self.unit,
                path,
                shared=self.shared,
                fits=self._fits(),
                pause=self._pause(),
            )
        except TruecutError as error:
            path.unlink(missing_ok=True)
            if error.fault.code == unit_faults.TABLE_CHANGED:
                edition.make_void("its columns have changed meanwhile")
            elif error.fault.retry is Retry.NOT_RETRYABLE:
                edition.fail(error.fault)
            raise
        except BaseException:  # a full disk, for one: every attempt would leave more of it
            path.unlink(missing_ok=True)
            raise
        edition.finished(self.unit, record)
        return record.rows

    def _pause(self) -> Callable[[int], None]:
        """After so many rows, as long as the rate asks for."""
        rate = self.rows_per_s
        return (lambda rows: time.sleep(rows / rate)) if rate else lambda rows: None

    def _fits(self) -> Callable[[Snapshot], bool]:
        floor = self.edition.floor(self.unit)
        return partial(self._sees, floor) if floor else lambda snapshot: True

    def _sees(self, floor: int, snapshot: Snapshot) -> bool:
        """C5: everything up to there."""
        settled = self.edition.settled
        reader = open_reader(self.journal)
        try:
            log = Log(reader, after=settled.after, near=snapshot.xmax)
            return reach(log, snapshot, lo=settled.lo, upto=floor).unseen is None
        finally:
            reader.close()
