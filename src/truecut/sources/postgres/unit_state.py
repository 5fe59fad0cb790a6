"""How far the units of a table are, by the ledger and the journal: whether its content can be given.

Metadata only: a folder is listed, records that were read before are remembered. Decides nothing about rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truecut.model.table import TableName
from truecut.sources.postgres.captured import CapturedLog, Extent, Mark
from truecut.sources.postgres.unit_ledger import Edition, UnitLedger, UnitRecord


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one table. `why` says why its content cannot be given at the journal's end; None: it can."""

    edition: Edition | None  # None: one has to be begun
    why: str | None
    unread: tuple[int, ...] = ()
    units: int = 0
    rows: int = 0
    strayed: tuple[int, ...] = ()  # of those unread: they were read, but of a history that did not go on


def standing(ledger: UnitLedger, table: TableName, log: CapturedLog, extent: Extent) -> Standing:
    """What is there, and what is missing."""
    edition = ledger.current(table)
    waits = "; it waits for transactions that had written to it to end" if ledger.is_awaiting(table) else ""
    if edition is None:
        return Standing(None, f"it has not been read yet{waits}")
    if (why := _void(edition, log, extent)) is not None:
        return Standing(None, f"it is read again: {why}{waits}")
    records = edition.records()
    away = strayed(records, log, extent)
    known = [record for unit, record in enumerate(records) if record is not None and unit not in away]
    unread = tuple(unit for unit, record in enumerate(records) if record is None or unit in away)
    rows = sum(record.rows for record in known)
    why = None
    if edition.fault is None and unread:
        why = told(len(known), len(records), rows) + ("; it is paused" if edition.is_paused else "")
    elif edition.fault is None and max(record.hi for record in known) > extent.last.lsn - 1:
        why = "the journal has not reached the place where it was read"
    return Standing(edition, why, unread, len(records), rows, tuple(sorted(away)))


def strayed(records: Sequence[UnitRecord | None], log: CapturedLog, extent: Extent) -> frozenset[int]:
    """Units that were read at a server whose log went another way before the journal had it as far as they
    saw: what they hold may never have happened, and ids of transactions mean others now. Where the journal
    is on the timeline that they were read on, or had passed them on that, they are of one history."""
    return frozenset(
        unit
        for unit, one in enumerate(records)
        if one is not None and _went_elsewhere(one.server, one.hi, log, extent)
    )


def _went_elsewhere(server: str, hi: int, log: CapturedLog, extent: Extent) -> bool:
    """Whether the journal's log is not the one that a server had up to there."""
    return server != extent.place.server and log.server_behind(extent, hi) not in (None, server)


def told(read: int, units: int, rows: int) -> str:
    """How far the reading is. Units are about equal: those that were read say how many rows there are."""
    about = f" of about {rows * units // read:,}" if read else ""
    return f"{read} of its {units} units were read, {rows:,} rows{about}"


def _void(edition: Edition, log: CapturedLog, extent: Extent) -> str | None:
    """Why an edition is of no use any more."""
    if (why := without_its_log(edition, log, extent)) is not None:
        return why
    if not edition.plan.by and len({one.snapshot for one in edition.records() if one is not None}) > 1:
        return "its pages were read under several snapshots"
    return edition.void


def without_its_log(edition: Edition, log: CapturedLog, extent: Extent | None) -> str | None:
    """Its own log must be there, from where its units do not see it: why it is not; None when it is."""
    settled = edition.settled
    if extent is None or settled.log != extent.identity:
        return "it was read along another log"
    if settled.after.place < extent.first.record:
        return "the journal no longer has the changes since"
    if not log.has(extent, Mark(settled.after.place, settled.mark)):
        return "the journal was put back to an earlier state since"
    if _went_elsewhere(settled.server, settled.hi, log, extent):
        return "another server has taken over, from before it was begun"
    return None
