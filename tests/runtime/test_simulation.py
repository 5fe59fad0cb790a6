"""The real runner in a simulated world, and that the world would notice if the runner were wrong."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.runtime.simulation import life
from tests.runtime.simulation.clockwork import Broken
from tests.runtime.simulation.faults import FAULTS, Kind, injected

STORMS = 500
PARTS = 4
HANGS = 60
LIMPS = 16
EDITS = 200
UNREAD = 40
STOPS = 30
RELAYS = 40
GONE = 20
AGAIN = 150
LOOKS_AT_THE_END = (1_001_373, 1_003_480)
CAUGHT_WITHIN = 150  # lives
# Rarely shown, so not by the first lives; or not before another law is broken.
FIRST = {"requests_not_waited_for": 1000, "unread_does_not_rest": 1, "everything_is_gone": 5}
LIVES = {
    "storm": life.storm,
    "hang": life.hang,
    "limp": life.limp,
    "edit": life.edit,
    "unread": life.unread,
    "stop": life.stop,
    "relay": life.relay,
    "gone": life.gone,
    "again": life.again,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of lives have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def lived(kind: Kind, seeds: Iterable[int], folder: Path) -> int:
    """Commits in all of these lives; whatever breaks a law says the seed."""
    commits = 0
    for seed in seeds:
        try:
            commits += LIVES[kind](seed, folder).commits
        except Broken as broken:
            broken.add_note(f"python -m tests.runtime.simulation.life {seed} {kind}")
            raise
    return commits


@pytest.mark.parametrize("part", range(PARTS))
def test_every_law_holds_in_every_storm(part: int, tmp_path: Path) -> None:
    """Through kills, pauses, hanging sinks, lost answers and jobs, a store that is down, lost or doubled,
    gaps, and users who pause and resume: every copy is its share of the source at every commit, only the
    owner writes, what is paused stands still, requests are kept; when the trouble ends every copy becomes
    current, a stop ends and is durable, a run until caught up gets there."""
    count = STORMS // PARTS
    assert lived("storm", range(part * count, (part + 1) * count), tmp_path / "state") > 10 * count


@pytest.mark.parametrize("seed", LOOKS_AT_THE_END)
def test_a_look_that_comes_while_a_run_ends_changes_nothing(seed: int, tmp_path: Path) -> None:
    """A source is replaced, and the look that shows it comes after everything known was made durable; or the
    run is stopped before it has looked where a sink already is."""
    lived("storm", [seed], tmp_path / "state")


def test_a_sink_that_hangs_delays_the_others_by_one_deadline_once(tmp_path: Path) -> None:
    """Also when jobs fail as a whole, so that everybody is recovered again and again."""
    assert lived("hang", range(HANGS), tmp_path / "state") > 50 * HANGS


def test_sinks_that_fail_do_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    """Late for a reason of their own, they are recovered again and again: none of it beside the one that
    hangs at each recovery."""
    assert lived("limp", range(LIMPS), tmp_path / "state") > 50 * LIMPS


def test_sinks_come_and_go_while_the_pipeline_runs(tmp_path: Path) -> None:
    """In every storm: each run sees the changed file by itself; a sink that was added becomes current beside
    the others, also one that was there before; one that was removed gets no order once that was seen, and
    nobody has a lease of it."""
    assert lived("edit", range(EDITS), tmp_path / "state") > 10 * EDITS


def test_a_table_that_cannot_be_read_delays_no_other(tmp_path: Path) -> None:
    """It is tried again by itself, alone and ever more rarely, and every view says which one it is and why;
    what can be read goes on as before. When it can be read again, it catches up."""
    assert lived("unread", range(UNREAD), tmp_path / "state") > 50 * UNREAD


def test_a_stop_is_durable_though_a_seed_hangs(tmp_path: Path) -> None:
    """What hangs for ten minutes costs the other sinks nothing."""
    assert lived("stop", range(STOPS), tmp_path / "state") > 10 * STOPS


def test_a_run_until_caught_up_believes_no_run_that_was_killed(tmp_path: Path) -> None:
    """A table that another run has held is not there, whatever the sink's place; a request that outlived a
    run is answered when this one ends; what nobody resumes ends it, too, and is named."""
    assert lived("relay", range(RELAYS), tmp_path / "state") > 10 * RELAYS


def test_a_run_until_caught_up_ends_without_what_is_gone(tmp_path: Path) -> None:
    """A table that cannot be read was tried a few times: everything else is there, and the table is named."""
    assert lived("gone", range(GONE), tmp_path / "state") > 10 * GONE


def test_tables_are_read_again_in_every_storm(tmp_path: Path) -> None:
    """Whatever goes wrong meanwhile: every request is shown by the copies that it means, content is what it
    was to be at every commit, and every copy becomes current."""
    assert lived("again", range(AGAIN), tmp_path / "state") > 10 * AGAIN


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_in_the_loop_survives(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each bug, put into the loop or the glue around it, breaks the law that it is about."""
    law, kind = injected(monkeypatch, fault)
    first = FIRST.get(fault, 0)
    with pytest.raises(Broken, match=law):
        lived(kind, range(first, first + CAUGHT_WITHIN), tmp_path / "state")


def test_a_seed_is_a_life(tmp_path: Path) -> None:
    """The same seed is the same life to the last step, in another process and with other hashes, too."""

    def told(hash_seed: str) -> str:
        lives = "".join(
            subprocess.run(
                [sys.executable, "-m", "tests.runtime.simulation.life", str(seed)],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for seed in (3, 4)
        )
        assert len(lives) > 1_000
        return hashlib.sha256(lives.encode()).hexdigest()

    assert told("1") == told("2")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_many_more_lives(part: int, tmp_path: Path) -> None:
    """As above, 40,000 storms and 2,000 lives with a sink that hangs."""
    first = 1_000_000 + part * 2_000
    lived("storm", range(first, first + 2_000), tmp_path / "state")
    lived("hang", range(first, first + 100), tmp_path / "state")
