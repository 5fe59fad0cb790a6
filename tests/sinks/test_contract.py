"""The laws that every sink keeps: DuckLake on each kind of catalog and in an object store, PostgreSQL, a sink
in memory; faults break them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sinks import database
from tests.sinks.conftest import KINDS, MakeDatabase, MakeLake
from tests.sinks.memory import MemoryBench
from tests.sinks.world import read, sink
from truecut.lake import LakeAddress
from truecut.sinks.ducklake.sink import DuckLakeSink
from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.sink import PostgresSink
from truecut.testing import Ran, events, laws_of, repairs, sinks, staging
from truecut.testing.bench import SinkBench
from truecut.testing.sinks import *  # noqa: F403 - the laws

RAN = Ran()
LOG = "_truecut_position, _truecut_seq, _truecut_op, id, value"
MARKS = "_truecut_position, _truecut_seq, _truecut_transaction, _truecut_unchanged"


@dataclass(frozen=True)
class LakeBench:
    """A lake that does not exist yet, read by plain duckdb."""

    name: str
    address: LakeAddress
    never: str | None = None

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
    never: str | None = None

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
Law = Callable[..., None]
# What may be wrong with a sink, and the laws that do not bear it.
FAULTS: dict[str, Sequence[Law]] = {
    "a new sink has a place": [sinks.test_a_new_sink_has_an_empty_cursor_with_our_token],
    "no fence": [
        sinks.test_a_newer_token_fences_the_older_one_out,
        sinks.test_a_takeover_between_staging_and_commit_wins,
        staging.test_a_takeover_fences_out_what_was_staged_before_it,
    ],
    "takeover by anybody": [sinks.test_a_newer_token_fences_the_older_one_out],
    "any place will do": [
        sinks.test_an_order_that_ran_is_answered_without_an_effect,
        sinks.test_an_order_that_runs_twice_at_once_has_one_effect,
        sinks.test_an_order_from_elsewhere_is_refused,
        sinks.test_a_stale_seed_does_not_overwrite_what_came_since,
        sinks.test_a_seed_that_ends_where_its_table_stands_is_carried_out,
        sinks.test_a_held_table_goes_on_from_its_own_place,
        sinks.test_a_hold_that_was_lifted_does_not_come_back,
        staging.test_a_staged_seed_that_runs_twice_has_one_effect,
    ],
    "a seed adds": [
        sinks.test_a_seed_replaces_whatever_the_table_held,
        events.test_a_seed_with_values_that_were_not_sent_is_no_mirror,
        staging.test_a_key_without_a_value_holds_the_table,
    ],
    "first wins": [
        sinks.test_the_latest_change_of_a_key_wins,
        events.test_every_event_of_a_key_counts_in_its_order,
    ],
    "contradictions pass": [
        sinks.test_a_contradiction_stops_that_table_alone,
        events.test_events_that_contradict_each_other_stop_the_table,
    ],
    "holds move on": [sinks.test_a_table_whose_rows_could_not_be_read_is_held],
    "all tables move": [
        sinks.test_a_place_without_a_commit_is_persisted_for_that_table_alone,
        sinks.test_a_seed_and_changes_of_other_tables_commit_in_either_order,
    ],
    "staging writes": [sinks.test_what_is_staged_has_touched_nothing],
    "rejected in silence": [sinks.test_what_a_sink_can_never_take_is_told_and_the_rest_is_applied],
    "append keeps the latest": [
        sinks.test_append_keeps_every_change,
        events.test_append_keeps_every_event_and_says_what_was_not_sent,
    ],
    "absent is NULL": [
        events.test_a_value_that_was_not_sent_stays_what_it_is_at_the_sink,
        events.test_a_value_that_was_not_sent_is_the_latest_that_the_window_told,
        events.test_a_value_that_is_told_later_or_not_needed_does_no_harm,
        events.test_a_row_that_moved_brings_its_values_along,
    ],
    "what is not there is passed over": [events.test_an_update_of_a_row_that_the_sink_lacks_holds_the_table],
    "merged across a delete": [events.test_a_value_that_nobody_knows_holds_the_table],
    "truncate ignored": [
        events.test_a_truncate_empties_the_table_in_its_place,
        events.test_a_truncate_of_one_table_leaves_the_others,
    ],
    "truncate last": [events.test_a_truncate_empties_the_table_in_its_place],
    "a delete is compared": [events.test_a_delete_needs_no_more_than_the_key],
    "last piece lost": [
        staging.test_a_seed_that_many_have_staged_is_the_seed,
        staging.test_an_append_table_gets_what_many_have_staged_as_read_rows,
        staging.test_a_table_that_could_not_be_read_is_held_though_pieces_were_staged,
    ],
    "what was left counts": [staging.test_a_piece_that_was_staged_twice_counts_once],
    "a piece that failed is passed over": [staging.test_a_piece_that_could_not_be_staged_fails_the_order],
    "the last key wins": [staging.test_a_key_that_is_there_twice_holds_the_table],
    "digest dropped": [sinks.test_what_an_order_says_beside_its_rows_is_kept_in_the_cursor],
    "settings forgotten": [sinks.test_a_copy_says_of_what_settings_and_source_it_is],
    "repairs hold": [repairs.test_a_repair_that_does_not_fit_is_refused],
    "a repair moves the sink": [repairs.test_a_repair_of_one_copy_does_not_move_the_sink],
    "chain dropped": [
        sinks.test_a_copy_keeps_the_head_of_its_chain_of_evidence,
        repairs.test_a_repair_changes_its_rows_and_nothing_else,
    ],
}


def _is_borne(law: Law, fault: str) -> bool:
    """Whether a sink with a fault passes a law, with all that the law is tried on."""
    try:
        for case in _cases(law):
            law(MemoryBench(fault=fault), **case)
    except AssertionError:
        return False
    return True


def _cases(law: Law) -> Sequence[Mapping[str, Any]]:
    """As pytest tries it."""
    marks = [mark for mark in getattr(law, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    (names, values), *_ = (mark.args for mark in marks)
    names = [names] if isinstance(names, str) else names
    given = [getattr(one, "values", (one,)) if not isinstance(one, str) else (one,) for one in values]
    return [dict(zip(names, one, strict=True)) for one in given]


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
    borne = {law.__name__: (_is_borne(law, ""), _is_borne(law, fault)) for law in FAULTS[fault]}
    assert borne == {law.__name__: (True, False) for law in FAULTS[fault]}


def test_every_law_has_a_fault() -> None:
    """No law is there that nothing was seen to break."""
    assert {law.__name__ for broken in FAULTS.values() for law in broken} == laws_of(sinks)


def test_every_law_ran_for_every_back_end() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(sinks, frozenset(BACK_ENDS)) == set()
