"""TLC's verdict on every small model, and on every bug that must not survive."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from specs import tlc

# A bug, the model that shows it, and what it breaks first.
BUGS = {
    "inclusive_read": ("content", "NoDuplicate"),
    "resolve_by_rowid": ("content", "NoDataLossWhenCurrent"),
    "cursor_apart_from_data": ("content", "TransactionNeverSplit"),
    "no_epoch_check": ("faults", "FlushStateConsistency"),
    "no_fence": ("runners", "FencedWriteHasNoEffect"),
    "takeover_unfenced": ("runners", "TokenMonotonicity"),
    "seed_appends": ("content", "NoPhantomWhenCurrent"),
    "missing_reset": ("faults", "BufferPositionBound"),
    "key_change_without_delete": ("content", "NoPhantomWhenCurrent"),
    "route_change_without_delete": ("content", "PartitionCorrectness"),
    "read_across_gap": ("content", "NoDataLossWhenCurrent"),
    "expected_unchecked": ("content", "NoDuplicate"),
    "split_transaction": ("content", "NoDataLossWhenCurrent"),
    "wave_while_applying": ("faults", "FlushStateConsistency"),
    "advance_unread": ("content", "BufferPositionBound"),
    "position_before_commit": ("faults", "BufferPositionBound"),
    "abort_advances": ("unread", "BufferPositionBound"),
    "no_recovery": ("recovery", tlc.LIVENESS),
    "sink_moves_all_copies": ("tables", "FencedWriteHasNoEffect"),
    "resume_not_durable": ("tables", "RequestKept"),
    "accept_already": ("tables", "ShapeTrue"),
    "seed_unchecked": ("tables", "CursorMonotonicity"),
    "token_reused_after_loss": ("runners", "OwnersDiffer"),
    "only_places_are_compared": ("append-holds", "CursorMonotonicity"),
    "resumed_unshaped": ("append-faults", "ShapeTrue"),
    "again_unread": ("tables", "AgainIsRead"),
    "again_at_head": ("append-walk", "AgainMissesNothing"),
    "stale_look_believed": ("replaced", "CaughtUpIsTrue"),
    "generation_not_heard": ("replaced-heard", tlc.LIVENESS),
}
APPEND_BUGS = {
    "inclusive_read": "AppendExactlyOnce",
    "expected_unchecked": "AppendExactlyOnce",
    "cursor_apart_from_data": "AppendExactlyOnce",
    "advance_unread": "BufferPositionBound",
}


WALKED = {"append-walk", "replaced-walk", "tables", "unread", *tlc.walked("cut"), *tlc.walked_logs()}


@pytest.mark.parametrize("model", sorted(set(tlc.small_models()) - WALKED))
def test_everything_holds_in_every_state(model: str) -> None:
    """The protocol keeps its invariants and properties in each state of the model. The walked ones have their
    verdict where they are walked."""
    verdict = tlc.check(tlc.config(model), module=tlc.module_of(model), brief=True)
    assert verdict.violated is None, verdict.output[-3000:]
    assert verdict.distinct > 1_000


@pytest.fixture(scope="module")
def broken() -> dict[tuple[str, str], str | None]:
    """(model, bug) → what TLC says is violated. One worker each, so that the answer is always the same."""
    wanted = [(model, bug) for bug, (model, _) in BUGS.items()] + [("append", bug) for bug in APPEND_BUGS]

    def violated(pair: tuple[str, str]) -> str | None:
        model, bug = pair
        return tlc.check(tlc.config(model, bugs=bug), module=tlc.module_of(model), brief=True).violated

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(wanted, pool.map(violated, wanted), strict=True))


@pytest.mark.parametrize("bug", BUGS)
def test_no_bug_survives(bug: str, broken: dict[tuple[str, str], str | None]) -> None:
    """Each bug, switched on in the spec, is caught, by the law it breaks."""
    model, law = BUGS[bug]
    assert broken[model, bug] == law


@pytest.mark.parametrize("bug", APPEND_BUGS)
def test_no_bug_survives_in_append_mode(bug: str, broken: dict[tuple[str, str], str | None]) -> None:
    """What a mirror's idempotence might hide shows in an append table."""
    assert broken["append", bug] == APPEND_BUGS[bug]


def test_every_bug_switch_has_its_test() -> None:
    """A switch in the spec that no test turns on would prove nothing."""
    text = (tlc.SPECS / "Delivery.tla").read_text() + (tlc.SPECS / "History.tla").read_text()
    switches = set(tlc.switches(text))
    assert switches == set(BUGS)
    assert len(switches) >= 10
