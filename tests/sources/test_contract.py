"""The laws that every source keeps: DuckLake on each kind of catalog, one in memory; faults break them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.lake_writer import LakeWriter
from tests.sources.memory import MemoryBench
from truecut.lake import parse_address
from truecut.model.table import TableName
from truecut.sources.contract import TableRead
from truecut.sources.ducklake.source import DuckLakeSource
from truecut.testing import Ran, laws_of, sources
from truecut.testing.sources import *  # noqa: F403 - the laws
from truecut.testing.sources import History, SourceBench, made_history

RAN = Ran()
CATALOGS: Mapping[str, Callable[[PostgresServer], str]] = {
    "duckdb": lambda _: "source.ducklake",
    "sqlite": lambda _: "sqlite:source.sqlite",
    "postgres": lambda server: f"postgres:{server.create_database(f'laws_{uuid4().hex}')}",
}


@dataclass(frozen=True)
class LakeBench:
    """A lake that its owner writes to by plain duckdb."""

    name: str
    writer: LakeWriter

    def source(self) -> DuckLakeSource:
        return DuckLakeSource(self.writer.address, generation=1)

    def read(self, table: str) -> TableRead:
        return TableRead(TableName("main", table), ("id",), None)

    def commit(self, writes: Mapping[str, Mapping[int, str | None]]) -> int:
        self.writer.transaction(
            *(statement for table, values in writes.items() for statement in _sql(table, values))
        )
        place = self.writer.head()
        self.writer.release()
        return place


def _sql(table: str, values: Mapping[int, str | None]) -> Iterator[str]:
    keys = ", ".join(map(str, values))
    kept = ", ".join(f"({key}, '{value}')" for key, value in values.items() if value is not None)
    yield f"DELETE FROM {table} WHERE id IN ({keys})"
    if kept:
        yield f"INSERT INTO {table} VALUES {kept}"


BACK_ENDS = (*CATALOGS, "memory")
# What may be wrong with a source, and a law that does not bear it.
FAULTS: dict[str, Callable[[History], None]] = {
    "the head comes late": sources.test_the_head_moves_with_every_transaction,
    "after inclusive": sources.test_after_is_exclusive_and_upto_inclusive,
    "upto exclusive": sources.test_after_is_exclusive_and_upto_inclusive,
    "a delete is dropped": sources.test_after_is_exclusive_and_upto_inclusive,
    "another seq each time": sources.test_a_piece_gives_the_same_rows_every_time,
    "limits ignored": sources.test_a_window_ends_early_but_never_inside_of_a_transaction,
    "seq of each table": sources.test_position_and_seq_name_a_change,
    "control columns last": sources.test_control_columns_come_first,
    "a seed of now": sources.test_a_seed_is_the_table_at_its_place,
    "a seed of the place before": sources.test_a_seed_and_the_changes_after_it_meet,
    "nobody is missed": sources.test_a_table_that_is_missing_is_named,
}


@pytest.fixture(scope="module", params=BACK_ENDS)
def bench(
    request: Any, tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[SourceBench]:
    """One of each kind; rows of lakes are inlined as DuckLake does by itself."""
    if request.param == "memory":
        yield MemoryBench()
        return
    catalog = CATALOGS[request.param](postgres)
    writer = LakeWriter(parse_address(catalog, "data", base=tmp_path_factory.mktemp("laws")))
    writer.run(*(f"CREATE TABLE {table} (id INTEGER, v VARCHAR)" for table in sources.TABLES))
    for table, rows in sources.BEFORE.items():
        if rows:
            writer.transaction(*_sql(table, rows))
    writer.release()
    yield LakeBench(request.param, writer)
    writer.close()


@pytest.fixture(autouse=True)
def _noted(request: Any) -> None:
    """Which law is tried on which back end."""
    if "bench" in request.fixturenames:
        RAN.note(request.node.callspec.params["bench"], request.function.__name__)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_survives_the_laws(fault: str) -> None:
    """A suite that cannot fail proves nothing."""
    FAULTS[fault](made_history(MemoryBench()))
    with pytest.raises(AssertionError):
        FAULTS[fault](made_history(MemoryBench(fault=fault)))


def test_every_law_has_a_fault() -> None:
    """No law is there that nothing was seen to break."""
    assert {law.__name__ for law in FAULTS.values()} == laws_of(sources)


def test_every_law_ran_for_every_back_end() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(sources, frozenset(BACK_ENDS)) == set()
