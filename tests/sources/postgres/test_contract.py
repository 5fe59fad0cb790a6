"""The laws that every source keeps, for a captured PostgreSQL: its changes are in a journal, its tables were
read in units before."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.journal.opening import journal_of
from truecut.model.table import TableName
from truecut.sources.contract import Source, TableRead
from truecut.sources.postgres import unit_work
from truecut.sources.postgres.address import server_address, units_of
from truecut.testing import Ran, sources
from truecut.testing.sources import *  # noqa: F403 - the laws

RAN = Ran()
BACK_ENDS = frozenset({"postgres"})
SENT = """
SELECT data FROM pg_logical_slot_get_binary_changes(
    'witness', NULL, NULL, 'proto_version', '1', 'publication_names', 'truecut_laws'
)
"""


@dataclass
class ServerBench:
    """A server that is captured after each transaction. A slot beside that of the capture tells places."""

    piped: Piped
    name: str = "postgres"

    def source(self) -> Source:
        return self.piped.source()

    def read(self, table: str) -> TableRead:
        return TableRead(TableName("public", table), ("id",), None)

    def commit(self, writes: Mapping[str, Mapping[int, str | None]]) -> int:
        with psycopg.connect(self.piped.conninfo) as one:
            for table, values in writes.items():
                one.execute(f"DELETE FROM {table} WHERE id = ANY (%s)".encode(), (list(values),))
                for key, value in values.items():
                    if value is not None:
                        one.execute(f"INSERT INTO {table} VALUES (%s, %s)".encode(), (key, value))
        self.piped.capture()
        return self._place()

    def _place(self) -> int:
        """Of the one transaction that has committed since the last call: its Begin message has the LSN of its
        commit record."""
        with self.piped.connect() as connection:
            sent = [bytes(data) for (data,) in connection.execute(SENT)]
        (begin,) = [data for data in sent if data[:1] == b"B"]
        (lsn,) = struct.unpack_from(">q", begin, 1)
        return int(lsn)

    def fill(self) -> None:
        """What the tables hold before the laws begin, read in units."""
        with self.piped.connect() as connection:
            for table in sources.TABLES:
                connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)".encode())
                connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
                for row in sources.BEFORE[table].items():
                    connection.execute(f"INSERT INTO {table} VALUES (%s, %s)".encode(), row)
            self.piped.capture()
            for table in sources.TABLES:
                self._read_units(TableName("public", table))
            connection.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")

    def _read_units(self, table: TableName) -> None:
        settings = self.piped.pipeline().source
        address, journal = server_address(settings), journal_of(settings)
        edition = unit_work.begin(address, journal, table, ledger=units_of(settings))
        for unit in range(len(edition.plan.parts)):
            unit_work.ReadUnit(address, journal, edition, unit).run()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[ServerBench]:
    """One server for all laws: they only read what was written once."""
    conninfo = postgres.create_database("laws")
    piped = Piped(
        tmp_path_factory.mktemp("laws"), conninfo, pipeline_document("laws", conninfo, [{"name": "public.*"}])
    )
    made = ServerBench(piped)
    made.fill()
    piped.begin(piped.source())
    yield made
    piped.close()


@pytest.fixture(autouse=True)
def _noted(request: Any) -> None:
    """Which law is tried."""
    if "history" in request.fixturenames:
        RAN.note("postgres", request.function.__name__)


def test_every_law_ran() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(sources, BACK_ENDS) == set()
