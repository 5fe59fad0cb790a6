"""Which tables the log does not tell all of, found at each look at the catalog.

Promises: what was shaken between two looks is said once, copies from before are void, and whoever stands
before the look is told that its history is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Protocol

from truecut.errors import Fault
from truecut.model.table import Mode, TableName
from truecut.sources.contract import TableRead
from truecut.sources.postgres import faults, standpoint
from truecut.sources.postgres.footing import Footing
from truecut.sources.postgres.published import Published
from truecut.sources.postgres.standpoint import Standpoint
from truecut.sources.postgres.unit_ledger import UnitLedger

log = logging.getLogger(__name__)


class Stands(Protocol):
    """A table, where it stands, and who reads it."""

    @property
    def read(self) -> TableRead: ...
    @property
    def after(self) -> int: ...
    @property
    def modes(self) -> frozenset[Mode]: ...


class Told:
    """Of the tables of one pipeline."""

    def __init__(self, ledger: UnitLedger, tables: Collection[TableName]) -> None:
        self._ledger, self._tables = ledger, tables
        self._known: dict[TableName, Standpoint] = {}

    def look(self, found: Published, *, log: str) -> None:
        """The catalog, as it was just read."""
        for name in self._tables:
            footing = found.footings.get(name)
            if footing is not None:
                self._known[name] = looked(self._ledger, name, footing, log=log, lsn=found.lsn)
            elif name not in self._known and (known := standpoint.read(self._ledger.folder_of(name))):
                self._known[name] = known  # it is away, and may come back

    def oids(self, *, log: str) -> dict[int, TableName]:
        """Of the tables as they were seen last, also of those that are away from their names."""
        return {one.footing.oid: name for name, one in self._known.items() if one.log == log}

    def untold(self, wanted: Sequence[Stands], *, log: str) -> dict[TableName, Fault]:
        """Those that stand before a place from which on the log tells all."""
        lost = {}
        for one in wanted:
            known = self._known.get(one.read.name)
            if known is None or known.log != log:
                continue
            since = known.rows if "mirror" in one.modes else known.events
            if one.after < since:
                lost[one.read.name] = faults.untold(one.read.name, known.why)
        return lost


def looked(ledger: UnitLedger, table: TableName, footing: Footing, *, log: str, lsn: int) -> Standpoint:
    """Remember one look. A copy from before what it has found is of no use: it is void before that is known,
    so that no crash between the two hides it."""
    folder = ledger.folder_of(table)
    known = standpoint.read(folder)
    now, found = standpoint.after_look(known, footing, log=log, lsn=lsn)
    if found is not None:
        _say(table, found.why)
        edition = ledger.current(table)
        if edition is not None and edition.void is None:
            edition.make_void(found.why)
    if known is None or (now.log, now.footing, now.rows, now.events) != (
        known.log,
        known.footing,
        known.rows,
        known.events,
    ):
        standpoint.write(folder, now)
    return now


def _say(table: TableName, why: str) -> None:
    log.warning("%s: the source's log does not tell all that happened to it: %s", table, why)
