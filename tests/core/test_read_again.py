"""A table is read again: by a request that its copies take up once, and show by a new edition."""

from __future__ import annotations

import pytest

from tests.core.machine import FAULT, T, at, commit, copy, cursor, recovered, told, wave_of
from truecut.core import delivery
from truecut.core.delivery import CHANGED_CODE, GAP_CODE, CopySettings, Delivery
from truecut.model.change import first_of_reading
from truecut.model.cursor import Hold
from truecut.model.order import Receipt
from truecut.model.table import Mode

MIRROR, APPEND = CopySettings("mirror"), CopySettings("append")


def asked(state: Delivery, number: int = 7, *sinks: str) -> Delivery:
    return delivery.copy_again(state, T, asked=number, sinks=sinks or ("a",))


def standing(place: int, settings: CopySettings = MIRROR, *, head: int, hold: Hold | None = None) -> Delivery:
    held = copy(place, mode=settings.mode, hold=hold)
    return recovered({"a": cursor(place, t=held)}, {T: settings}, head=head)


def known(state: Delivery, sink: str = "a") -> delivery.Copy:
    return state.sinks[sink].copies[T]


def test_a_request_is_shown_by_a_new_edition_alone() -> None:
    """AgainIsRead: taken up, a mirror is seeded at the head, whatever it holds; only that seed bears the
    number. Until then nothing that could be made durable shows it."""
    state = asked(standing(3, head=5))
    assert delivery.taken_up(state) == []
    assert delivery.persist_idle(state, ["a"])[1] == []
    assert delivery.start_wave(state)[1] == []
    state, effects = delivery.start_seed(state, now_ms=0)
    order = wave_of(effects).sinks["a"].tables[T]
    assert (wave_of(effects).upto_max, order.kind, order.edition, order.resumed) == (at(5), "replace", 2, 7)
    state = commit(state, wave_of(effects))
    durable = known(state).durable
    assert durable is not None
    assert (durable.at, durable.edition, durable.resumed) == (at(5), 2, 7)


def test_a_request_has_one_effect() -> None:
    """D7: taken up again after a reset, but not once the sink shows it; the next one is another."""
    state = asked(standing(3, head=5))
    state = told(delivery.acquire(state, {"a": 2}), {"a": cursor(3)})
    assert known(state).status == "streaming"
    assert known(asked(state)).status == "unseeded"
    shows = told(delivery.acquire(state, {"a": 3}), {"a": cursor(5, t=copy(5, edition=2, resumed=7))})
    assert known(asked(shows)).status == "streaming"
    assert known(asked(shows, 8)).status == "unseeded"


def test_an_append_table_is_read_at_its_own_place() -> None:
    """AgainMissesNothing: not at the head, or the changes in between would never be told."""
    state, effects = delivery.start_seed(asked(standing(3, APPEND, head=5)), now_ms=0)
    assert wave_of(effects).upto_max == at(3)
    state = commit(state, wave_of(effects))
    _, effects = delivery.start_wave(state)
    assert (wave_of(effects).after, wave_of(effects).upto_max) == (at(3), at(5))


def test_an_append_table_whose_seed_cannot_be_read_goes_on_as_before() -> None:
    """Its place may lie before what was read of the source: it follows the log, and is taken up once more."""
    state, effects = delivery.start_seed(asked(standing(3, APPEND, head=5)), now_ms=0)
    wave = wave_of(effects)
    receipt = Receipt("a", state.sinks["a"].epoch, "aborted", unread={T: FAULT})
    state, _ = delivery.wave_done(state, wave.id, upto=at(3), receipts=[receipt], now_ms=0)
    assert (known(state).status, known(state).at, known(state).resumed) == ("streaming", at(3), 0)
    assert wave_of(delivery.start_wave(state, now_ms=1 << 40)[1]).upto_max == at(5)
    assert known(asked(state)).status == "unseeded"


def test_what_holds_an_append_table_decides_whether_it_can_be_read() -> None:
    """Stopped: it has changes to tell first, so it is resumed first. Behind a gap there are none left: it is
    read at the head. A mirror is repaired in any case."""
    stopped, gap = Hold("TC3024", "it stopped"), Hold(GAP_CODE, "its history is gone")
    assert known(asked(standing(3, APPEND, head=5, hold=stopped))).status == "held"
    assert known(asked(standing(3, APPEND, head=5, hold=stopped))).resumed == 0
    for mode, hold in (("append", gap), ("mirror", stopped), ("mirror", gap)):
        held = standing(3, CopySettings(_mode(mode)), head=5, hold=hold)
        assert wave_of(delivery.start_seed(asked(held), now_ms=0)[1]).upto_max == at(5)


def _mode(name: str) -> Mode:
    return "append" if name == "append" else "mirror"


def test_changed_settings_are_accepted_and_not_asked_for() -> None:
    """Reading again is no leave to replace a copy of another shape."""
    settings = CopySettings("mirror", fingerprint="new")
    state = recovered({"a": cursor(3)}, {T: settings}, head=5)
    assert known(state).hold is not None
    state = asked(state)
    assert (known(state).hold or Hold("", "")).code == CHANGED_CODE


def test_append_tables_share_a_reading_only_if_they_were_read_as_often() -> None:
    """Rows that are read again are numbered by how often: two that share numbers would not be told apart from
    those of an earlier reading at one place."""
    copies = {name: copy(3, mode="append", edition=n) for name, n in (("a", 1), ("b", 2), ("c", 1))}
    cursors = {name: cursor(3, t=one) for name, one in copies.items()}
    state = asked(recovered(cursors, {T: APPEND}, head=3), 7, "a", "b", "c")
    state, effects = delivery.start_seed(state, now_ms=0)
    assert set(wave_of(effects).sinks) == {"a", "c"}
    assert set(wave_of(delivery.start_seed(state, now_ms=0)[1]).sinks) == {"b"}


def test_only_the_sinks_that_are_meant_take_it_up() -> None:
    """For one sink if wanted: the others go on as they are."""
    state = recovered({"a": cursor(3), "b": cursor(3)}, {T: MIRROR}, head=5)
    state = asked(state, 7, "b")
    assert (known(state, "a").status, known(state, "b").status) == ("streaming", "unseeded")


def test_the_rows_of_each_reading_have_numbers_of_their_own() -> None:
    """Beyond those of a lake's tables, whose ids leave room; each with room for its rows,
    and in the order in which the table was read."""
    firsts = [first_of_reading(reading, first=9) for reading in (1, 2, 3, (1 << 16) - 1)]
    assert firsts[0] == 9
    assert firsts == sorted(firsts)
    assert firsts[2] - firsts[1] == 1 << 46
    assert firsts[1] > 1 << 62
    assert firsts[-1] + (1 << 46) <= 1 << 63
    with pytest.raises(AssertionError):
        first_of_reading(1 << 16, first=9)
