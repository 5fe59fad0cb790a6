"""The witness slot: a second slot of a captured source, for whoever reads the log once more to verify.

Capture makes it and never reads it. Promises: it is there before the first place that a copy may begin at,
where it can be; it never keeps more of the server's log than its budget for long; trouble with it stops
nothing: without it V3 is unknown, and says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from truecut.config.secret import Secret
from truecut.config.settings import SourceSettings, WitnessSettings
from truecut.errors import TruecutError
from truecut.sources.postgres import server
from truecut.sources.postgres.lineage import Slot
from truecut.sources.postgres.server import Address, Connection

log = logging.getLogger(__name__)

MAKE_S = 20  # a slot waits for open transactions: capture does not wait with it for long
END_S = 5.0  # for the server to say that it has waited so long


class WitnessSlot:
    """As one process looks after it."""

    def __init__(self, settings: WitnessSettings) -> None:
        self._settings = settings
        self._over = False  # not made again by this process: its budget was used up, or it could not be made

    def tend(self, connection: Connection, address: Address) -> None:
        """Made where it is missing, dropped where the server keeps too much for it."""
        slot = server.witness_slot(connection, address)
        if slot is None:
            if not self._over:
                self._make(address)
        elif not self._is_of_ours(slot, connection):
            return  # of somebody who may need it; `doctor` says so
        elif slot.retained_bytes > self._settings.bytes_max and slot.active_pid is None:
            self._over = True
            server.drop_slot(connection, self._as_slot(address))
            log.warning(
                "the witness slot %s was dropped: the server kept %s bytes of its log for it, "
                "and may keep %s; "
                "run verify --level log more often, or give it more (certificate.witness_bytes_max)",
                self._settings.slot,
                slot.retained_bytes,
                self._settings.bytes_max,
            )

    def _is_of_ours(self, slot: Slot, connection: Connection) -> bool:
        """Whether it is one that we could have made."""
        return slot.plugin == server.PLUGIN and slot.database == connection.info.dbname

    def _make(self, address: Address) -> None:
        """In a session of its own, which may be ended. By a limit of the server's own: a session that is only
        left waits on, and all the while the log is kept for the slot that it makes."""
        try:
            with server.connect(address) as connection:
                connection.execute(f"SET lock_timeout = '{MAKE_S}s'".encode())
                server.create_slot(connection, self._as_slot(address), within_s=MAKE_S + END_S)
        except TruecutError as error:
            self._over = True
            log.warning("no witness slot %s: %s", self._settings.slot, error.fault.message)
        else:
            log.info("made the witness slot %s", self._settings.slot)

    def _as_slot(self, address: Address) -> Address:
        return replace(address, slot=self._settings.slot)


def witness_of(source: SourceSettings) -> WitnessSlot | None:
    """Where the pipeline asks for one."""
    return None if source.witness is None else WitnessSlot(source.witness)


@dataclass(frozen=True, slots=True)
class Witness:
    """The slot, for whoever verifies (`sources.captured`)."""

    address: Address
    slot: str

    @property
    def dsn(self) -> Secret:
        """Of the server."""
        return self.address.conninfo

    @property
    def publication(self) -> str:
        """What is read of the log."""
        return self.address.publication

    def let_go(self, place: int) -> int | None:
        """The slot moves: to the end of the record that the place is in."""
        address = replace(self.address, slot=self.slot, purpose="verify")
        try:
            with server.connect(address) as connection:
                server.advance(connection, address, place)
                moved = server.witness_slot(connection, self.address)
        except TruecutError:
            return None
        return None if moved is None else moved.confirmed
