"""A PostgreSQL as capture, trimming and the backfill see it (`sources.captured`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truecut.config.settings import SourceSettings
from truecut.journal.contract import Journal, JournalReader
from truecut.model.position import Position
from truecut.sources.postgres import server
from truecut.sources.postgres.address import postgres_source, server_address, units_of
from truecut.sources.postgres.capture import Capture
from truecut.sources.postgres.captured import CapturedLog, Extent
from truecut.sources.postgres.server_units import ServerUnits
from truecut.sources.postgres.witness_slot import Witness, witness_of


@dataclass(frozen=True, slots=True)
class KeptLog:
    """What the journal has of a server's log: the marker at its end says so."""

    log: CapturedLog
    extent: Extent

    @property
    def identity(self) -> str:
        """Of what was captured."""
        return self.extent.identity

    @property
    def head(self) -> int:
        """The place before the last marker's LSN."""
        return self.extent.last.lsn - 1

    @property
    def resumes_at(self) -> Position:
        """The last marker."""
        return Position(self.extent.generation, self.extent.last.record)

    def needless_after(self, place: int) -> Position:
        """The record before the marker behind which reading begins."""
        mark = self.log.before(self.extent, max(place + 1, self.extent.first.lsn))
        return Position(self.extent.generation, mark.record - 1)


@dataclass(frozen=True, slots=True)
class CapturedServer:
    """One server, for one pipeline."""

    settings: SourceSettings

    @property
    def name(self) -> str:
        """The slot's."""
        return server_address(self.settings).slot

    @property
    def units(self) -> ServerUnits:
        """Of its tables."""
        return ServerUnits(self.settings)

    def capture(self, journal: Journal, *, check: Callable[[], None], spool_folder: Path | None) -> Capture:
        """From the slot, within the budget that the file has."""
        budget = postgres_source(self.settings.address).budget
        address = server_address(self.settings)
        return Capture(
            address,
            journal,
            check=check,
            budget=budget,
            spool_folder=spool_folder,
            witness=witness_of(self.settings),
        )

    def kept(self, journal: JournalReader) -> Callable[[], KeptLog | None]:
        """Remembers from one look to the next what was found."""
        log = CapturedLog(journal)

        def look() -> KeptLog | None:
            extent = log.extent()
            return None if extent is None else KeptLog(log, extent)

        return look

    def witness(self) -> Witness | None:
        """The second slot, if the file names one."""
        address = server_address(self.settings)
        return None if address.witness is None else Witness(address, address.witness)

    def drop_made(self) -> tuple[list[str], list[str]]:
        """Slots and publication."""
        return server.drop_made(server_address(self.settings))

    def forget(self) -> None:
        """Units."""
        units_of(self.settings).remove()
