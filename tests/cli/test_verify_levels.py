"""Which checks `truecut verify` shows of those that were made."""

from __future__ import annotations

from dataclasses import replace

from truecut.cli.verify import about
from truecut.model.position import Position
from truecut.runtime.checked import TOLD_MAX, Checked, asked_by, said

V4 = Checked("main.a", "x", "pass", "", level="V4")
V5 = Checked("main.a", "x", "fail", "", level="V5")
COMPARED = Checked("main.b", "x", "fail", "", level="V5")
UNREAD = Checked("main.c", "x", "unknown", "", level="V5")
CHAIN = Checked("", "", "fail", "", level="V0")
OF_A = Checked("main.a", "x", "pass", "", level="V0")
OF_B = Checked("main.b", "y", "pass", "", level="V0")


def test_what_was_compared_without_a_certificate_stays() -> None:
    """At the level of the source, a copy that no certificate claims there has one check, which counts."""
    live = [V4, V5, COMPARED, UNREAD]
    assert asked_by("source", live) == [V4, COMPARED, UNREAD]
    assert asked_by("sink", live) == live


def test_a_broken_chain_is_told_of_every_copy() -> None:
    """Whichever table or sink was asked for."""
    checks = [CHAIN, OF_A, OF_B]
    assert about("main.a", None, checks) == [CHAIN, OF_A]
    assert about(None, "y", checks) == [CHAIN, OF_B]
    assert about("main.a", "y", checks) == [CHAIN]
    assert about(None, None, checks) == checks


def test_a_copy_is_called_equal_only_where_both_were_read_at_one_place() -> None:
    """By V4 and V5 at one frontier, or compared with each other where nothing is certified; not when they
    were read at two places, when one of them does not pass, or when only files were examined."""
    here, there = Position(1, 7), Position(1, 9)
    v4, v5 = replace(V4, frontier=here), replace(V5, verdict="pass", frontier=here)
    equal = [f"main.a at x equals the source at {here}."]
    assert said([OF_A, v4, v5]) == equal
    assert said([v5]) == equal
    (apart,) = said([v4, replace(v5, frontier=there)])
    assert "not said" in apart
    assert "equals" not in apart
    none = "That a copy equals its source is not said"
    for checks in ([OF_A], [v4], [v4, replace(V5, frontier=here)], [replace(v4, verdict="unknown"), v5], []):
        (told,) = said(checks)
        assert told.startswith(none), checks
    many = [replace(v5, sink=f"s{n}") for n in range(TOLD_MAX + 5)]
    assert said(many)[TOLD_MAX:] == ["5 more copies equal their source."]
