"""Random lives of a sink against the model, and the faults that the model must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sinks import oracle
from tests.sinks.conftest import KINDS, MakeDatabase, MakeLake
from tests.sinks.oracle import Destination
from truecut.model.cursor import Cursor
from truecut.model.order import Order
from truecut.sinks import arrivals, copies
from truecut.sinks.ducklake import absent as ducklake_absent
from truecut.sinks.ducklake import cursor, resolve, transaction, write
from truecut.sinks.ducklake.cursor import CursorRow
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.schema import existing_columns
from truecut.sinks.postgres import absent as postgres_absent
from truecut.sinks.postgres import stage

BACK_ENDS = (*KINDS, "server")
MakeDestination = Callable[[str], Destination]


@pytest.fixture
def make_destination(make_lake: MakeLake, make_database: MakeDatabase) -> MakeDestination:
    """New ones, by kind of catalog; `server` is a PostgreSQL."""

    def make(kind: str) -> Destination:
        if kind == "server":
            return oracle.DatabaseDestination(make_database())
        return oracle.LakeDestination(make_lake(kind))

    return make


@pytest.mark.parametrize("kind", BACK_ENDS)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_a_sink_is_what_the_model_says(make_destination: MakeDestination, kind: str, random: Random) -> None:
    """Whatever is ordered, repeated, stale, broken off or maintained: content, cursor and owner are right
    after every step."""
    oracle.live(make_destination(kind), random, steps=6)


@pytest.mark.soak
@pytest.mark.parametrize("kind", BACK_ENDS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_a_sink_is_what_the_model_says_for_long(
    make_destination: MakeDestination, kind: str, random: Random
) -> None:
    """The same in many lives that are longer."""
    oracle.live(make_destination(kind), random, steps=12)


@pytest.mark.parametrize("kind", BACK_ENDS)
def test_every_kind_of_step(make_destination: MakeDestination, kind: str) -> None:
    """The life in which the faults below are looked for is right without them."""
    oracle.every_step(make_destination(kind))


def cursor_apart_from_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data commits first, the cursor in a transaction of its own."""
    real = cursor.write_cursor

    def apart(lake: Lake, *args: Any, **kwargs: Any) -> CursorRow:
        lake.commit()
        lake.begin()
        return real(lake, *args, **kwargs)

    monkeypatch.setattr(transaction, "write_cursor", apart)


def no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes may write."""
    monkeypatch.setattr(copies, "token_differs", lambda cursor, order: False)


def expected_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order's own places are not compared with the sink's."""
    monkeypatch.setattr(copies, "version_differs", lambda cursor, order, table: False)


def sink_moves_all_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes the tables that it does not name along to its end."""
    real = cursor.write_cursor

    def together(lake: Lake, wanted: Cursor, **kwargs: Any) -> CursorRow:
        place = wanted.position
        copies = {n: c if place is None else replace(c, at=place) for n, c in wanted.copies.items()}
        return real(lake, replace(wanted, copies=copies), **kwargs)

    monkeypatch.setattr(transaction, "write_cursor", together)


def only_places_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that stands at the order's place is taken for what the order expects, whatever happened."""

    def differs(row: Cursor, order: Order, table: str) -> bool:
        known, expected = row.copies.get(table), order.tables[table].expected
        return (known and known.at) != (expected and expected.at)

    monkeypatch.setattr(copies, "version_differs", differs)


def seed_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed leaves what was there."""
    real = write.clear_table

    def only_created(lake: Lake, table: str, schema: Any) -> None:
        if existing_columns(lake, table) is None:
            real(lake, table, schema)

    monkeypatch.setattr(write, "clear_table", only_created)


def delete_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that changed or went are not removed."""
    monkeypatch.setattr(write, "delete_keys", lambda lake, table, key, net: net.live_before)


def takeover_unfenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner's token does not reach the sink."""
    monkeypatch.setattr(cursor, "raise_token", lambda *args, **kwargs: None)


FAULTS = (
    cursor_apart_from_data,
    no_fence,
    expected_unchecked,
    sink_moves_all_copies,
    only_places_are_compared,
    seed_appends,
    delete_dropped,
    takeover_unfenced,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_the_model_catches(
    make_destination: MakeDestination,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """Each fault, put into the code, makes the sink differ from the model."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        oracle.every_step(make_destination("sqlite"))


# --- faults about events, in either sink ------------------------------------------------------------------


def absent_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at what was not sent."""
    monkeypatch.setattr(arrivals, "UNCHANGED", "_truecut_nothing")


def untold_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the window does not tell is not looked up at the sink."""
    for user, absent in ((resolve, ducklake_absent), (stage, postgres_absent)):
        real: Any = absent.merge
        monkeypatch.setattr(user, "merge", lambda *args, real=real, **kw: ((), real(*args, **kw)[1]))


def merged_across_a_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """An insert goes on where the key's earlier life ended."""
    for module in (ducklake_absent, postgres_absent):
        monkeypatch.setattr(module, "INSERT", 77)


def moved_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows that an insert was a row of another key."""
    columns = "(_truecut_born BIGINT, _truecut_line BIGINT)"
    for module in (ducklake_absent, postgres_absent):
        monkeypatch.setattr(
            module,
            "_lines",
            lambda connection, rows: connection.execute(f"CREATE TEMP TABLE {rows}_lines {columns}"),
        )


def truncate_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows stay."""
    _truncated_at(monkeypatch, lambda _: None)


def truncate_applied_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its place, it empties the table at the end of the window."""
    _truncated_at(monkeypatch, lambda place: place and (1 << 62, 0))


def _truncated_at(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]) -> None:
    real = arrivals.Arrivals.see

    def see(self: arrivals.Arrivals, rows: pa.Table) -> None:
        real(self, rows)
        self.truncated = wrong(self.truncated)

    monkeypatch.setattr(arrivals.Arrivals, "see", see)


FAULTS_OF_EVENTS = (
    absent_is_null,
    untold_is_null,
    merged_across_a_delete,
    moved_without_its_values,
    truncate_ignored,
    truncate_applied_last,
)


@pytest.mark.parametrize("kind", ["sqlite", "server"])
@pytest.mark.parametrize("fault", FAULTS_OF_EVENTS, ids=lambda fault: str(fault.__name__))
def test_the_model_catches_in_both(
    make_destination: MakeDestination,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    kind: str,
) -> None:
    """The same for faults that either sink might have on its own."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        oracle.every_step(make_destination(kind))
