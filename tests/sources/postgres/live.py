"""A database whose changes are read through a slot, as a capture reads them: raw messages, and what the
catalog says of its relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.postgres_server import PostgresServer
from truecut.sources.postgres import framing
from truecut.sources.postgres.decode import Decoded, decode
from truecut.sources.postgres.relation import CATALOG_QUERY, Relation, from_catalog
from truecut.sources.postgres.session import TEXT_FORM

_OPTIONS = "'proto_version', '1', 'publication_names', 'all_tables', 'messages', 'true'"


@dataclass(frozen=True, slots=True)
class Live:
    """Two connections: one writes, with PostgreSQL's defaults; one reads the slot."""

    writer: psycopg.Connection[tuple[Any, ...]]
    reader: psycopg.Connection[dict[str, Any]]

    def do(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        """One transaction."""
        with self.writer.transaction():
            self.writer.execute(sql, parameters)

    def messages(self) -> list[bytes]:
        """What the slot has had since the last call."""
        rows = self.reader.execute(
            f"SELECT data FROM pg_logical_slot_get_binary_changes('slot', NULL, NULL, {_OPTIONS})"
        )
        return [bytes(row["data"]) for row in rows]

    def relations(self) -> dict[int, Relation]:
        """As they are now."""
        return from_catalog(self.reader.execute(CATALOG_QUERY, {"publication": "all_tables"}).fetchall())

    def decoded(self) -> Decoded:
        """What the slot has had since the last call, with the relations as they are now."""
        payload = framing.encode(self.messages())
        return decode([payload], {oid: [relation] for oid, relation in self.relations().items()})


@contextmanager
def live(server: PostgresServer, name: str) -> Iterator[Live]:
    """A new database with a publication of everything and a slot."""
    conninfo = server.create_database(name)
    with (
        psycopg.connect(conninfo, autocommit=True) as writer,
        psycopg.connect(conninfo, autocommit=True, row_factory=dict_row) as reader,
    ):
        for setting, value in TEXT_FORM.items():
            reader.execute("SELECT set_config(%s, %s, false)", (setting, value))
        writer.execute("CREATE PUBLICATION all_tables FOR ALL TABLES")
        reader.execute("SELECT pg_create_logical_replication_slot('slot', 'pgoutput')")
        yield Live(writer, reader)
        reader.execute("SELECT pg_drop_replication_slot('slot')")
