"""The backfill beside a run: reads the units of tables that somebody needs whole.

Promises: only units without a record are read, also after kill -9; one table's trouble keeps no other from
being read; the source has no more than so many sessions of it at once. What it reads becomes a seed when the
source says that the table is ready (`Observation.unready` no longer names it).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import TYPE_CHECKING

from truecut.config.settings import SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.journal.opening import open_reader
from truecut.model.table import TableName
from truecut.sources.postgres import unit_faults
from truecut.sources.postgres.address import journal_of, postgres_source, server_address, units_of
from truecut.sources.postgres.captured import CapturedLog, Extent
from truecut.sources.postgres.unit_ledger import Edition
from truecut.sources.postgres.unit_read import is_held, shared_snapshot
from truecut.sources.postgres.unit_state import Standing, standing
from truecut.sources.postgres.unit_work import ReadUnit, begin
from truecut.spark.backfill import run_units
from truecut.spark.wave.progress import name_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

ROUND = 4  # units for each reader in a job: another table's turn comes soon
IDLE_S = 0.5
REST_S = 5.0  # after a fault
STOP_S = 30.0
GROUP = "truecut-backfill"


class Backfill:
    """Of one source. `want` may be called by anybody; the rest happens in its own thread."""

    def __init__(
        self,
        spark: SparkSession,
        source: SourceSettings,
        *,
        unit_bytes: int | None = None,
    ) -> None:
        self._spark = spark
        self._address, self._journal = server_address(source), journal_of(source)
        self._ledger = units_of(source)
        pace = postgres_source(source.address).pace
        self._readers, self._rows_per_s = pace.readers, pace.rows_per_s
        self._unit_bytes = {} if unit_bytes is None else {"unit_bytes": unit_bytes}
        self._wanted: frozenset[TableName] = frozenset()
        self._read = frozenset(table.name for table in source.tables if table.backfill != "none")
        self._before = self._read  # wanted at the turn before
        self._faults: dict[TableName, Fault] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="truecut backfill", daemon=True)

    def start(self) -> Backfill:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """What is being read is left; what has its record stays."""
        self._stop.set()
        try:
            self._spark.sparkContext.cancelJobGroup(GROUP)
        except Exception:  # noqa: BLE001 - the JVM may be gone, and its jobs with it
            log.debug("Spark did not answer")
        self._thread.join(STOP_S)

    def want(self, tables: Iterable[str]) -> None:
        """The tables that some sink has to get whole."""
        self._wanted = frozenset(map(TableName.parse, tables)) & self._read

    def faults(self) -> dict[TableName, Fault]:
        """Why tables could not be read the last time."""
        return dict(self._faults)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                wanted = self._wanted
                worked = self.turn(wanted)
                self._forget_older(self._before - wanted)
                self._before = wanted
            except Exception as error:  # noqa: BLE001 - Spark raises many kinds; the next turn tries again
                if not self._stop.is_set():
                    log.warning("the backfill could not go on (%s); it is tried again", _told(error))
                worked = False
            self._stop.wait(0.0 if worked else REST_S if self._troubled() else IDLE_S)

    def _troubled(self) -> bool:
        """Whoever waits for transactions to end is in no trouble, and looks again soon."""
        return any(fault.code != unit_faults.WRITERS_FIRST for fault in self._faults.values())

    # --- one turn -------------------------------------------------------------------------------------

    def turn(self, wanted: Collection[TableName]) -> bool:
        """One job for what these tables lack. Returns whether something was read."""
        reader = open_reader(self._journal)
        try:
            extent = CapturedLog(reader).extent() if wanted else None
        finally:
            reader.close()
        if extent is None:
            return False
        with ExitStack() as held:
            waiting = [self._work(table, extent, held) for table in sorted(wanted)]
            everything = (one for turn in zip_longest(*waiting) for one in turn if one is not None)
            # All pages of a table without a key, under the snapshot that is held now; of others a few.
            pages: list[tuple[TableName, ReadUnit]] = []
            keyed: list[tuple[TableName, ReadUnit]] = []
            for one in everything:
                (keyed if one[1].shared is None else pages).append(one)
            return self._job([*pages, *keyed[: self._readers * ROUND]])

    def _work(
        self, table: TableName, extent: Extent, held: ExitStack
    ) -> Sequence[tuple[TableName, ReadUnit]]:
        """What is to be read of a table; nothing where it cannot be read now."""
        try:
            edition, unread = self._edition(table, standing(self._ledger, table, extent))
            if not unread:
                return []
            shared = None if edition.plan.by else self._shared(table, edition, held)
        except TruecutError as error:
            self._cannot(table, error.fault)
            return []
        rate = None if self._rows_per_s is None else self._rows_per_s / self._readers
        units = [ReadUnit(self._address, self._journal, edition, unit, shared, rate) for unit in unread]
        return [(table, one) for one in units]

    def _edition(self, table: TableName, found: Standing) -> tuple[Edition, Sequence[int]]:
        edition = found.edition
        if edition is None:
            edition = begin(self._address, self._journal, table, ledger=self._ledger, **self._unit_bytes)
            found = Standing(edition, None, tuple(range(len(edition.plan.parts))))
        unread = list(found.unread) if edition.fault is None else []
        random.Random(threading.get_native_id()).shuffle(unread)  # two runners rarely read the same
        return edition, unread

    def _shared(self, table: TableName, edition: Edition, held: ExitStack) -> str:
        """The snapshot for all pages of a table, of ours or of another run; one that nobody holds any more
        makes the edition void."""
        name = edition.share()
        if name is None:
            mine = held.enter_context(shared_snapshot(self._address, edition.plan))
            name = edition.share(mine) or mine
        if not is_held(self._address, name):
            edition.make_void("the snapshot of its pages is gone")
            raise unit_faults.not_ready(table, "the snapshot of its pages is gone")
        return name

    def _job(self, work: Sequence[tuple[TableName, ReadUnit]]) -> bool:
        name_job(self._spark, GROUP)
        read = [one for _, one in work]
        done = run_units(self._spark, read, readers=self._readers)
        failed = {work[one.work][0] for one in done if one.fault is not None}
        for table in {table for table, _ in work} - failed:
            self._faults.pop(table, None)
        for one in done:
            if one.fault is not None:
                self._cannot(work[one.work][0], one.fault)
        return any(one.fault is None for one in done)

    def _cannot(self, table: TableName, fault: Fault) -> None:
        """Told once, until it is another one."""
        if self._faults.get(table) != fault:
            level = logging.INFO if fault.code == unit_faults.WRITERS_FIRST else logging.WARNING
            log.log(level, "%s %s; fix: %s", fault.code, fault.message, fault.fix)
        self._faults[table] = fault

    def _forget_older(self, tables: Iterable[TableName]) -> None:
        """Editions before the newest, of tables that nobody waits for: while somebody does, a seed may be
        reading any of them. Another run's seed that does is told so, and takes the newest."""
        for table in tables:
            edition = self._ledger.current(table)
            if edition is not None:
                self._ledger.forget_older(table, edition)


def _told(error: Exception) -> str:
    """Of Spark's errors only the class: their text may repeat what a worker printed."""
    return error.fault.message if isinstance(error, TruecutError) else type(error).__name__
