"""The laws of the journal, for every form of it; faults of one in memory break them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.journal.conftest import FORMS
from tests.journal.memory import opener
from truecut.testing import Ran, journals, laws_of
from truecut.testing.journals import *  # noqa: F403 - the laws

RAN = Ran()
# What may be wrong with a journal, and a law that does not bear it.
FAULTS: dict[str, Callable[[Any], None]] = {
    "the head of nothing is 0": journals.test_a_new_log_is_empty,
    "answered with the first": journals.test_an_append_is_answered_with_the_place_of_its_last_record,
    "the source's position is dropped": journals.test_a_record_comes_back_whole,
    "after inclusive": journals.test_ranges_are_open_below_and_closed_above,
    "upto exclusive": journals.test_ranges_are_open_below_and_closed_above,
    "the last append is lost": journals.test_whoever_opens_it_again_goes_on_behind_what_is_there,
    "any end will do": journals.test_an_append_may_insist_on_what_came_before,
    "submissions overtake each other": journals.test_many_submit_at_once,
    "more is trimmed": journals.test_trimmed_records_are_gone_and_say_so,
    "what was trimmed is a gap": journals.test_trimmed_records_are_gone_and_say_so,
    "numbers begin again": journals.test_a_log_that_was_trimmed_and_reopened_does_not_begin_again,
    "a generation may fall": journals.test_a_generation_never_falls,
    "half is measured": journals.test_what_is_kept_can_be_measured,
    "the oldest make room": journals.test_at_its_budget_nothing_is_taken_and_nothing_dropped,
}
BROKEN = (AssertionError, pytest.fail.Exception)  # the latter where an error was to be raised, and was not


@pytest.fixture(autouse=True)
def _noted(request: Any) -> None:
    """Which law is tried for which form."""
    if "open_journal" in request.fixturenames:
        RAN.note(request.node.callspec.params["open_journal"], request.function.__name__)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_survives_the_laws(fault: str) -> None:
    """A suite that cannot fail proves nothing."""
    FAULTS[fault](opener())
    with pytest.raises(BROKEN):
        FAULTS[fault](opener(fault))


def test_every_law_has_a_fault() -> None:
    """No law is there that nothing was seen to break."""
    assert {law.__name__ for law in FAULTS.values()} == laws_of(journals)


def test_every_law_ran_for_every_form() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(journals, frozenset(FORMS)) == set()
