"""Tables of a PostgreSQL, read in units by any number of processes (`sources.captured.Units`).

Promises: only units without a record are read, also after kill -9; all pages of a table without a key are
read under one snapshot, or none.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from truecut.config.settings import SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.journal.opening import journal_of, open_reader
from truecut.model.table import TableName
from truecut.sources.postgres import unit_faults
from truecut.sources.postgres.address import postgres_source, server_address, units_of
from truecut.sources.postgres.captured import CapturedLog
from truecut.sources.postgres.unit_ledger import Edition, UnitLedger
from truecut.sources.postgres.unit_read import is_held, shared_snapshot
from truecut.sources.postgres.unit_state import Standing, standing
from truecut.sources.postgres.unit_work import ReadUnit, begin, to_read
from truecut.sources.postgres.units import UNIT_BYTES


@dataclass(frozen=True)
class ServerUnits:
    """Of one server."""

    settings: SourceSettings
    unit_bytes: int = UNIT_BYTES

    @property
    def readers(self) -> int:
        """As the file says."""
        return postgres_source(self.settings.address).pace.readers

    def lacking(
        self, tables: Sequence[TableName], held: ExitStack
    ) -> Mapping[TableName, Sequence[ReadUnit] | Fault]:
        """By the ledger and the journal. An edition is begun where there is none."""
        return {table: self._work(table, one, held) for table, one in self._standings(tables).items()}

    def waits(self, fault: Fault) -> bool:
        """For transactions that had written to a table before it was published."""
        return fault.code == unit_faults.WRITERS_FIRST

    def pause(self, table: TableName, *, paused: bool) -> None:
        """In the ledger, where every reader looks."""
        self._ledger.pause(table, paused=paused)

    def ask_again(self, table: TableName, asked: int) -> None:
        """What was read of the table before this request is of no use any more."""
        self._ledger.ask_again(table, asked)

    def forget_older(self, table: TableName) -> None:
        """Editions before the newest. A seed that reads one of them is told so, and takes the newest."""
        edition = self._ledger.current(table)
        if edition is not None:
            self._ledger.forget_older(table, edition)

    @property
    def _ledger(self) -> UnitLedger:
        return units_of(self.settings)

    def _standings(self, tables: Sequence[TableName]) -> dict[TableName, Standing]:
        """How far each is; nothing before anything was captured."""
        reader = open_reader(journal_of(self.settings))
        try:
            log = CapturedLog(reader)
            extent = log.extent() if tables else None
            if extent is None:
                return {}
            return {table: standing(self._ledger, table, log, extent) for table in tables}
        finally:
            reader.close()

    def _work(self, table: TableName, found: Standing, held: ExitStack) -> Sequence[ReadUnit] | Fault:
        try:
            edition, unread = self._edition(table, found)
            if not unread:
                return []
            shared = None if edition.plan.by else self._shared(table, edition, held)
        except TruecutError as error:
            return error.fault
        pace = postgres_source(self.settings.address).pace
        rate = None if pace.rows_per_s is None else pace.rows_per_s / pace.readers
        address, journal = server_address(self.settings), journal_of(self.settings)
        return [ReadUnit(address, journal, edition, unit, shared, rate) for unit in unread]

    def _edition(self, table: TableName, found: Standing) -> tuple[Edition, Sequence[int]]:
        edition = found.edition
        if edition is None:
            address, journal = server_address(self.settings), journal_of(self.settings)
            edition = begin(address, journal, table, ledger=self._ledger, unit_bytes=self.unit_bytes)
            found = Standing(edition, None, tuple(range(len(edition.plan.parts))))
        unread = to_read(edition, found) if edition.fault is None else []
        random.Random(threading.get_native_id()).shuffle(unread)  # two runners rarely read the same
        return edition, unread

    def _shared(self, table: TableName, edition: Edition, held: ExitStack) -> str:
        """The snapshot for all pages of a table, of ours or of another run; one that nobody holds any more
        makes the edition void."""
        address = server_address(self.settings)
        name = edition.share()
        if name is None:
            mine = held.enter_context(shared_snapshot(address, edition.plan))
            name = edition.share(mine) or mine
        if not is_held(address, name):
            edition.make_void("the snapshot of its pages is gone")
            raise unit_faults.not_ready(table, "the snapshot of its pages is gone")
        return name
