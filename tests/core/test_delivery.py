"""The delivery machine's own laws, one by one: groups, turns, lateness, gaps, other sources, tables."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.core.machine import (
    FAULT,
    NEVER,
    T,
    U,
    at,
    commit,
    copy,
    cursor,
    owned,
    passed_by,
    recovered,
    told,
    wave_of,
)
from truecut.core import answers, delivery
from truecut.core.delivery import (
    GAP_CODE,
    CopySettings,
    Delivery,
    RaiseToken,
    Recover,
    SinkState,
)
from truecut.errors import Retry
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.model.table import Mode
from truecut.runtime.trace import actions


def test_a_small_group_far_behind_gets_its_turn() -> None:
    """No starvation: beside a large group that always has work, a single sink that is behind catches up."""
    state = owned({**{f"big{n}": 50 for n in range(20)}, "small": 1, "middle": 20}, head=51)
    waves = 0
    while min(s.position or at(0) for s in state.sinks.values()) < at(50):
        state, effects = delivery.start_wave(state)
        wave = wave_of(effects)
        state = commit(state, wave, upto=min((wave.after or at(0)).place + 5, wave.upto_max.place))
        oldest, head = at(0), at((state.head or at(0)).place + 1)  # the source never rests
        state = delivery.observe(state, identity="one", oldest=oldest, head=head)
        waves += 1
        assert waves < 50


def test_groups_meet_and_merge() -> None:
    """A window ends where the next group stands, and from there one read serves both."""
    state = owned({"a": 1, "b": 4, "c": 4}, head=9)
    state, effects = delivery.start_wave(replace(state, turn=1))
    wave = wave_of(effects)
    assert (set(wave.sinks), wave.after, wave.upto_max) == ({"a"}, at(1), at(4))
    state, effects = delivery.start_wave(commit(state, wave))
    assert set(wave_of(effects).sinks) == {"a", "b", "c"}


def test_a_late_sink_leaves_its_group_and_returns_when_it_keeps_up() -> None:
    """A sink that did not answer gets waves of its own, until it stands where the punctual ones stand."""
    state = owned({"a": 1, "b": 1}, head=5)
    state, effects = delivery.start_wave(state)
    wave = wave_of(effects)
    epochs = {n: o.epoch for n, o in wave.sinks.items()}
    both = [
        Receipt("a", epochs["a"], "applied", cursor=cursor(5)),
        Receipt("b", epochs["b"], "late", fault=FAULT),
    ]
    state, _ = delivery.wave_done(state, wave.id, upto=at(5), receipts=both, now_ms=0)
    assert (state.sinks["a"].late, state.sinks["b"].late) == (False, True)
    assert state.sinks["b"].phase == "acquired"
    assert delivery.start_recovery(state, now_ms=answers.BACKOFF_FIRST_MS - 1, lane="hung")[1] == []
    state, _ = delivery.start_recovery(state, now_ms=answers.BACKOFF_FIRST_MS, lane="hung")
    answer = Receipt("b", state.sinks["b"].epoch, "applied", cursor=cursor(1))
    state, _ = delivery.recovered(state, [answer], now_ms=0)
    assert delivery.start_wave(state)[1] == []
    state, effects = delivery.start_wave(state, late=True)
    state = commit(state, wave_of(effects))
    assert not state.sinks["b"].late
    assert state.sinks["b"].failures == 0


def test_a_job_that_fails_as_a_whole_is_tried_in_halves() -> None:
    """One sink that breaks every job it is in is alone after log2(n) failures; the others are not late."""
    state = owned({f"s{n}": 1 for n in range(64)}, head=2)
    failed = 0
    while any(sink.position != at(2) for name, sink in state.sinks.items() if name != "s13"):
        state, effects = delivery.start_wave(state)
        wave = wave_of(effects)
        if "s13" not in wave.sinks:
            state = commit(state, wave)
            continue
        failed += 1
        state, _ = delivery.wave_failed(state, wave.id, FAULT, now_ms=0)
        state = told(state, dict.fromkeys(state.sinks, cursor(1)))
    assert failed <= 8
    assert not any(sink.late for sink in state.sinks.values())


def test_a_recovery_that_fails_as_a_whole_is_tried_in_halves() -> None:
    """Nobody becomes late by it, so nobody has to wait for the late ones' recoveries; one sink that breaks
    every job it is in keeps the others waiting for log2(n) failures."""
    state = delivery.acquire(owned({f"s{n}": 1 for n in range(64)}, head=2), {f"s{n}": 2 for n in range(64)})
    failed = 0
    while any(sink.phase != "ready" for name, sink in state.sinks.items() if name != "s13"):
        state, (effect,) = delivery.start_recovery(state, now_ms=NEVER)
        assert isinstance(effect, Recover)
        if "s13" in effect.sinks:
            failed += 1
            state, effects = delivery.recovery_failed(state, effect, FAULT, now_ms=0)
            assert effects == []
        else:
            heard = [Receipt(n, epoch, "applied", cursor=cursor(1)) for n, (epoch, _) in effect.sinks.items()]
            state, _ = delivery.recovered(state, heard, now_ms=0)
    assert failed <= 7
    assert not any(sink.late for sink in state.sinks.values())
    assert (state.sinks["s13"].phase, state.sinks["s13"].fault) == ("acquired", FAULT)


def test_a_recovery_that_failed_says_nothing_of_a_sink_that_was_reset_since() -> None:
    """D4: a lease that was lost meanwhile stays lost."""
    state, (effect,) = delivery.start_recovery(delivery.acquire(owned({"a": 1}, head=2), {"a": 2}), now_ms=0)
    assert isinstance(effect, Recover)
    lost = delivery.lose(state, ["a"])
    assert delivery.recovery_failed(lost, effect, FAULT, now_ms=0) == (lost, [])


@pytest.mark.parametrize("kind", ["seed", "persist"])
def test_a_seed_or_persisted_cursor_without_an_answer_is_a_failure(kind: str) -> None:
    """Only a window of changes may pass a sink by; otherwise no answer means that nobody knows."""
    if kind == "seed":
        state, effects = delivery.start_seed(owned({"a": None}, head=3), now_ms=0)
    else:
        state = owned({"a": 1}, head=3)
        state, effects = delivery.start_wave(state)
        state = passed_by(state, wave_of(effects))
        assert (state.sinks["a"].cursor, state.sinks["a"].position) == (at(1), at(3))
        state, effects = delivery.persist_idle(state, ["a"])
    wave = wave_of(effects)
    assert wave.kind == kind
    state, _ = delivery.wave_done(state, wave.id, upto=wave.upto_max, receipts=[], now_ms=0)
    assert state.sinks["a"].phase == "acquired"
    assert state.sinks["a"].fault is not None


def test_a_fenced_commit_asks_for_a_higher_token() -> None:
    """D6: who is told of a newer token does not write again before it has one above it, or gives up."""
    state, effects = delivery.start_wave(owned({"a": 1}, head=3))
    wave = wave_of(effects)
    refusal = Receipt("a", wave.sinks["a"].epoch, "failed", fault=FAULT, fenced_by=7)
    state, effects = delivery.wave_done(state, wave.id, upto=at(3), receipts=[refusal], now_ms=0)
    assert effects == [RaiseToken("a", 7)]
    state = delivery.acquire(state, {"a": 8})
    assert (state.sinks["a"].phase, state.sinks["a"].token) == ("acquired", 8)


def test_a_receipt_after_losing_and_regaining_the_lease_changes_nothing() -> None:
    """D4: what was asked before a reset is not heard after it, whatever the lease says now."""
    state, effects = delivery.start_wave(owned({"a": 1}, head=3))
    wave = wave_of(effects)
    state = delivery.acquire(delivery.lose(state, ["a"]), {"a": 2})
    assert commit(state, wave).sinks == state.sinks


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_nothing_is_read_across_a_gap(mode: Mode) -> None:
    """D5: a mirror whose place is gone is seeded anew, an append table is held, idle or in a wave."""
    for busy in (False, True):
        state = owned({"a": 1}, head=5, mode=mode)
        if busy:
            state, effects = delivery.start_wave(state)
        state = delivery.observe(state, identity="one", oldest=at(4), head=at(6))
        if busy:
            state, _ = delivery.wave_done(state, wave_of(effects).id, upto=at(3), receipts=[], now_ms=0)
        copy = state.sinks["a"].copies[T]
        assert copy.status == ("unseeded" if mode == "mirror" else "held")
        assert mode == "mirror" or (copy.hold is not None and copy.hold.code == GAP_CODE)
        assert delivery.start_wave(state)[1] == []


def test_another_source_continues_nothing() -> None:
    """D5: when the source is replaced, a sink that streams is seeded anew, also when a wave was running."""
    state = owned({"idle": 1, "busy": 2}, head=2)
    state, effects = delivery.start_wave(replace(state, turn=0))
    busy = wave_of(effects)
    assert set(busy.sinks) == {"idle"}  # the one that lacks something
    state = delivery.observe(state, identity="two", oldest=at(0, 2), head=at(1, 2))
    assert state.sinks["busy"].copies[T].status == "unseeded"
    state, _ = delivery.wave_done(state, busy.id, upto=at(2), receipts=[], now_ms=0)
    assert state.sinks["idle"].copies[T].status == "unseeded"
    assert delivery.start_wave(state)[1] == []
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).upto_max == at(1, 2)


def test_another_source_whose_positions_do_not_grow_says_nothing() -> None:
    """D8: one generation is one source. Until the other one has a number of its own, a sink stands still: it
    is neither carried, seeded nor held; then it is seeded anew."""
    state = delivery.observe(owned({"a": 5}, head=5), identity="two", oldest=at(0), head=at(7))
    state = told(delivery.acquire(state, {"a": 2}), {"a": cursor(5)})
    assert state.sinks["a"].copies[T].status == "streaming"
    assert delivery.start_wave(state)[1] == []
    assert delivery.start_seed(state, now_ms=NEVER)[1] == []
    state = delivery.observe(state, identity="two", oldest=at(0, 2), head=at(7, 2))
    assert wave_of(delivery.start_seed(state, now_ms=NEVER)[1]).upto_max == at(7, 2)


def test_a_look_of_an_older_generation_changes_nothing() -> None:
    """D8: neither one that comes after a later one, nor one that a sink has left behind."""
    seen = delivery.observe(owned({"a": 5}, head=5), identity="two", oldest=at(0, 2), head=at(1, 2))
    assert delivery.observe(seen, identity="one", oldest=at(0), head=at(6)) == seen
    later = Cursor(at(3, 2), 1, {T: replace(copy(3, source="two"), at=at(3, 2))})
    state = recovered({"a": later, "b": cursor(5)}, {T: CopySettings("append")}, head=9)
    assert state.sinks["a"].copies[T].status == "streaming"
    assert set(wave_of(delivery.start_wave(state)[1]).sinks) == {"b"}
    state = delivery.resume_table(state, T, asked=7, sinks=["a", "b"])
    assert [sink.copies[T].resumed for sink in state.sinks.values()] == [0, 7]
    assert list(delivery.taken_up(state)) == ["b"]


def test_a_stale_look_at_the_source_starts_no_seed_behind_the_cursor() -> None:
    """D1: the sink may have been seeded by another runner further on than we have looked."""
    settings = {T: CopySettings("mirror", fingerprint="new", accept=True)}
    state = recovered({"a": cursor(7)}, settings, head=3)
    assert delivery.start_seed(state, now_ms=0)[1] == []
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(8))
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).upto_max == at(8)


def test_a_paused_sink_gets_no_order() -> None:
    """Pause: no recovery, wave, seed or persisting for exactly these sinks."""
    state = delivery.pause(owned({"a": 1, "b": None}, head=5), sinks=frozenset({"a", "b"}))
    assert delivery.start_wave(state)[1] == []
    assert delivery.start_seed(state, now_ms=NEVER)[1] == []
    state = delivery.pause(state, sinks=frozenset({"b"}))
    assert set(wave_of(delivery.start_wave(state)[1]).sinks) == {"a"}


def test_nothing_is_recovered_before_the_source_was_seen() -> None:
    """A cursor means something only in the history that it came from."""
    state = delivery.acquire(Delivery({"a": SinkState({T: CopySettings("mirror")})}), {"a": 1})
    assert delivery.start_recovery(state, now_ms=0) == (state, [])


@pytest.mark.parametrize(("place", "lag_max", "due"), [(49, None, True), (50, None, False), (80, 10, True)])
def test_an_idle_cursor_is_persisted_before_retention_reaches_it(
    place: int, lag_max: int | None, due: bool
) -> None:
    """Due: the older half of [oldest, head], or more than `lag_max` behind; only where there is a lead."""
    state = owned({"a": place}, head=100)
    assert delivery.due_to_persist(state, lag_max=lag_max) == []
    state, effects = delivery.start_wave(state)
    state = passed_by(state, wave_of(effects))
    assert delivery.due_to_persist(state, lag_max=lag_max) == (["a"] if due else [])


def test_backoff_doubles_to_a_limit_and_jitter_is_passed_in() -> None:
    """Chance is an argument; a fault that a retry cannot help waits longest."""
    assert answers.delayed(3, FAULT, 0, 0.0) == 8 * answers.BACKOFF_FIRST_MS
    assert answers.delayed(3, FAULT, 0, 0.5) == 12 * answers.BACKOFF_FIRST_MS
    assert answers.delayed(60, FAULT, 0, 0.0) == answers.BACKOFF_MAX_MS
    hopeless = replace(FAULT, retry=Retry.NOT_RETRYABLE)
    assert answers.delayed(3, hopeless, 0, 0.0) == answers.BACKOFF_MAX_MS


def test_cost_grows_with_the_sinks_not_with_their_square() -> None:
    """Eight times the sinks, all at places of their own, cost far less than sixty-four times the time."""

    def cost(count: int) -> float:
        state = owned({f"s{n}": n for n in range(count)}, head=count)
        started = time.process_time()
        state, effects = delivery.start_wave(state)
        state = commit(state, wave_of(effects))
        state, effects = delivery.start_wave(state)
        state = passed_by(state, wave_of(effects))
        delivery.persist_idle(state, list(state.sinks))
        return time.process_time() - started

    small = min(cost(500) for _ in range(3))
    assert min(cost(4_000) for _ in range(3)) < 24 * max(small, 0.001)


def test_a_table_that_is_not_ready_is_seeded_when_it_is() -> None:
    """What the source cannot give whole yet keeps no other table waiting; once it can, the seed begins."""
    settings = {T: CopySettings("mirror"), U: CopySettings("mirror")}
    state = Delivery({"a": SinkState(settings)})
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(5), unready={T: "its copy is read"})
    state = delivery.acquire(state, {"a": 1})
    state, _ = delivery.start_recovery(state, now_ms=0)
    state, _ = delivery.recovered(
        state, [Receipt("a", state.sinks["a"].epoch, "applied", cursor=cursor(None))], now_ms=0
    )
    state, effects = delivery.start_seed(state, now_ms=0)
    assert wave_of(effects).tables == (U,)
    assert delivery.start_seed(state, now_ms=0)[1] == []
    wave = next(iter(state.waves))
    done = Receipt("a", state.sinks["a"].epoch, "applied", cursor=cursor(5, u=copy(5)))
    state, _ = delivery.wave_done(state, wave, upto=at(5), receipts=[done], now_ms=0)
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(6))
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).tables == (T,)


def test_a_retired_sink_is_lost_for_good_and_one_that_comes_back_begins_behind_it() -> None:
    """Retired is Lose, to the spec; a lease that was on its way is not acquired. Enlisted again it is
    nobody's, and no answer to what was asked of it before is of its epoch (D4)."""
    state = owned({"a": 1, "b": 1}, head=5)
    state, effects = delivery.start_wave(state)
    wave = wave_of(effects)
    retired = delivery.retire(state, ["a"])
    lost = delivery.lose(state, ["a"])
    assert retired.sinks["a"] == replace(lost.sinks["a"], retired=True)
    assert retired.sinks["b"] == state.sinks["b"]
    assert list(retired.wanted) == ["b"]
    assert delivery.acquire(retired, {"a": 99}).sinks["a"] == retired.sinks["a"]
    back = delivery.enlist(retired, {"a": state.sinks["a"].settings})
    assert back.sinks["a"] == SinkState(state.sinks["a"].settings, epoch=lost.sinks["a"].epoch)
    again = delivery.acquire(back, {"a": 99})
    assert again.sinks["a"].epoch > wave.sinks["a"].epoch
    answered = commit(again, wave)
    assert answered.sinks["a"] == again.sinks["a"]
    assert answered.sinks["b"].position == at(5)


def test_enlisting_and_retiring_a_sink_that_nobody_owns_is_no_step_of_the_spec() -> None:
    """It is told by no line of a trace."""
    before = owned({"a": 1}, head=5)
    with_b = delivery.enlist(before, {"b": before.sinks["a"].settings})
    assert list(actions(before, with_b)) == []
    assert list(actions(with_b, delivery.retire(with_b, ["b"]))) == []
    assert [name for name, _ in actions(with_b, delivery.retire(with_b, ["a"]))] == ["Lose"]


def test_a_recovery_that_is_answered_twice_counts_once() -> None:
    """What came second is older than what has been started since, though of the same epoch."""
    state, effects = delivery.start_wave(owned({"a": 1}, head=5))
    assert effects
    again = [Receipt("a", state.sinks["a"].epoch, "applied", cursor=cursor(1))]
    assert delivery.recovered(state, again, now_ms=0) == (state, [])


def test_where_all_are_late_whoever_commits_is_not_any_more() -> None:
    """There is nobody it would have to keep up with: otherwise all would stay apart for ever."""
    state = owned({"a": 1}, head=5)
    state = state.with_sinks({"a": replace(state.sinks["a"], late=True)})
    state, effects = delivery.start_wave(state, late=True)
    assert not commit(state, wave_of(effects)).sinks["a"].late
