"""The laws of a source's windows, for a captured PostgreSQL. Laws about seeds wait for its backfill; those
that take a transaction's place for the head behind it do not hold of a log, where the head is the end of the
commit record and the place its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.model.table import TableName
from truecut.sources.contract import Source, TableRead
from truecut.testing.sources import (  # noqa: F401 - laws, and what they are about
    TABLES,
    history,
    test_a_piece_gives_the_same_rows_every_time,
    test_a_window_ends_early_but_never_inside_of_a_transaction,
    test_after_is_exclusive_and_upto_inclusive,
)


@dataclass
class ServerBench:
    """A server that is captured after each transaction."""

    piped: Piped
    name: str = "postgres"

    def source(self) -> Source:
        return self.piped.source()

    def read(self, table: str) -> TableRead:
        return TableRead(TableName("public", table), ("id",), None)

    def commit(self, writes: Mapping[str, Mapping[int, str | None]]) -> None:
        with psycopg.connect(self.piped.conninfo) as one:
            for table, values in writes.items():
                one.execute(f"DELETE FROM {table} WHERE id = ANY (%s)".encode(), (list(values),))
                for key, value in values.items():
                    if value is not None:
                        one.execute(f"INSERT INTO {table} VALUES (%s, %s)".encode(), (key, value))
        self.piped.capture()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[ServerBench]:
    conninfo = postgres.create_database("laws")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)".encode())
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
    document = pipeline_document("laws", conninfo, [{"name": "public.*", "backfill": "none"}])
    piped = Piped(tmp_path_factory.mktemp("laws"), conninfo, document)
    piped.capture()
    yield ServerBench(piped)
    piped.close()
