"""The checker that was extracted from the proof, and the machine: what one does the other one accepts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core import cut_life
from tests.proofs import certificates
from tests.proofs.certificates import Certificate, Part
from truecut.core.visibility import Snapshot

LIVES = 300
Cheat = Callable[[Certificate], Certificate | None]


@pytest.fixture(scope="module")
def honest() -> list[Certificate]:
    """Of backfills that have ended."""
    return [certificates.of(cut_life.run(seed)) for seed in range(LIVES)]


def verdicts(built: Path, ones: Iterable[Certificate]) -> list[str]:
    """What the checker says of each."""
    text = "".join(f"{line}\n" for one in ones for line in certificates.lines(one))
    said = subprocess.run([built / "verdicts"], input=text, capture_output=True, text=True, check=True)
    return said.stdout.split()


def test_what_the_machine_has_done_is_accepted(built: Path, honest: list[Certificate]) -> None:
    """Units, brackets and snapshots of core/cut.py are evidence enough for the checker; also where snapshots
    are no place of the log, with subtransactions, TRUNCATE and several editions."""
    assert verdicts(built, honest) == ["accepted"] * LIVES
    assert sum(any(part.lo < part.hi for part in one.units) for one in honest) > LIVES / 20
    assert sum(bool(one.parents) for one in honest) > LIVES / 4
    assert sum(any(change.key is None for change in one.log) for one in honest) > LIVES / 20


def _first(one: Certificate, part: Part) -> Certificate:
    return replace(one, units=(part, *one.units[1:]))


def _last(one: Certificate, part: Part) -> Certificate:
    return replace(one, units=(*one.units[:-1], part))


# What must not pass; None where there is nothing to cheat with.
CHEATS: dict[str, Cheat] = {
    "a row changed": lambda one: (
        replace(one, claimed=((one.claimed[0][0], b"other"), *one.claimed[1:])) if one.claimed else None
    ),
    "a row deleted": lambda one: replace(one, claimed=one.claimed[1:]) if one.claimed else None,
    "a row added": lambda one: replace(one, claimed=(*one.claimed, (b"\xff", b"beyond the largest key"))),
    "a row twice": lambda one: replace(one, claimed=(*one.claimed, one.claimed[-1])) if one.claimed else None,
    "rows swapped": lambda one: (
        replace(one, claimed=tuple(zip(*_swapped(one), strict=True))) if len(one.claimed) > 1 else None
    ),
    "no units": lambda one: replace(one, units=()),
    "the first unit dropped": lambda one: replace(one, units=one.units[1:]),
    "the last unit dropped": lambda one: replace(one, units=one.units[:-1]),
    "a unit twice": lambda one: replace(one, units=(one.units[0], *one.units)),
    "units reordered": lambda one: replace(one, units=one.units[::-1]) if len(one.units) > 1 else None,
    "its beginning moved": lambda one: _first(one, replace(one.units[0], low=b"\x00")),
    "its end moved": lambda one: _last(one, replace(one.units[-1], high=b"\xff")),
    "hi before lo": lambda one: (
        _first(one, replace(one.units[0], hi=one.units[0].lo - 1)) if one.units[0].lo else None
    ),
    "hi after the frontier": lambda one: _first(one, replace(one.units[0], hi=one.frontier + 1)),
    "lo before the log": lambda one: (
        _first(one, replace(one.units[0], lo=one.start - 1)) if one.start else None
    ),
    "a snapshot that sees nothing": lambda one: _first(one, replace(one.units[0], snapshot=Snapshot(1, 1))),
    "a frontier before the log's end": lambda one: (
        replace(one, frontier=one.log[-1].place - 1) if one.log else None
    ),
    "a log from before its start": lambda one: replace(one, start=one.log[0].place) if one.log else None,
    "the log reordered": lambda one: (
        replace(one, log=one.log[::-1]) if len({change.place for change in one.log}) > 1 else None
    ),
}


def _swapped(one: Certificate) -> tuple[list[bytes], list[bytes]]:
    keys, rows = [key for key, _ in one.claimed], [row for _, row in one.claimed]
    return keys, [*rows[1:], rows[0]]


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_is_accepted(cheat: str, built: Path, honest: list[Certificate]) -> None:
    """What an honest certificate is changed to, is refused."""
    changed = [one for one in map(CHEATS[cheat], honest) if one is not None]
    assert len(changed) > LIVES / 10
    assert verdicts(built, changed) == ["refused"] * len(changed)


@pytest.mark.parametrize(
    "text", ["log 1", "frontier x\nend\n", "row =61 =61\nend\n", "unit\nend\n", "frontier 1\n"]
)
def test_what_cannot_be_read_has_no_verdict(text: str, built: Path) -> None:
    """Garbage is neither accepted nor refused: the program fails."""
    said = subprocess.run([built / "verdicts"], input=text, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert said.stdout == ""
