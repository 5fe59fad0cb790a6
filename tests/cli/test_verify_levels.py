"""Which checks `truecut verify` shows of those that were made."""

from __future__ import annotations

from truecut.cli.verify import about, asked_by
from truecut.runtime.verification import Checked

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
