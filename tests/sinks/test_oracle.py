"""Random lives of a sink against the model, and the faults that the model must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sinks import oracle
from tests.sinks.conftest import KINDS, MakeLake
from truecut.model.cursor import Cursor
from truecut.model.order import Order
from truecut.sinks import copies
from truecut.sinks.ducklake import cursor, transaction, write
from truecut.sinks.ducklake.cursor import CursorRow
from truecut.sinks.ducklake.pool import Lake
from truecut.sinks.ducklake.schema import existing_columns


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_a_sink_is_what_the_model_says(make_lake: MakeLake, kind: str, random: Random) -> None:
    """Whatever is ordered, repeated, stale, broken off or maintained: content, cursor and owner are right
    after every step."""
    oracle.live(make_lake(kind), random, steps=6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_step(make_lake: MakeLake, kind: str) -> None:
    """The life in which the faults below are looked for is right without them."""
    oracle.every_step(make_lake(kind))


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
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Each fault, put into the code, makes the sink differ from the model."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        oracle.every_step(make_lake("sqlite"))
