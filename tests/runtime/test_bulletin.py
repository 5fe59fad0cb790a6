"""What other runners have told counts as long as there is one; what we tell counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.runtime.quiet import pipeline_in
from truecut.core.delivery import Wave
from truecut.errors import Fault, TruecutError
from truecut.model.order import Counts, Receipt
from truecut.model.position import Position
from truecut.runtime.bulletin import Bulletin
from truecut.runtime.control import ControlStore, Reports, open_control
from truecut.runtime.database import unreachable
from truecut.runtime.run_report import View
from truecut.runtime.totals import Tally
from truecut.runtime.until import UNREAD_TRIES, Elsewhere

PLACE = Position(1, 7)
T = "main.events"
GOES_ON = {"status": "streaming", "at": str(PLACE), "error": None, "tries": 0}
ERROR = {"code": "TC2012", "message": f"{T} cannot be read now: a file is gone"}


class AtOnce:
    """A background without threads."""

    def submit(
        self, call: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[Fault], None]
    ) -> None:
        try:
            answer = call()
        except TruecutError as error:
            otherwise(error.fault)
        else:
            then(answer)


class Forgetful:
    """A store that takes everything, and whose answers are lost while `deaf`."""

    def __init__(self, control: ControlStore) -> None:
        self._control = control
        self.deaf = False

    def report_sinks(self, reports: Mapping[str, Any], tally: Tally) -> Mapping[str, int]:
        unrouted = self._control.report_sinks(reports, tally)
        if self.deaf:
            raise unreachable()
        return unrouted


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlStore]:
    pipeline = pipeline_in(tmp_path)
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as opened:
        yield opened


def bulletin_of(folder: Path, control: Any) -> tuple[Bulletin, View]:
    view = View(pipeline_in(folder))
    return Bulletin(control, cast(Any, AtOnce()), view, runner="me", on_store=lambda _: None), view


class Told:
    """A store that tells this."""

    def __init__(self, **told: Any) -> None:
        self._told = told

    def reports(self) -> Reports:
        return Reports(running=True, **self._told)


def heard(folder: Path, told: Mapping[str, Any], *, renewed: bool = True, owner: str = "another") -> Any:
    """What is made of a report on `t0` at two looks, between which `another` has had a heartbeat or not."""
    bulletin, _ = bulletin_of(folder, None)
    for until_ms in (10, 20 if renewed else 10):
        bulletin._control = cast(
            Any,
            Told(
                runners={"me": {}, "another": {}},
                alive_until_ms={"me": until_ms, "another": until_ms},
                sinks={"t0": {"position": str(PLACE), "tables": {T: told}}},
                owners={"t0": owner},
            ),
        )
        bulletin.look()
    return bulletin.elsewhere(but="me").get("t0")


def test_what_a_runner_has_told_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    """Its sinks may have changed, or be gone, too: they have to be asked. One that was killed lately has its
    leases still, but no heartbeat any more."""
    assert heard(tmp_path, GOES_ON) == Elsewhere({T: PLACE})
    assert heard(tmp_path, GOES_ON, renewed=False) is None
    assert heard(tmp_path, GOES_ON, owner="a third") is None
    assert heard(tmp_path, GOES_ON, owner="me") is None


@pytest.mark.parametrize(
    ("told", "places", "stuck"),
    [
        ({**GOES_ON, "status": "held", "error": {"message": "why"}}, {}, {T: f"{T} is held: why"}),
        ({**GOES_ON, "error": ERROR, "tries": UNREAD_TRIES - 1}, {T: PLACE}, {}),
        ({**GOES_ON, "error": ERROR, "tries": UNREAD_TRIES}, {}, {T: ERROR["message"]}),
        ({**GOES_ON, "status": "unseeded", "at": None}, {T: None}, {}),
        ({}, {T: None}, {}),
    ],
)
def test_each_table_of_a_report_counts(
    told: dict[str, Any], places: dict[str, Position | None], stuck: dict[str, str], tmp_path: Path
) -> None:
    """One that is held, cannot be read, is to be seeded or is not told of is not where its sink is."""
    assert heard(tmp_path, told) == Elsewhere(places, stuck)


def test_an_answer_that_is_lost_does_not_count_twice(tmp_path: Path, control: ControlStore) -> None:
    """The store has taken it, we do not know: it is told again, with its number; what came since is told
    after it."""
    store = Forgetful(control)
    bulletin, view = bulletin_of(tmp_path, store)
    wave = Wave(1, "changes", {}, (T,), Position(1, 1), PLACE)

    def wrote(rows: int) -> None:
        view.wave_done(wave, PLACE, [Receipt("t0", 1, "applied", counts={T: Counts(rows)})], {})

    store.deaf = True
    wrote(3)
    bulletin.publish()
    wrote(4)
    bulletin.publish()
    store.deaf = False
    bulletin.publish()
    assert control.reports().totals.by_sink() == {"t0": 3}
    bulletin.publish()
    bulletin.publish()
    assert control.reports().totals.by_sink() == {"t0": 7}


def test_a_sink_that_nobody_has_is_retired_by_whoever_sees_it(tmp_path: Path, control: ControlStore) -> None:
    """With what was told of it last. While somebody else has it, that one tells it; one that was put back is
    not retired."""
    bulletin, view = bulletin_of(tmp_path, control)
    t0, t1 = view.pipeline.sinks
    control.report_sinks({"t0": {"state": "behind", "tables": {T: GOES_ON}, "cursor": "c"}})
    control.claim("another", ["t1"], duration_ms=600_000, count_max=1)
    view.pipeline = replace(view.pipeline, sinks=())

    def told() -> dict[str, str]:
        bulletin.look()
        bulletin.publish()
        return {name: report["state"] for name, report in control.reports().sinks.items()}

    bulletin.retire(["t0", "t1"])
    assert told() == {"t0": "retired"}
    report = control.reports().sinks["t0"]
    assert (report["cursor"], report["tables"]) == ("c", {T: GOES_ON})
    assert bulletin.unclaimed, "t1 is somebody's"
    control.leave("another")
    assert told() == {"t0": "retired", "t1": "retired"}
    assert not bulletin.unclaimed
    bulletin.retire([t0.name])
    view.pipeline = replace(view.pipeline, sinks=(t0, t1))
    bulletin.retire([])
    assert not bulletin.unclaimed
