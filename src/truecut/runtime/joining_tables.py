"""Tables that come while a pipeline runs, and that a wildcard of its file means.

The source is asked now and then which tables it has. Promises: whoever runs is told once, with the pipeline
as it is with the new tables, and with the sinks that the run has by then; a table that is gone stays one of
the pipeline's, and is held where it stands; a source that does not answer is asked again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from truecut.config.beginning import FoundTable
from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.errors import Fault, Retry, TruecutError
from truecut.events import tell, tell_fault
from truecut.runtime.revision import with_sinks_of
from truecut.runtime.settled_tables import settle

_log = logging.getLogger(__name__)

LOOK_S = 3.0
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Joined:
    """A pipeline with the tables that have come, and the file that means them: its sinks are the pipeline's,
    but it has its wildcards still."""

    pipeline: Pipeline
    file: Pipeline


class TableWatch:
    """Beside a run, until it is closed. `joined`: what to go on with, once tables have come."""

    def __init__(
        self, file: Callable[[], Pipeline], running: Pipeline, on_joined: Callable[[], None]
    ) -> None:
        """`file`: as far as it is carried out, with its wildcards."""
        self.joined: Joined | None = None
        self._file, self._running, self._on_joined = file, running, on_joined
        self._over = threading.Event()
        self._told: Fault | str | None = None
        self._thread = threading.Thread(target=self._run, name="truecut tables", daemon=True)
        if any(table.is_pattern for table in file().tables):
            self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        kind = SOURCES[self._running.source.type]
        while self.joined is None and not self._over.wait(LOOK_S):
            try:
                found = kind.tables(self._running.source)
                self.joined = with_joined(self._file(), self._running, found)
            except TruecutError as error:
                self._cannot(error.fault)
            except Exception as error:  # noqa: BLE001 - none may end the watch: tables would come unseen
                self._failed(type(error).__name__)
        if self.joined is not None and not self._over.is_set():
            names = {str(table.name) for table in self._running.tables}
            tables = self.joined.pipeline.tables
            new = [str(table.name) for table in tables if str(table.name) not in names]
            tell(_log, logging.INFO, f"new at the source: {', '.join(new)}")
            self._on_joined()

    def _cannot(self, fault: Fault) -> None:
        """What passes is none of our business; the rest is told once."""
        if fault.retry is not Retry.RETRYABLE and fault != self._told:
            tell_fault(_log, fault)
            self._told = fault

    def _failed(self, kind: str) -> None:
        if kind != self._told:
            tell(_log, logging.WARNING, f"the source's tables cannot be listed ({kind}); it is asked again")
            self._told = kind


def with_joined(file: Pipeline, running: Pipeline, found: Sequence[FoundTable]) -> Joined | None:
    """The pipeline that runs, and tables that have come; None if none has."""
    known = {table.name: table for table in running.tables}
    there = {(one.schema, one.name) for one in found}
    gone = [
        FoundTable(name.schema, name.table, (), table.key)
        for name, table in known.items()
        if (name.schema, name.table) not in there
    ]
    settled = settle(file, [*found, *gone])
    if all(table.name in known for table in settled.tables):
        return None
    tables = tuple(known.get(table.name, table) for table in settled.tables)
    return Joined(replace(settled, tables=tables, source=replace(settled.source, tables=tables)), file)


def with_sinks_now(joined: Joined, file: Pipeline) -> Joined:
    """The same with the sinks of a file that was carried out meanwhile. If they cannot have the new tables,
    with those from before: the loop that begins reads the file again, and says what is wrong with it."""
    try:
        return Joined(with_sinks_of(file, joined.pipeline), file)
    except TruecutError:
        return joined
