"""The backfill beside a run: reads the units of tables that somebody needs whole.

Promises: only units without a record are read, also after kill -9; one table's trouble keeps no other from
being read; the source has no more than so many sessions of it at once. What it reads becomes a seed when the
source says that the table is ready (`Observation.unready` no longer names it).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import TYPE_CHECKING

from truecut.config.settings import SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.model.table import TableName
from truecut.sources.captured import Unit, Units
from truecut.sources.registry import captured_source
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
        units: Units | None = None,
    ) -> None:
        """`units`: as its kind gives them, by default."""
        self._spark = spark
        self._units = captured_source(source).units if units is None else units
        self._needed: frozenset[TableName] = frozenset()
        self._resting: frozenset[TableName] | None = None  # nobody has said yet
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

    def want(self, tables: Iterable[str], *, paused: Iterable[str] = ()) -> None:
        """The tables that some sink has to get whole; of those that are paused nothing more is read."""
        resting = frozenset(map(TableName.parse, paused)) & self._read
        for table in self._read if self._resting is None else resting ^ self._resting:
            self._units.pause(table, paused=table in resting)
        self._resting = resting
        self._needed = frozenset(map(TableName.parse, tables)) & self._read

    def ask_again(self, table: str, asked: int) -> None:
        """What was read of the table before this request is of no use any more."""
        self._units.ask_again(TableName.parse(table), asked)

    def faults(self) -> dict[TableName, Fault]:
        """Why tables could not be read the last time."""
        return dict(self._faults)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                wanted = self._needed
                worked = self.turn(wanted - (self._resting or frozenset()))
                self._forget_older(self._before - wanted)
                self._before = wanted
            except Exception as error:  # noqa: BLE001 - Spark raises many kinds; the next turn tries again
                if not self._stop.is_set():
                    log.warning("the backfill could not go on (%s); it is tried again", _told(error))
                worked = False
            self._stop.wait(0.0 if worked else REST_S if self._troubled() else IDLE_S)

    def _troubled(self) -> bool:
        """Whoever waits for others to end something is in no trouble, and looks again soon."""
        return not all(map(self._units.waits, self._faults.values()))

    # --- one turn -------------------------------------------------------------------------------------

    def turn(self, wanted: Collection[TableName]) -> bool:
        """One job for what these tables lack. Returns whether something was read."""
        with ExitStack() as held:
            found = self._units.lacking(sorted(wanted), held)
            if not found:
                return False
            waiting = [self._work(table, one) for table, one in found.items()]
            everything = (one for turn in zip_longest(*waiting) for one in turn if one is not None)
            # All pages of a table without a key, under the snapshot that is held now; of others a few.
            pages: list[tuple[TableName, Unit]] = []
            keyed: list[tuple[TableName, Unit]] = []
            for one in everything:
                (pages if one[1].is_pinned else keyed).append(one)
            return self._job([*pages, *keyed[: self._units.readers * ROUND]])

    def _work(self, table: TableName, found: Sequence[Unit] | Fault) -> Sequence[tuple[TableName, Unit]]:
        """What is to be read of a table; nothing where it cannot be read now."""
        if isinstance(found, Fault):
            self._cannot(table, found)
            return []
        return [(table, one) for one in found]

    def _job(self, work: Sequence[tuple[TableName, Unit]]) -> bool:
        name_job(self._spark, GROUP)
        read = [one for _, one in work]
        done = run_units(self._spark, read, readers=self._units.readers)
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
            level = logging.INFO if self._units.waits(fault) else logging.WARNING
            log.log(level, "%s %s; fix: %s", fault.code, fault.message, fault.fix)
        self._faults[table] = fault

    def _forget_older(self, tables: Iterable[TableName]) -> None:
        """What was read before the newest reading, of tables that nobody waits for: while somebody does, a
        seed may be reading any of it. Another run's seed that does is told so, and takes the newest."""
        for table in tables:
            self._units.forget_older(table)


def _told(error: Exception) -> str:
    """Of Spark's errors only the class: their text may repeat what a worker printed."""
    return error.fault.message if isinstance(error, TruecutError) else type(error).__name__
