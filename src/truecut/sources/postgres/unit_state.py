"""How far the units of a table are, by the ledger and the journal: whether its content can be given.

Metadata only: a folder is listed, records that were read before are remembered. Decides nothing about rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from truecut.model.table import TableName
from truecut.sources.postgres.captured import Extent
from truecut.sources.postgres.unit_ledger import Edition, UnitLedger


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one table. `why` says why its content cannot be given at the journal's end; None: it can."""

    edition: Edition | None  # None: one has to be begun
    why: str | None
    unread: tuple[int, ...] = ()
    units: int = 0
    rows: int = 0


def standing(ledger: UnitLedger, table: TableName, extent: Extent) -> Standing:
    """What is there, and what is missing."""
    edition = ledger.current(table)
    waits = "; it waits for transactions that had written to it to end" if ledger.is_awaiting(table) else ""
    if edition is None:
        return Standing(None, f"it has not been read yet{waits}")
    if (void := _void(edition, extent)) is not None:
        return Standing(None, f"it is read again: {void}{waits}")
    records = edition.records()
    known = [record for record in records if record is not None]
    unread = tuple(unit for unit, record in enumerate(records) if record is None)
    rows = sum(record.rows for record in known)
    why = None
    if edition.fault is None and unread:
        why = f"{len(known)} of its {len(records)} units were read, {rows:,} rows"
    elif edition.fault is None and max(record.hi for record in known) > extent.last.lsn - 1:
        why = "the journal has not reached the place where it was read"
    return Standing(edition, why, unread, len(records), rows)


def _void(edition: Edition, extent: Extent) -> str | None:
    """Why an edition is of no use any more: its log must be there, from where its units do not see it."""
    if edition.generation != extent.generation:
        return "its log does not go on"
    if edition.settled.after.place < extent.first.record:
        return "the journal no longer has the changes since"
    if not edition.plan.by and len({one.snapshot for one in edition.records() if one is not None}) > 1:
        return "its pages were read under several snapshots"
    return edition.void
