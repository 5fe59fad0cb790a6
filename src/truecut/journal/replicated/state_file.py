"""What a node knows of one segment besides its records: which one it is, and in which state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from truecut.core import segment_log as core
from truecut.journal import disk
from truecut.journal.document import read_document, write_document
from truecut.journal.record import Damaged
from truecut.journal.scan import Scanned, scan
from truecut.journal.segment import Reach, Start, read_start


@dataclass(frozen=True, slots=True)
class Home:
    """Which segment of which log."""

    log: str
    log_id: str
    segment: int
    first: int  # how many entries the log has before it
    token: int

    @property
    def start(self) -> Start:
        """What its file begins with."""
        return Start(bytes.fromhex(self.log_id), self.first + 1, self.token, generation=0, previous_crc=0)

    def file_in(self, folder: Path) -> Path:
        """Its file."""
        return folder / self.log / f"{self.segment:08d}.log"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a state file says."""

    home: Home
    replica: core.Replica
    reach: Reach
    generation: int
    damage: str | None


def read_state(path: Path) -> Stored:
    """Damaged when it is not what was written; a format from the future is an error of its own."""
    try:
        document = read_document(path)
        home = Home(*(document[key] for key in ("log", "log_id", "segment", "first", "token")))
        length = document["length"]
        seen = length if document["state"] == "sealed" else 0
        replica = core.Replica(document["state"], length, seen)
        return Stored(home, replica, Reach(*document["reach"]), document["generation"], document["damage"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged("its state is not what was written") from error
    except OSError as error:
        raise Damaged(f"its state cannot be read ({error.strerror})") from error


def write_state(path: Path, stored: Stored) -> None:
    """Atomic and durable."""
    home, replica, reach = stored.home, stored.replica, stored.reach
    document = {
        **asdict(home),
        "state": replica.state,
        "length": replica.length,
        "generation": stored.generation,
        "reach": [reach.last, reach.generation, reach.end, reach.crc],
        "damage": stored.damage,
    }
    write_document(path, document, disk.STATE)


def examine(path: Path, stored: Stored, *, every_byte: bool) -> Scanned:
    """A copy's file against its state; Damaged when it is not all there. Of a sealed one only its beginning
    and its size, unless `every_byte`: readers check what they read. Behind its end anything may be."""
    home, replica = stored.home, stored.replica
    try:
        if read_start(path) != home.start:
            raise Damaged("first page")
        if replica.state == "sealed" and not every_byte:
            if path.stat().st_size < stored.reach.end:
                raise Damaged("length")
            return Scanned(stored.reach, home.first + replica.length)
        scanned = scan(path, home.start)
    except FileNotFoundError:
        raise Damaged("its file is missing") from None
    if scanned.damage is not None and replica.state != "sealed":
        raise Damaged(scanned.damage)
    if scanned.reach.last < home.first + replica.length:
        raise Damaged(f"it has {replica.length} records, and {scanned.reach.last - home.first} can be read")
    return scanned
