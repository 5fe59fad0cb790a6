"""Real processes, killed at every durable step and at any time: what was acknowledged is there, once, in
order, with the same bytes."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.journal.processes import Writer, check_texts
from tests.journal.world import content, plain_texts, texts
from truecut.failpoint import KILLED, NAMES
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader

STEPS = sorted(name for name in NAMES if name.startswith("journal_"))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_durable_step(tmp_path: Path, step: str) -> None:
    """In a new log and in one that is there; while it is written, also at a later time."""
    while_opening = step in ("journal_epoch_raised", "journal_segment_made")
    writers = []
    for number, times in enumerate((1, 1) if while_opening else (1, 1, 3)):
        writers.append(
            Writer(["--data", str(tmp_path)], f"w{number}", {"TRUECUT_FAILPOINT": f"{step}:{times}"})
        )
        assert writers[-1].end() == KILLED
        check_texts(_there(tmp_path / "log"), writers)
        LocalJournal(tmp_path / "log").close()
        check_texts(_there(tmp_path / "log"), writers)


def test_killed_at_any_time(tmp_path: Path) -> None:
    """Ten times, under load, each followed by the next writer."""
    rng = random.Random(4)
    writers = []
    for number in range(10):
        writers.append(Writer(["--data", str(tmp_path)], f"w{number}"))
        writers[-1].wait_for(rng.randrange(1, 300))
        writers[-1].process.kill()
        assert writers[-1].end() == -signal.SIGKILL
        check_texts(_there(tmp_path / "log"), writers)
    assert sum(len(writer.acknowledged) for writer in writers) > 100


def test_a_stopped_writer_wakes_up_after_a_takeover(tmp_path: Path) -> None:
    """SIGSTOP in the middle of its work, a newcomer takes over, SIGCONT: it writes nothing more."""
    old = Writer(["--data", str(tmp_path)], "old")
    old.wait_for(100)
    old.process.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    acknowledged = len(old.acknowledged)
    with_old = LocalJournal(tmp_path / "log", take_over=True)
    before = texts(content(with_old))
    old.process.send_signal(signal.SIGCONT)
    assert old.end() == 1
    assert texts(content(with_old)) == before
    with_old.close()
    assert len(before) >= acknowledged
    check_texts(_there(tmp_path / "log"), [old])


def _there(folder: Path) -> list[str]:
    """What the files hold, and what a reader gets of it."""
    found = plain_texts(folder)
    assert texts(content(LocalReader(folder))) == found
    return found
