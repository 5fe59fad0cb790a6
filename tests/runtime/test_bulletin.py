"""What other runners have told counts as long as there is one."""

from __future__ import annotations

from typing import Any, cast

from truecut.model.position import Position
from truecut.runtime.bulletin import Bulletin
from truecut.runtime.control import Reports

PLACE = Position(1, 7)
TOLD: dict[str, dict[str, Any]] = {"t0": {"position": str(PLACE)}, "t1": {"position": None}}


def test_what_a_runner_has_told_that_is_gone_is_not_believed() -> None:
    """Its sinks may have changed, or be gone, too: whoever is alone asks them."""
    nothing = cast(Any, None)  # nothing is asked and nothing written
    bulletin = Bulletin(nothing, nothing, nothing, on_store=lambda _: None)
    bulletin.reports = Reports(running=True, runners={"me": {}}, sinks=TOLD)
    assert bulletin.positions(but="me") == {}
    bulletin.reports = Reports(running=True, runners={"me": {}, "another": {}}, sinks=TOLD)
    assert bulletin.positions(but="me") == {"t0": PLACE}
