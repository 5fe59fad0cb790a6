"""Tables of one sink at places of their own: paused, held, resumed, catching up, seeded beside the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.machine import (
    FAULT,
    NEVER,
    T,
    U,
    at,
    commit,
    committed,
    copy,
    cursor,
    owned,
    passed_by,
    recovered,
    told,
    two_tables,
    wave_of,
)
from truecut.core import answers, delivery
from truecut.core.delivery import CHANGED_CODE, GAP_CODE, Copy, CopyOrder, CopySettings, Delivery
from truecut.core.state import Lane
from truecut.model.cursor import SHAPE_CODES, UNTOLD_CODES, CopyState, Hold, Version
from truecut.model.order import Receipt, TableOrder
from truecut.model.table import Mode

STOPPED = Hold("TC3024", "it stopped")


def of(state: Delivery, table: str, sink: str = "a") -> Copy:
    return state.sinks[sink].copies[table]


def places(state: Delivery) -> dict[str, int | None]:
    """Where the tables of sink `a` stand; None: to be seeded."""
    return {name: None if c.at is None else c.at.place for name, c in state.sinks["a"].copies.items()}


def test_a_paused_table_stays_where_it_was_whatever_the_others_commit() -> None:
    """Paused at 1, passed by up to 5, resumed, persisted: its place is 1, durable and in memory, and its next
    window starts there."""
    state = delivery.pause_tables(two_tables(copy(1), copy(1), head=5), tables=frozenset({T}))
    state, effects = delivery.start_wave(state)
    assert wave_of(effects).tables == (U,)
    state = delivery.pause_tables(passed_by(state, wave_of(effects)), tables=frozenset())
    state, effects = delivery.persist_idle(state, ["a"])
    assert set(wave_of(effects).sinks["a"].tables) == {U}
    state = commit(state, wave_of(effects))
    assert (of(state, T).durable, of(state, U).durable) == (Version(1, at(1)), Version(1, at(5)))
    state, effects = delivery.start_wave(state)
    assert (wave_of(effects).tables, wave_of(effects).after) == ((T,), at(1))
    assert places(commit(state, wave_of(effects))) == {T: 5, U: 5}


def test_a_paused_table_is_neither_carried_nor_seeded() -> None:
    """A pause of a table holds for its changes and its seed, and costs nothing once it is over."""
    state = delivery.pause_tables(two_tables(copy(1), None, head=5), tables=frozenset({T, U}))
    assert delivery.start_wave(state)[1] == []
    assert delivery.start_seed(state, now_ms=NEVER)[1] == []
    state = delivery.pause_tables(state, tables=frozenset())
    assert wave_of(delivery.start_wave(state)[1]).tables == (T,)
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).tables == (U,)


def test_a_pause_is_kept_through_a_reset() -> None:
    """A paused table stays paused when its sink is taken over anew."""
    state = delivery.pause_tables(two_tables(copy(1), copy(1), head=5), tables=frozenset({T}))
    state = told(delivery.acquire(state, {"a": 2}), {"a": cursor(1, t=copy(1), u=copy(1))})
    assert wave_of(delivery.start_wave(state)[1]).tables == (U,)


def test_a_resumed_table_is_resumed_until_the_sink_shows_it() -> None:
    """D7: taken up is not durable. After a reset the hold is there again and the request is taken up again;
    once the sink shows it, the same request has no effect on whatever holds the table then."""
    before = copy(3, mode="append", hold=STOPPED)
    state = two_tables(before, copy(5), head=5)
    state = delivery.resume_table(state, T, asked=7, sinks=["a"])
    assert (of(state, T).status, of(state, T).at) == ("streaming", at(3))
    assert delivery.taken_up(state) == ["a"]
    state = told(delivery.acquire(state, {"a": 2}), {"a": cursor(5, t=before, u=copy(5))})
    assert of(state, T).status == "held"
    state = delivery.resume_table(state, T, asked=7, sinks=["a"])
    state, effects = delivery.persist_idle(state, delivery.taken_up(state))
    order = wave_of(effects).sinks["a"].tables
    assert order == {T: CopyOrder("persist", Version(1, at(3), STOPPED.code), at(3), 1, 7)}
    state = commit(state, wave_of(effects))
    assert of(state, T).durable == Version(1, at(3), None, 7)
    assert delivery.taken_up(state) == []
    again = copy(3, mode="append", hold=STOPPED, resumed=7)
    state = told(delivery.acquire(state, {"a": 3}), {"a": cursor(5, t=again, u=copy(5))})
    assert delivery.resume_table(state, T, asked=7, sinks=["a"]) == state
    assert of(delivery.resume_table(state, T, asked=8, sinks=["a"]), T).status == "streaming"


def test_the_next_wave_of_a_resumed_table_lifts_its_hold() -> None:
    """An order of changes expects the hold that the sink has, and leaves none."""
    state = two_tables(copy(3, mode="append", hold=STOPPED), copy(5), head=5)
    state, effects = delivery.start_wave(delivery.resume_table(state, T, asked=7, sinks=["a"]))
    wave = wave_of(effects)
    assert wave.sinks["a"].tables[T].expected == Version(1, at(3), STOPPED.code)
    assert of(commit(state, wave), T).durable == Version(1, at(5), None, 7)


def test_a_held_mirror_is_seeded_anew_when_it_is_resumed() -> None:
    """Whatever went wrong is repaired; the seed itself answers the request."""
    state = two_tables(copy(3, hold=STOPPED), copy(5), head=5)
    state = delivery.resume_table(state, T, asked=7, sinks=["a"])
    assert delivery.taken_up(state) == []
    state, effects = delivery.start_seed(state, now_ms=0)
    assert of(commit(state, wave_of(effects)), T).durable == Version(2, at(5), None, 7)


def test_an_append_table_behind_a_gap_is_held_until_told_twice() -> None:
    """An append table is never seeded on its own: the first request finds the gap and holds for that; each
    request counts once, also when its answer was lost."""
    state = two_tables(copy(3, mode="append", hold=STOPPED), copy(5), head=5, oldest=4)
    state = delivery.resume_table(state, T, asked=7, sinks=["a"])
    hold = of(state, T).hold
    assert (of(state, T).status, hold and hold.code) == ("held", GAP_CODE)
    state, effects = delivery.persist_idle(state, delivery.taken_up(state))
    assert wave_of(effects).sinks["a"].tables[T].kind == "hold"
    state = commit(state, wave_of(effects))
    assert of(state, T).durable == Version(1, at(3), GAP_CODE, 7)
    assert delivery.resume_table(state, T, asked=7, sinks=["a"]) == state
    assert of(delivery.resume_table(state, T, asked=8, sinks=["a"]), T).status == "unseeded"


def test_history_reaches_back_to_its_oldest_place_and_no_further() -> None:
    """Whoever stands right there goes on: the window behind it is whole. One place before, it is not."""
    state = two_tables(copy(4, mode="append"), copy(3, mode="append"), head=5, oldest=4)
    hold = of(state, U).hold
    assert (of(state, T).status, of(state, T).at) == ("streaming", at(4))
    assert (of(state, U).status, hold and hold.code) == ("held", GAP_CODE)


@pytest.mark.parametrize("code", sorted(SHAPE_CODES | UNTOLD_CODES))
def test_an_append_table_whose_columns_could_not_be_followed_is_read_again(code: str) -> None:
    """Its place can be read, its columns cannot: going on from there it would stop there for ever. So it is
    read whole, whichever request it is."""
    state = two_tables(copy(3, mode="append", hold=Hold(code, "columns")), copy(5), head=5)
    for request in (delivery.resume_table, delivery.copy_again):
        taken = of(request(state, T, asked=7, sinks=["a"]), T)
        assert (taken.status, taken.at, taken.resumed) == ("unseeded", None, 7)


def test_an_append_table_paused_across_a_gap_is_held_for_it() -> None:
    """A pause does not keep history: what expired meanwhile is a gap like any other."""
    state = two_tables(copy(1, mode="append"), copy(5), head=5)
    state = delivery.pause_tables(state, tables=frozenset({T}))
    state = delivery.observe(state, identity="one", oldest=at(3), head=at(5))
    hold = of(state, T).hold
    assert (hold and hold.code, of(state, T).at) == (GAP_CODE, at(1))


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_an_accepted_change_replaces_a_copy_that_stands_at_the_head(mode: Mode) -> None:
    """--accept: the seed ends where the copy stands, yet is a new edition: never already there."""
    wanted = CopySettings(mode, fingerprint="new", accept=True)
    state = recovered({"a": cursor(5, t=copy(5, mode=mode))}, {T: wanted}, head=5)
    state, effects = delivery.start_seed(state, now_ms=0)
    order = wave_of(effects).sinks["a"].tables[T]
    assert (order.expected, order.edition, wave_of(effects).upto_max) == (Version(1, at(5)), 2, at(5))
    leaves = Version(order.edition, at(5))
    asked = TableOrder("replace", mode, ("id",), None, order.expected, leaves)
    assert not asked.is_done(Version(1, at(5)))
    assert asked.is_done(leaves)
    assert of(commit(state, wave_of(effects)), T).durable == leaves


def test_a_place_that_turned_out_unreadable_is_held_with_the_reason() -> None:
    """Though nothing has expired: the message says what was found, and a request reads the table again."""
    state = two_tables(copy(4, mode="append"), copy(4), head=4)
    state = delivery.lost_history(state, ["a"], {T: FAULT, U: FAULT}, at=at(4), now_ms=0)
    assert (of(state, T).hold, of(state, U).status) == (Hold(GAP_CODE, FAULT.message), "unseeded")
    assert of(delivery.resume_table(state, T, asked=1, sinks=["a"]), T).status == "unseeded"


def test_a_copy_that_has_moved_on_has_not_lost_its_place() -> None:
    """The answer of a window that came late speaks of where the copy stood then."""
    state = two_tables(copy(4, mode="append"), copy(4), head=4)
    assert delivery.lost_history(state, ["a"], {T: FAULT, U: FAULT}, at=at(3), now_ms=0).sinks == state.sinks


def test_changed_settings_are_accepted_not_resumed() -> None:
    """A copy of another shape would go on with rows of two shapes."""
    wanted = CopySettings("append", fingerprint="new")
    state = recovered({"a": cursor(5, t=copy(5, mode="append"))}, {T: wanted}, head=6)
    state = delivery.resume_table(state, T, asked=1, sinks=["a"])
    hold = of(state, T).hold
    assert (of(state, T).status, hold and hold.code) == ("held", CHANGED_CODE)


@pytest.mark.parametrize("accept", [False, True])
def test_nothing_streams_into_rows_of_another_shape(accept: bool) -> None:
    """An append table that had to stop, and whose settings were changed: its place can be read, but a request
    replaces it, or holds it for the settings."""
    wanted = CopySettings("append", fingerprint="new", accept=accept)
    state = recovered({"a": cursor(5, t=copy(5, mode="append", hold=STOPPED))}, {T: wanted}, head=6)
    assert of(state, T).hold == STOPPED
    state = delivery.resume_table(state, T, asked=1, sinks=["a"])
    hold = of(state, T).hold
    assert (of(state, T).status, hold and hold.code) == (
        ("unseeded", None) if accept else ("held", CHANGED_CODE)
    )


def test_answers_of_two_orders_come_in_any_order() -> None:
    """The seed committed first, but its answer, with an older row, comes after that of the changes."""
    state = two_tables(copy(1), None, head=4)
    state, effects = delivery.start_seed(state, now_ms=0)
    seed = wave_of(effects)
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(9))
    state, effects = delivery.start_wave(state)
    older = cursor(1, t=copy(1), u=copy(4))
    state = commit(state, wave_of(effects))
    receipt = Receipt("a", seed.sinks["a"].epoch, "applied", cursor=older)
    state, _ = delivery.wave_done(state, seed.id, upto=at(4), receipts=[receipt], now_ms=0)
    assert (places(state), state.sinks["a"].cursor) == ({T: 9, U: 4}, at(9))


def test_the_other_tables_of_a_sink_go_on_while_one_is_seeded() -> None:
    """The seed of U is pinned at the head; meanwhile waves of T start and commit. The answer to one order
    says nothing of the other's table."""
    state = two_tables(copy(1), None, head=4)
    state, effects = delivery.start_seed(state, now_ms=0)
    seed = wave_of(effects)
    state, effects = delivery.start_wave(state)
    state = commit(state, wave_of(effects))
    assert (places(state), of(state, U).wave) == ({T: 4, U: None}, seed.id)
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(9))
    state, effects = delivery.start_wave(state)
    changes = wave_of(effects)
    state = commit(state, seed)
    assert (places(state), of(state, T).wave) == ({T: 4, U: 4}, changes.id)
    state = commit(state, changes)
    assert places(state) == {T: 9, U: 4}
    state, effects = delivery.start_wave(state)
    assert (wave_of(effects).tables, wave_of(effects).after) == ((U,), at(4))


def test_an_answer_tells_of_its_own_copies_only() -> None:
    """The row that a commit of T returns may hold U's seed already; U waits for its own answer."""
    state = two_tables(copy(1), None, head=4)
    state, effects = delivery.start_seed(state, now_ms=0)
    seed = wave_of(effects)
    state, effects = delivery.start_wave(state)
    wave = wave_of(effects)
    seen = cursor(4, t=copy(4), u=copy(4))
    receipt = Receipt("a", wave.sinks["a"].epoch, "applied", cursor=seen)
    state, _ = delivery.wave_done(state, wave.id, upto=at(4), receipts=[receipt], now_ms=0)
    assert (of(state, U).status, of(state, U).wave) == ("unseeded", seed.id)


def test_tables_at_different_places_take_turns_and_meet() -> None:
    """Neither waits for ever: each second window is the laggard's, and it ends where the other stands."""
    state = two_tables(copy(1), copy(40), head=41)
    waves = 0
    while places(state)[T] != places(state)[U]:
        state, effects = delivery.start_wave(state)
        wave = wave_of(effects)
        after = (wave.after or at(0)).place
        assert len(wave.tables) == 1
        state = commit(state, wave, upto=min(after + 5, wave.upto_max.place))
        head = at((state.head or at(0)).place + 1)  # the source never rests
        state = delivery.observe(state, identity="one", oldest=at(0), head=head)
        waves += 1
    assert waves < 30
    assert wave_of(delivery.start_wave(state)[1]).tables == (T, U)


def test_a_failure_beside_a_seed_makes_its_answer_void() -> None:
    """D4: whichever order of a sink fails, the sink is reset, and what was asked before is not heard."""
    state = two_tables(copy(1), None, head=4)
    state, effects = delivery.start_seed(state, now_ms=0)
    seed = wave_of(effects)
    state, effects = delivery.start_wave(state)
    wave = wave_of(effects)
    late = Receipt("a", wave.sinks["a"].epoch, "late", fault=FAULT)
    answer = Receipt("a", seed.sinks["a"].epoch, "applied", cursor=cursor(4, t=copy(1), u=copy(4)))
    state, _ = delivery.wave_done(state, wave.id, upto=at(4), receipts=[late], now_ms=0)
    after, _ = delivery.wave_done(state, seed.id, upto=at(4), receipts=[answer], now_ms=0)
    assert after.sinks == state.sinks


def test_no_second_seed_while_one_may_still_be_at_work() -> None:
    """A seed whose sink was reset goes on in Spark: another one would read everything twice."""
    state = two_tables(copy(1), None, head=4)
    state, effects = delivery.start_seed(state, now_ms=0)
    seed = wave_of(effects)
    state = told(delivery.acquire(state, {"a": 2}), {"a": cursor(1, t=copy(1))})
    assert delivery.start_seed(state, now_ms=0)[1] == []
    state = passed_by(state, seed)
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).tables == (U,)


def test_an_aborted_seed_waits_and_each_time_longer() -> None:
    """What could not be read is not read again at once; changes of other tables do not wait for it."""
    state = two_tables(copy(4), None, head=4)
    now = 0
    for n in range(3):
        state, effects = delivery.start_seed(state, now_ms=now)
        wave = wave_of(effects)
        receipt = Receipt("a", wave.sinks["a"].epoch, "aborted", unread={U: FAULT})
        state, _ = delivery.wave_done(state, wave.id, upto=at(4), receipts=[receipt], now_ms=now)
        due = now + (answers.BACKOFF_FIRST_MS << n)
        assert delivery.start_seed(state, now_ms=due - 1)[1] == []
        now = due
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(5))
    assert wave_of(delivery.start_wave(state)[1]).tables == (T,)


def test_a_place_that_is_lost_again_after_each_seed_is_not_seeded_for_ever() -> None:
    """The first seed starts at once; when its place is lost, too, the next one waits. Changes end the row."""
    state = owned({"a": 1}, head=4)
    state = delivery.lost_history(state, ["a"], {T: FAULT}, at=at(1), now_ms=0)
    state, effects = delivery.start_seed(state, now_ms=0)
    state = commit(state, wave_of(effects))
    state = delivery.lost_history(state, ["a"], {T: FAULT}, at=at(4), now_ms=10)
    assert delivery.start_seed(state, now_ms=10)[1] == []
    state, effects = delivery.start_seed(state, now_ms=10 + answers.BACKOFF_FIRST_MS)
    state = commit(state, wave_of(effects))
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(5))
    state, effects = delivery.start_wave(state)
    assert of(commit(state, wave_of(effects)), T).failures == 0


def test_a_sink_that_said_nothing_is_recovered_apart_from_one_that_refused() -> None:
    """Both are late; until it has told its cursor, the one is waited for by nobody."""
    state = owned({"a": None, "b": None}, head=4)
    state = delivery.acquire(state, {"a": 2, "b": 2})
    state, (first,) = delivery.start_recovery(state, now_ms=0)
    assert isinstance(first, delivery.Recover)
    epochs = {name: epoch for name, (epoch, _) in first.sinks.items()}
    answered = [
        Receipt("a", epochs["a"], "failed", fault=FAULT),
        Receipt("b", epochs["b"], "late", fault=FAULT),
    ]
    state, _ = delivery.recovered(state, answered, now_ms=0)
    lanes: dict[Lane, str] = {"late": "a", "hung": "b"}
    for lane, name in lanes.items():
        after, (effect,) = delivery.start_recovery(state, now_ms=NEVER, lane=lane)
        assert isinstance(effect, delivery.Recover)
        assert (set(effect.sinks), effect.lane) == ({name}, lane)
        epoch, _ = effect.sinks[name]
        after, _ = delivery.recovered(after, [Receipt(name, epoch, "applied", cursor=cursor(None))], now_ms=0)
        assert after.sinks[name].lane == "late"


def test_a_late_sink_is_recovered_and_seeded_apart() -> None:
    """One that hangs at every recovery or seed keeps no punctual one waiting."""
    state = owned({"a": None, "b": None}, head=4)
    state = delivery.acquire(state, {"a": 2, "b": 2})
    state = state.with_sinks({"b": replace(state.sinks["b"], late=True)})
    empty = {"a": cursor(None), "b": cursor(None)}
    both, (punctual,) = delivery.start_recovery(state, now_ms=0)
    assert isinstance(punctual, delivery.Recover)
    assert set(punctual.sinks) == {"a"}
    both, (apart,) = delivery.start_recovery(both, now_ms=0, lane="late")
    assert isinstance(apart, delivery.Recover)
    assert (set(apart.sinks), apart.lane) == ({"b"}, "late")
    state = told(told(state, empty), empty, lane="late")
    state, effects = delivery.start_seed(state, now_ms=0)
    assert (set(wave_of(effects).sinks), wave_of(effects).late) == ({"a"}, False)
    state, effects = delivery.start_seed(state, now_ms=0, late=True)
    assert (set(wave_of(effects).sinks), wave_of(effects).late) == ({"b"}, True)


def test_what_is_persisted_is_what_the_sink_does_not_know() -> None:
    """A place without a commit, a hold in memory; no copy that is durable as it is, and none to be seeded."""
    settings = {name: CopySettings("append") for name in ("main.t", "main.u", "main.v", "main.w")}
    copies = {"t": copy(3, mode="append"), "u": copy(6, mode="append"), "v": copy(9, mode="append")}
    state = recovered({"a": cursor(9, **copies)}, settings, head=9, oldest=5)
    state, effects = delivery.start_wave(state)
    state, effects = delivery.persist_idle(passed_by(state, wave_of(effects)), ["a"])
    wave = wave_of(effects)
    kinds = {name: (one.kind, one.at) for name, one in wave.sinks["a"].tables.items()}
    assert kinds == {"main.t": ("hold", at(3)), "main.u": ("persist", at(9))}
    assert delivery.persist_idle(commit(state, wave), ["a"])[1] == []


def test_a_copy_of_another_source_never_goes_on_by_its_number() -> None:
    """D5: each copy knows the history that its place is of, whatever was seeded beside it since."""
    old, new = copy(4, mode="append", source="before"), replace(copy(6), at=at(6, 2))

    def beside_the_new(known: CopyState) -> Delivery:
        seen = delivery.observe(
            two_tables(known, new, head=6), identity="one", oldest=at(0, 2), head=at(6, 2)
        )
        assert of(seen, U).status == "streaming"
        return seen

    hold = of(beside_the_new(old), T).hold
    assert hold is not None
    assert hold.code == GAP_CODE
    stopped = copy(4, mode="append", source="before", hold=STOPPED)
    state = delivery.resume_table(beside_the_new(stopped), T, asked=1, sinks=["a"])
    hold = of(state, T).hold
    assert (of(state, T).status, hold and hold.code) == ("held", GAP_CODE)


def test_a_table_that_had_to_stop_is_held_where_it_was() -> None:
    """The others of its order went through; both are told by one row."""
    state = two_tables(copy(1), copy(1), head=4)
    state, effects = delivery.start_wave(state)
    wave = wave_of(effects)
    row = committed(state, "a", wave.sinks["a"], at(4))
    stopped = replace(row, copies={**row.copies, T: copy(1, hold=STOPPED)})
    receipt = Receipt("a", wave.sinks["a"].epoch, "applied", cursor=stopped)
    state, _ = delivery.wave_done(state, wave.id, upto=at(4), receipts=[receipt], now_ms=0)
    assert (of(state, T).status, of(state, T).at, of(state, U).at) == ("held", at(1), at(4))


def test_a_sink_that_tells_an_earlier_place_is_not_followed() -> None:
    """D1: what it has committed once, it has. Whoever went back with it would carry changes twice."""
    state, effects = delivery.start_wave(two_tables(copy(2), copy(2), head=4))
    wave = wave_of(effects)
    row = committed(state, "a", wave.sinks["a"], at(4))
    back = replace(row, copies={**row.copies, T: copy(1)})
    receipt = Receipt("a", wave.sinks["a"].epoch, "applied", cursor=back)
    with pytest.raises(AssertionError, match="D1"):
        delivery.wave_done(state, wave.id, upto=at(4), receipts=[receipt], now_ms=0)


def unread(state: Delivery, *tables: str, now_ms: int) -> Delivery:
    """The next wave of changes is aborted: these tables could not be read."""
    state, effects = delivery.start_wave(state, now_ms=now_ms)
    wave = wave_of(effects)
    receipt = Receipt("a", wave.sinks["a"].epoch, "aborted", unread=dict.fromkeys(tables, FAULT))
    return delivery.wave_done(state, wave.id, upto=at(1), receipts=[receipt], now_ms=now_ms)[0]


def test_a_table_that_cannot_be_read_rests_and_the_others_go_on() -> None:
    """The abort names it: it waits, each time longer, and is tried alone; the other table goes on at once and
    to the head, wherever the first one stands. Read again, they go together as before."""
    state = unread(two_tables(copy(1), copy(1), head=5), T, now_ms=0)
    assert (of(state, T).fault, of(state, U).fault) == (FAULT, None)
    state, effects = delivery.start_wave(state, now_ms=0)
    assert (wave_of(effects).tables, wave_of(effects).upto_max) == ((U,), at(5))
    state, now = commit(state, wave_of(effects)), answers.BACKOFF_FIRST_MS
    for n in (1, 2):
        assert delivery.start_wave(state, now_ms=now - 1)[1] == []
        state = unread(state, T, now_ms=now)
        now += answers.BACKOFF_FIRST_MS << n
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(6))
    groups = []
    for _ in range(2):
        state, effects = delivery.start_wave(state, now_ms=now)
        groups.append((wave_of(effects).tables, wave_of(effects).after))
        state = commit(state, wave_of(effects))
    assert sorted(groups) == [((T,), at(1)), ((U,), at(5))]
    assert of(state, T).fault is None
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(7))
    while of(state, T).at != of(state, U).at:
        state, effects = delivery.start_wave(state, now_ms=now)
        state = commit(state, wave_of(effects))
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(8))
    assert wave_of(delivery.start_wave(state, now_ms=now)[1]).tables == (T, U)


def test_whoever_cannot_be_read_is_tried_alone_though_it_stands_with_the_others() -> None:
    """Both stand at one place and the head moves on when the rest is over: they do not share a window."""
    state = unread(two_tables(copy(1), copy(1), head=5), T, now_ms=0)
    state, effects = delivery.start_wave(state, now_ms=NEVER)
    assert wave_of(effects).tables in ((T,), (U,))


def test_seeds_that_can_be_read_do_not_wait_for_one_that_cannot() -> None:
    """Two tables are to be seeded, one of them cannot be read: the other is seeded at once."""
    state, effects = delivery.start_seed(two_tables(None, None, head=4), now_ms=0)
    wave = wave_of(effects)
    assert wave.tables == (T, U)
    receipt = Receipt("a", wave.sinks["a"].epoch, "aborted", unread={T: FAULT})
    state, _ = delivery.wave_done(state, wave.id, upto=at(4), receipts=[receipt], now_ms=0)
    assert wave_of(delivery.start_seed(state, now_ms=0)[1]).tables == (U,)


def test_what_is_told_without_reading_does_not_end_a_rest() -> None:
    """Its place becomes durable meanwhile: nothing was read, so it rests on, for the same reason."""
    state, effects = delivery.start_wave(two_tables(copy(1), copy(1), head=3))
    state = passed_by(state, wave_of(effects))
    state = delivery.observe(state, identity="one", oldest=at(0), head=at(5))
    state = unread(state, T, U, now_ms=0)
    state, effects = delivery.persist_idle(state, ["a"])
    state = commit(state, wave_of(effects))
    assert of(state, T).durable == Version(1, at(3))
    assert of(state, T).fault == FAULT
    assert delivery.start_wave(state, now_ms=0)[1] == []
