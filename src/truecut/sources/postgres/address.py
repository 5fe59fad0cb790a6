"""Where a PostgreSQL source is, and under which names its changes are kept there."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

from truecut.addresses import database_identity
from truecut.config.kinds import Address
from truecut.config.secret import Secret
from truecut.config.settings import SourceSettings
from truecut.core.capture import WalBudget
from truecut.sources.postgres import server
from truecut.sources.postgres.unit_ledger import UnitLedger

NAME_MAX = 63
READERS = 4  # of units, at once


@dataclass(frozen=True, slots=True)
class UnitPace:
    """How fast tables are read."""

    readers: int = READERS
    rows_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """The `source` section of a pipeline file. `dsn` may hold a password."""

    dsn: Secret
    slot: str | None = None  # None: named after the pipeline
    publication: str | None = None
    budget: WalBudget | None = None
    pace: UnitPace = UnitPace()

    def identity(self, folders: dict[str, str]) -> Hashable:
        """That of a sink which would write into the very tables that are read."""
        return "postgres", database_identity(self.dsn.reveal()), None

    def folders(self) -> Iterator[Path]:
        """Nothing is on this machine."""
        return iter(())

    def data_folder(self) -> Path | None:
        """Nothing is on this machine."""
        return None

    def places(self) -> Iterator[tuple[str, str]]:
        """Nothing is on this machine."""
        return iter(())

    def __str__(self) -> str:
        return "postgres:***"


def postgres_source(address: Address) -> PostgresSource:
    """The address of a source that is a PostgreSQL."""
    if not isinstance(address, PostgresSource):
        raise AssertionError("this is no PostgreSQL")
    return address


def legal_name(pipeline: str) -> str:
    """What slots may be called: small letters, digits and _. A name that had to be changed to be one gets a
    checksum, so that two pipelines never share it."""
    wanted = f"truecut_{pipeline}"
    plain = "".join(c if c.isascii() and (c.islower() or c.isdigit()) else "_" for c in wanted.lower())
    if plain == wanted and len(plain) <= NAME_MAX:
        return plain
    return f"{plain[: NAME_MAX - 9]}_{zlib.crc32(wanted.encode()):08x}"


def server_address(settings: SourceSettings) -> server.Address:
    """As a connection needs it."""
    source = postgres_source(settings.address)
    name = legal_name(settings.pipeline)
    tables = tuple(table.name for table in settings.tables)
    witness = None if settings.witness is None else settings.witness.slot
    slot, publication = source.slot or name, source.publication or name
    return server.Address(source.dsn, slot, publication, tables, witness=witness)


def units_of(settings: SourceSettings) -> UnitLedger:
    """Where its tables are kept as they were read."""
    assert settings.units is not None, "the state folder has a place for them"
    return UnitLedger(settings.units)
