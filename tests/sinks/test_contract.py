"""The laws that every sink keeps: DuckLake on each kind of catalog and in an object store, PostgreSQL, a sink
in memory; faults break them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.sinks import database
from tests.sinks.conftest import KINDS, MakeDatabase, MakeLake
from tests.sinks.memory import MemoryBench
from tests.sinks.world import read, sink
from truecut.lake import LakeAddress
from truecut.model.change import DELETE, INSERT, TRUNCATE
from truecut.sinks.ducklake.sink import DuckLakeSink
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.sink import PostgresSink
from truecut.testing import Ran, events, repairs, sinks, staging
from truecut.testing.bench import SinkBench
from truecut.testing.orders import ABSENT
from truecut.testing.sinks import *  # noqa: F403 - the laws

RAN = Ran()
LOG = "_truecut_position, _truecut_seq, _truecut_op, id, value"
MARKS = "_truecut_position, _truecut_seq, _truecut_transaction, _truecut_unchanged"


@dataclass(frozen=True)
class LakeBench:
    """A lake that does not exist yet, read by plain duckdb."""

    name: str
    address: LakeAddress

    def sink(self) -> DuckLakeSink:
        return sink(self.address)

    def rows(self, table: str) -> Sequence[tuple[Any, ...]]:
        return read(self.address, table)

    def log(self, table: str) -> Sequence[tuple[Any, ...]]:
        return read(self.address, table, LOG)

    def marks(self, table: str) -> Sequence[tuple[Any, ...]]:
        return [row[2:] for row in read(self.address, table, MARKS)]


@dataclass(frozen=True)
class DatabaseBench:
    """An empty database, read by plain psycopg."""

    address: PostgresAddress
    name: str = "server"

    def sink(self) -> PostgresSink:
        return database.sink(self.address)

    def rows(self, table: str) -> Sequence[tuple[Any, ...]]:
        return database.read(self.address, f"SELECT * FROM main.{table} ORDER BY id")

    def log(self, table: str) -> Sequence[tuple[Any, ...]]:
        return database.read(self.address, f"SELECT {LOG} FROM main.{table} ORDER BY 1, 2")

    def marks(self, table: str) -> Sequence[tuple[Any, ...]]:
        found = database.read(self.address, f"SELECT {MARKS} FROM main.{table} ORDER BY 1, 2")
        return [row[2:] for row in found]


BACK_ENDS = (*KINDS, "memory", "server", "store")
# What may be wrong with a sink, and a law that does not bear it.
FAULTS: dict[str, Callable[[SinkBench], None]] = {
    "no fence": sinks.test_a_newer_token_fences_the_older_one_out,
    "takeover by anybody": sinks.test_a_newer_token_fences_the_older_one_out,
    "any place will do": sinks.test_an_order_that_ran_is_answered_without_an_effect,
    "a seed adds": sinks.test_a_seed_replaces_whatever_the_table_held,
    "first wins": sinks.test_the_latest_change_of_a_key_wins,
    "holds move on": sinks.test_a_table_whose_rows_could_not_be_read_is_held,
    "all tables move": sinks.test_a_place_without_a_commit_is_persisted_for_that_table_alone,
    "staging writes": sinks.test_what_is_staged_has_touched_nothing,
    "absent is NULL": events.test_a_value_that_was_not_sent_stays_what_it_is_at_the_sink,
    "merged across a delete": partial(
        events.test_a_value_that_nobody_knows_holds_the_table,
        window=[(DELETE, 5, 1), (DELETE, 5, 2), (INSERT, 6, 1, ABSENT)],
    ),
    "truncate ignored": partial(
        events.test_a_truncate_empties_the_table_in_its_place, window=[(TRUNCATE, 5)], left=[]
    ),
    "truncate last": partial(
        events.test_a_truncate_empties_the_table_in_its_place,
        window=[(TRUNCATE, 5), (INSERT, 5, 1, "a1")],
        left=[(1, "a1")],
    ),
    "a delete is compared": events.test_a_delete_needs_no_more_than_the_key,
    "last piece lost": staging.test_a_seed_that_many_have_staged_is_the_seed,
    "what was left counts": staging.test_a_piece_that_was_staged_twice_counts_once,
    "the last key wins": partial(
        staging.test_a_key_that_is_there_twice_holds_the_table,
        shares=[staging.WHOLE[:3], staging.WHOLE[2:]],
    ),
    "digest dropped": sinks.test_what_an_order_says_beside_its_rows_is_kept_in_the_cursor,
    "repairs hold": repairs.test_a_repair_that_does_not_fit_is_refused,
    "a repair moves the sink": repairs.test_a_repair_of_one_copy_does_not_move_the_sink,
    "chain dropped": sinks.test_a_copy_keeps_the_head_of_its_chain_of_evidence,
}


@pytest.fixture(params=BACK_ENDS)
def bench(
    request: Any,
    make_lake: MakeLake,
    make_lake_in_store: Callable[[], LakeAddress],
    make_database: MakeDatabase,
) -> SinkBench:
    """A new destination of each kind."""
    RAN.note(request.param, request.function.__name__)
    if request.param == "server":
        return DatabaseBench(make_database())
    if request.param == "store":
        return LakeBench(request.param, make_lake_in_store())
    if request.param == "memory":
        return MemoryBench()
    return LakeBench(request.param, make_lake(request.param))


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_survives_the_laws(fault: str) -> None:
    """A suite that cannot fail proves nothing."""
    FAULTS[fault](MemoryBench())
    with pytest.raises(AssertionError):
        FAULTS[fault](MemoryBench(fault=fault))


def test_every_law_ran_for_every_back_end() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(sinks, frozenset(BACK_ENDS)) == set()
