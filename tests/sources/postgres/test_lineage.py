"""Whether a log goes on, decided from what both sides say: every bound, on both of its sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from truecut.core.capture import (
    Mode,
    Retained,
    Verdict,
    WalBudget,
    judge,
    next_mode,
    seconds_until_full,
)
from truecut.sources.postgres.lineage import Look, Place, Publication, Slot, gap
from truecut.sources.postgres.messages import lsn_of, lsn_text

PUBLICATION = Publication(5, "all", {"public.t": "1"})
SLOT = Slot(
    confirmed=100,
    restart=50,
    retained_bytes=10,
    safe_bytes=None,
    plugin="pgoutput",
    database="shop",
    two_phase=False,
    active_pid=None,
    invalid=None,
)
PLACE = Place(100, "s", 1, "shop", "cut", 1, PUBLICATION, 700)
LOOK = Look("s", 1, {}, "shop", 100, 700, SLOT, PUBLICATION)


def test_a_place_survives_its_text() -> None:
    """What a marker holds is what is read again."""
    assert Place.of(PLACE.document()) == PLACE
    assert lsn_of(lsn_text(0x16_0000_00B3)) == 0x16_0000_00B3


@pytest.mark.parametrize(
    ("look", "goes_on"),
    [
        (LOOK, True),
        (replace(LOOK, flushed=99), False),
        (replace(LOOK, system="other"), False),
        (replace(LOOK, database="other"), False),
        (replace(LOOK, slot=None), False),
        (replace(LOOK, slot=replace(SLOT, confirmed=101)), False),
        (replace(LOOK, slot=replace(SLOT, confirmed=20)), True),
        (replace(LOOK, slot=replace(SLOT, invalid="wal_removed")), False),
        (replace(LOOK, timeline=2, switches={1: 100}), True),
        (replace(LOOK, timeline=2, switches={1: 99}), False),
        (replace(LOOK, timeline=2, switches={}), False),
        (replace(LOOK, publication=None), False),
        (replace(LOOK, publication=replace(PUBLICATION, oid=6)), False),
        (replace(LOOK, publication=replace(PUBLICATION, shape="some")), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.t": "1", "public.u": "2"})), True),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.t": "3"})), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.renamed": "1"})), True),
        (replace(LOOK, publication=replace(PUBLICATION, tables={"public.renamed": "3"})), False),
        (replace(LOOK, publication=replace(PUBLICATION, tables={})), False),
    ],
)
def test_what_is_a_gap(look: Look, goes_on: bool) -> None:
    """A slot may be behind the journal (a crash puts it back), never ahead of it."""
    assert (gap(PLACE, look) is None) is goes_on


def test_gulps_until_drained_and_a_stream_until_behind() -> None:
    """It does not go to and fro."""
    assert next_mode(Mode.BACKLOG, drained=False, bytes_behind=0) is Mode.BACKLOG
    assert next_mode(Mode.BACKLOG, drained=True, bytes_behind=10**12) is Mode.TAIL
    assert next_mode(Mode.TAIL, drained=False, bytes_behind=10, behind_max=10) is Mode.TAIL
    assert next_mode(Mode.TAIL, drained=False, bytes_behind=11, behind_max=10) is Mode.BACKLOG


def test_the_budget_of_the_log() -> None:
    """At its bound it is kept; beyond it is said, or the slot is given up."""
    assert judge(Retained(0, 11), None) is Verdict.FINE
    assert judge(Retained(0, 10), WalBudget(10, give_up=True)) is Verdict.FINE
    assert judge(Retained(0, 11), WalBudget(10)) is Verdict.WARN
    assert judge(Retained(0, 11), WalBudget(10, give_up=True)) is Verdict.GIVE_UP


def test_the_time_until_the_disk_is_full() -> None:
    """At the pace that was seen; unknown where it does not grow or nobody knows the room."""
    assert seconds_until_full([Retained(0, 100, 1000), Retained(10, 200, 900)]) == 90
    assert seconds_until_full([Retained(0, 100, 1000)]) is None
    assert seconds_until_full([Retained(0, 100, 1000), Retained(10, 100, 1000)]) is None
    assert seconds_until_full([Retained(0, 100, None), Retained(10, 200, None)]) is None
