"""TLC's verdict on every bug of the segment log, and on the stages in which it was found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

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
# Stages with the states of a model, or of a bug in it, and with laws of its: they have their verdict there.
SEEN_THERE = {
    "3-stuck-consumer": ("log-ends", "end_not_retried"),
    "3-stuck-consumer-fixed": ("log-ends", None),
    "4-takeover-race-fixed": ("log-race", None),
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


@pytest.mark.parametrize("stage", [path.stem for path in tlc.stages() if path.stem not in SEEN_THERE])
def test_every_stage_has_its_verdict(stage: str) -> None:
    """The problem shows where it was found, and is gone with its remedy."""
    verdict = tlc.check(_text(stage), module=MODULE, brief=True)
    assert verdict.violated == STAGES[stage]


@pytest.mark.parametrize("stage", SEEN_THERE)
def test_a_stage_that_is_a_model_has_its_verdict_there(stage: str) -> None:
    """Nothing of it differs but that it names fewer laws."""
    model, bug = SEEN_THERE[stage]
    constants, laws = _parts(_text(stage))
    of_model, all_laws = _parts(tlc.config(model, bugs=bug))
    assert constants == of_model
    assert laws <= all_laws
    assert model in tlc.small_models()
    assert STAGES[stage] == (None if bug is None else BUGS[bug][1])
    assert bug is None or BUGS[bug][0] == model


def test_no_stage_is_missing() -> None:
    """Each has its verdict."""
    assert {path.stem for path in tlc.stages()} == set(STAGES)


def _text(stage: str) -> str:
    return (tlc.SPECS / "stages" / f"{stage}.cfg").read_text()


def _parts(configuration: str) -> tuple[list[str], set[str]]:
    """What TLC is given, and the laws that it is asked for."""
    lines = [line for line in configuration.splitlines() if not line.startswith("\\*")]
    first = min(lines.index(word) for word in ("INVARIANTS", "PROPERTIES") if word in lines)
    return lines[:first], {line.strip() for line in lines[first:] if line.startswith("  ")}
