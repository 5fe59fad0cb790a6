"""TLC's verdict on every bug of the segment log, and on the stages in which it was found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specs import tlc

# A bug, the model that shows it, and what it breaks first.
BUGS = {
    "last_entry_served": ("log-race", "ReadCommitted"),
    "fenced_served": ("log-race", "ReadCommitted"),
    "unfenced_reply_counted": ("log-race", "CommitDurability"),
    "end_not_retried": ("log-ends", tlc.LIVENESS),
    "close_decided_twice": ("log-race", "CommitDurability"),
    "ack_before_fsync": ("log-race", "CommitDurability"),
    "told_before_fsync": ("log-race", "CommitDurability"),
    "suspend_after_seal": ("log-race", "ForwardOnly"),
    "acks_kept": ("log", "CommitDurability"),
    "torn_tail_trusted": ("log-race", "CommitDurability"),
    "decided_alone": ("log-race", "CommitDurability"),
    "begun_anew": ("log-hurt", "CommitDurability"),
    "trimmed_forgotten": ("log", "CommitDurability"),
    "missing_is_empty": ("log-hurt", "CommitDurability"),
    "copied_anew": ("log-hurt-copy", "CommitDurability"),
    "half_copy_counted": ("log-lost", "CommitDurability"),
    "replaced_before_copied": ("log-lost", "CommitDurability"),
}
STAGES = {
    "1-happy-path": None,
    "2-last-entry": "ReadCommitted",
    "2-last-entry-fixed": None,
    "3-stuck-consumer": tlc.LIVENESS,
    "3-stuck-consumer-fixed": None,
    "4-takeover-race": "SealedOnce",
    "4-takeover-race-fixed": None,
}
MODULE = tlc.module_of("log")


@pytest.fixture(scope="module")
def broken() -> dict[str, str | None]:
    """bug → what TLC says is violated. One worker each, so that the answer is always the same."""

    def violated(bug: str) -> str | None:
        return tlc.check(tlc.config(BUGS[bug][0], bugs=bug), module=MODULE, brief=True).violated

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BUGS, pool.map(violated, BUGS), strict=True))


@pytest.mark.parametrize("bug", BUGS)
def test_no_bug_survives(bug: str, broken: dict[str, str | None]) -> None:
    """Each bug, switched on in the spec, is caught, by the law it breaks."""
    assert broken[bug] == BUGS[bug][1]


def test_every_bug_switch_has_its_test() -> None:
    """A switch in the spec that no test turns on would prove nothing."""
    assert set(tlc.switches((tlc.SPECS / "SegmentLog.tla").read_text())) == set(BUGS)


@pytest.mark.parametrize("stage", tlc.stages(), ids=lambda path: path.stem)
def test_every_stage_has_its_verdict(stage: Path) -> None:
    """The problem shows where it was found, and is gone with its remedy."""
    verdict = tlc.check(stage.read_text(), module=MODULE, brief=True)
    assert verdict.violated == STAGES[stage.stem]
