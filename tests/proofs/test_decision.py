"""Two decisions about a virtual cut: the verifier's, and that of the checker extracted from the proof."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core import cut_life
from tests.proofs import certificates
from tests.proofs.certificates import Certificate, Change, Part
from tests.proofs.test_checker import CHEATS, verdicts
from truecut.core.visibility import Snapshot
from truecut_verify import cut


def evidence(one: Certificate) -> cut.Evidence:
    """In the verifier's words."""
    return cut.Evidence(
        one.start,
        _snapshot(one.before),
        one.frontier,
        [cut.ReadUnit(u.low, u.high, u.lo, u.hi, _snapshot(u.snapshot), u.rows) for u in one.units],
        [cut.Change(c.place, c.xid, c.key, c.row) for c in one.log],
        _first(one.parents),
        one.claimed,
    )


def _snapshot(one: Snapshot) -> cut.Snapshot:
    return cut.Snapshot(one.xmax, frozenset(one.xip))


def _first(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The checker takes the first of two that speak of one id."""
    found: dict[int, int] = {}
    for sub, top in pairs:
        found.setdefault(sub, top)
    return found


# --- small certificates by chance: most laws are met or broken by one --------------------------------------


def mutants(one: Certificate, chance: random.Random, count: int) -> Iterator[Certificate]:
    """With one to three things changed, anywhere."""
    for _ in range(count):
        changed = one
        for _ in range(chance.randrange(1, 4)):
            changed = _mutated(changed, chance)
        yield changed


def _mutated(one: Certificate, chance: random.Random) -> Certificate:
    part = chance.choice(["start", "frontier", "before", "units", "log", "parents", "claimed", "cheat"])
    if part == "cheat":
        return CHEATS[chance.choice(list(CHEATS))](one) or one if one.units else one
    value: Any = getattr(one, part)
    if part in ("start", "frontier"):
        changed: Certificate = _with(one, part, _nudged(value, chance))
        return changed
    if part == "before":
        return replace(one, before=_other_snapshot(value, chance))
    other: Certificate = _with(one, part, _shuffled(value, chance))
    return other


def _with(one: Any, field: str, value: Any) -> Any:
    return replace(one, **{field: value})


def _nudged(value: int, chance: random.Random) -> int:
    return max(0, value + chance.choice([-2, -1, 1, 2]))


def _other_snapshot(one: Snapshot, chance: random.Random) -> Snapshot:
    xmax = max(1, _nudged(one.xmax, chance)) if chance.random() < 0.5 else one.xmax
    running = set(one.xip) ^ {chance.randrange(max(1, xmax - 6), xmax + 2)}
    xip = frozenset(xid for xid in running if xid < xmax)
    return Snapshot(min(xip, default=xmax), xmax, xip)


def _shuffled(values: tuple[Any, ...], chance: random.Random) -> tuple[Any, ...]:
    if not values:
        return values
    found = list(values)
    n = chance.randrange(len(found))
    match chance.choice(["drop", "twice", "swap", "change"]):
        case "drop":
            del found[n]
        case "twice":
            found.insert(n, found[n])
        case "swap":
            other = chance.randrange(len(found))
            found[n], found[other] = found[other], found[n]
        case "change":
            found[n] = _other(found[n], chance)
    return tuple(found)


def _other(value: Any, chance: random.Random) -> Any:
    key = chance.choice([None, *(bytes([n]) for n in range(9))])
    options: list[tuple[str, Any]]
    if isinstance(value, Change):
        options = [("place", _nudged(value.place, chance)), ("xid", _nudged(value.xid, chance)), ("key", key)]
        return _with(value, *chance.choice([*options, ("row", chance.choice([None, b"x"]))]))
    if isinstance(value, Part):
        options = [("lo", _nudged(value.lo, chance)), ("hi", _nudged(value.hi, chance)), ("low", key)]
        options += [("high", key), ("rows", _shuffled(value.rows, chance))]
        return _with(value, *chance.choice([*options, ("snapshot", _other_snapshot(value.snapshot, chance))]))
    if isinstance(value[0], bytes):
        return chance.choice([(value[0], b"x"), (key or b"", value[1])])
    return chance.choice([(value[0], _nudged(value[1], chance)), (_nudged(value[0], chance), value[1])])


def agree(built: Path, seeds: range, each: int) -> tuple[int, int]:
    """How many were accepted and refused, by both alike."""
    ones = []
    for seed in seeds:
        honest = certificates.of(cut_life.run(seed))
        ones += [honest, *mutants(honest, random.Random(seed), each)]
    ours = ["accepted" if cut.decide(evidence(one)) is None else "refused" for one in ones]
    theirs = verdicts(built, ones)
    differ = [n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    assert not differ, (ours[differ[0]], ones[differ[0]], cut.decide(evidence(ones[differ[0]])))
    return ours.count("accepted"), ours.count("refused")


def test_both_decide_alike(built: Path) -> None:
    """Of 1,000 certificates, good and mutated; enough of either."""
    accepted, refused = agree(built, range(1000, 1100), 9)
    assert accepted + refused == 1000
    assert min(accepted, refused) > 150


@pytest.mark.soak
def test_both_decide_alike_of_many(built: Path) -> None:
    """100,000."""
    for start in range(2000, 6000, 250):
        agree(built, range(start, start + 250), 24)
