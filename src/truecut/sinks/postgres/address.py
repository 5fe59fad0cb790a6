"""Where a PostgreSQL sink is: a database, and perhaps one schema for all of its tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

from truecut.addresses import database_identity
from truecut.config.kinds import Address
from truecut.config.secret import Secret
from truecut.model.table import TableName


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """`dsn` is a connection string of libpq, which may hold a password."""

    dsn: Secret
    schema: str | None = None  # None: each table in the schema that it has at the source

    def table(self, name: str) -> TableName:
        """Where a table of the source is here."""
        source = TableName.parse(name)
        return source if self.schema is None else TableName(self.schema, source.table)

    def identity(self, folders: dict[str, str]) -> Hashable:
        """One database may serve many sinks, each with a schema of its own."""
        return "postgres", database_identity(self.dsn.reveal()), self.schema

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
        return "postgres:***" + ("" if self.schema is None else f" schema {self.schema}")


def postgres_of(address: Address) -> PostgresAddress:
    """The address of a sink that is a PostgreSQL."""
    if not isinstance(address, PostgresAddress):
        raise AssertionError("this is no PostgreSQL")
    return address
