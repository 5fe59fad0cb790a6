"""The laws of the journal, for every form of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journal.conftest import FORMS
from truecut.testing import Ran, journals
from truecut.testing.journals import *  # noqa: F403 - the laws

RAN = Ran()


@pytest.fixture(autouse=True)
def _noted(request: Any) -> None:
    """Which law is tried for which form."""
    if "open_journal" in request.fixturenames:
        RAN.note(request.node.callspec.params["open_journal"], request.function.__name__)


def test_every_law_ran_for_every_form() -> None:
    """Nothing was left out: the last test of this file, which runs as a whole."""
    assert RAN.left_out(journals, frozenset(FORMS)) == set()
