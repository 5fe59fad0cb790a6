"""Parts of a seed: whether they are the whole, whether their keys differ, whose a place is. Pure."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecut.errors import TruecutError
from truecut.sinks import parts
from truecut.sinks.parts import KeySpan, Part, StagedPlace, StagedTable
from truecut.testing.orders import order, seed

ORDER = order(None, 9, token=0x1F, t=seed())


@given(st.lists(st.integers(0, 5)), st.integers(0, 5))
def test_parts_are_the_whole_or_are_refused(pieces: list[int], wanted: int) -> None:
    """Each piece once, and no other."""
    told = [Part(piece) for piece in pieces]
    if sorted(pieces) == list(range(wanted)):
        assert parts.checked(ORDER, told, pieces=wanted) == told
        return
    with pytest.raises(TruecutError) as refused:
        parts.checked(ORDER, told, pieces=wanted)
    assert refused.value.fault.code == "TC4161"


def test_parts_have_every_row_that_was_read() -> None:
    """Fewer or more than were routed, or rows of a table that nobody told of, are refused; of a table that
    stops nobody asks."""
    place = StagedPlace("f", 3, 0, KeySpan(True))
    told = [Part(0, {"main.t": StagedTable((place,))}), Part(1, {"main.t": StagedTable((place, place))})]
    parts.counted(ORDER, told, {"main.t": 9}, ())
    parts.counted(ORDER, told, {"main.t": 10}, ("main.t",))
    parts.counted(ORDER, [Part(0)], {}, ())
    for routed in ({"main.t": 8}, {"main.t": 10}, {}):
        with pytest.raises(TruecutError) as refused:
            parts.counted(ORDER, told, routed, ())
        assert refused.value.fault.code == "TC5081"


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=1, max_size=5), max_size=5))
def test_spans_say_that_keys_differ_only_where_they_do(pieces: list[list[int | None]]) -> None:
    """Never wrongly so; and where whole pieces lie one behind another, they do say it."""
    spans = [_span(keys) for keys in pieces]
    every = [key for keys in pieces for key in keys]
    if parts.keys_differ(spans):
        assert None not in every
        assert len(set(every)) == len(every)
    ascending = [key for keys in pieces for key in keys if key is not None]
    if ascending == sorted(set(ascending)) and None not in every:
        assert parts.keys_differ(spans)


def _span(keys: list[int | None]) -> KeySpan:
    known = [key for key in keys if key is not None]
    if not known:
        return KeySpan(clean=False)
    return KeySpan(len(set(keys)) == len(keys) == len(known), min(known), max(known))


def test_spans_without_bounds_say_nothing_but_alone() -> None:
    """One place whose keys differ is enough; of two nobody knows."""
    assert parts.keys_differ([KeySpan(clean=True)])
    assert not parts.keys_differ([KeySpan(clean=True), KeySpan(clean=True)])
    assert parts.keys_differ([KeySpan(True, "a", "b"), KeySpan(True, "é", "ü")])
    assert parts.keys_differ([])


def test_a_place_is_over_with_its_owner_or_its_seed() -> None:
    """Of a newer owner, or of a later seed of the same one, it is not; nor is anybody else's."""
    first, other = parts.family_of("p", "acme", "main.t"), parts.family_of("p", "acme", "main.u")
    name = parts.place_name(first, ORDER, "main.t", piece=12, nonce="abcdef01-0")
    assert len(name) <= 63
    over = {
        (token, edition)
        for token, edition in itertools.product((0x1E, 0x1F, 0x20), (0, 1, 2))
        if parts.is_over(name, first, token=token, edition=edition)
    }
    assert over == {(0x1F, 1), (0x1F, 2), (0x20, 0), (0x20, 1), (0x20, 2)}
    assert parts.is_over(name, parts.family("p", "acme"), token=0x20, edition=-1)
    assert not parts.is_over(name, parts.family("p", "acm"), token=0x20, edition=9)
    assert not parts.is_over(name, other, token=0x20, edition=9)
    assert not parts.is_over(f"{first}-ours", first, token=0x20, edition=9)


def test_so_many_keys_are_compared_in_shares() -> None:
    """None of which is more than fits."""
    assert [parts.passes(rows) for rows in (0, 1, parts.KEYS_AT_ONCE, parts.KEYS_AT_ONCE + 1)] == [1, 1, 1, 2]
