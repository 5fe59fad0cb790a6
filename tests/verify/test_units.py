"""V2 of a base that was read in units: the decision about the virtual cut, from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.core import cut_life
from tests.proofs import certificates
from tests.proofs.certificates import Certificate
from tests.proofs.test_checker import CHEATS
from tests.verify.issuer import CopyOf, Json, World, position
from tests.verify.spliced import Spliced
from truecut_verify.main import main

# What no file can say: keys are digests there, and a unit's keys those that its evidence puts into it.
OF_KEYS_ORDER = {"its beginning moved", "its end moved"}
ROUTE = bytes(15).hex() + "01"


@pytest.fixture(scope="module")
def lives() -> list[Certificate]:
    """Of the machine's own backfills: with changes in between, and more than one unit."""
    found = (certificates.of(cut_life.run(seed)) for seed in range(40))
    return [one for one in found if len(one.units) > 1 and one.log and len(one.claimed) > 1][:6]


def checks(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Json]]:
    capsys.readouterr()
    code = main(["--json", str(folder)])
    return code, json.loads(capsys.readouterr().out)["checks"]


@pytest.mark.parametrize("route", ["", ROUTE])
def test_what_the_machine_has_read_is_the_cut(
    route: str, lives: list[Certificate], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it, or one route's part of it; said, with the number of units."""
    assert len(lives) == 6
    for n, one in enumerate(lives):
        Spliced(tmp_path / str(n), one, route).certified()
        code, found = checks(tmp_path / str(n), capsys)
        assert code == 0, found
        assert f"its base is the cut of {len(one.units)} units" in found[-1]["detail"]


@pytest.mark.parametrize("cheat", sorted({*CHEATS} - OF_KEYS_ORDER))
def test_what_is_no_cut_fails(
    cheat: str, lives: list[Certificate], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By an issuer who signs it, and whose evidence makes the base that he claims."""
    changed = [other for one in lives if (other := CHEATS[cheat](one)) is not None]
    assert changed
    for n, one in enumerate(changed[:2]):
        if cheat == "rows swapped" and len({row for _, row in one.claimed}) == 1:
            continue
        Spliced(tmp_path / str(n), one).certified()
        code, found = checks(tmp_path / str(n), capsys)
        assert code == 4, (one, found)
        (failed,) = [check for check in found if check["verdict"] == "fail"]
        assert failed["level"] in ("V0", "V2")
        assert failed["detail"]


def _without_a_change(one: Certificate) -> Certificate | None:
    """The last one, where nothing else tells what it did."""
    if not one.log:
        return None
    last = one.log[-1]
    if last.key is None or any(row == (last.key, last.row) for unit in one.units for row in unit.rows):
        return None
    read = {key: row for unit in one.units for key, row in unit.rows}
    earlier = [change.row for change in one.log[:-1] if change.key in (last.key, None)]
    before = earlier[-1] if earlier else read.get(last.key)
    if before == last.row or dict(one.claimed).get(last.key) != last.row:
        return None
    return replace(one, log=one.log[:-1])


def _without_a_claim(one: Certificate) -> Certificate | None:
    """A row that is the cut's."""
    return replace(one, claimed=one.claimed[:-1]) if one.claimed else None


def _without_a_row_read(one: Certificate) -> Certificate | None:
    """One that no change touches, so that only its unit tells it."""
    touched = {change.key for change in one.log}
    for n, unit in enumerate(one.units):
        for row in unit.rows if None not in touched else ():
            if row[0] not in touched:
                left = replace(unit, rows=tuple(other for other in unit.rows if other != row))
                return replace(one, units=(*one.units[:n], left, *one.units[n + 1 :]))
    return None


@pytest.mark.parametrize("wrong", [_without_a_change, _without_a_claim, _without_a_row_read])
def test_a_stale_unit_and_a_wrong_splice_fail(
    wrong: Callable[[Certificate], Certificate | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A change that a snapshot did not see is dropped from the log, or left out of the claim; a row is one of
    another snapshot: each of each kind fails, at V2."""
    changed = (wrong(certificates.of(cut_life.run(seed))) for seed in range(400))
    found = list(islice((one for one in changed if one is not None), 4))
    assert len(found) == 4
    for n, one in enumerate(found):
        Spliced(tmp_path / str(n), one).certified()
        code, told = checks(tmp_path / str(n), capsys)
        assert (code, told[-1]["level"], told[-1]["verdict"]) == (4, "V2", "fail"), one


def test_evidence_of_units_that_is_hurt_fails_and_what_is_gone_is_unknown(
    lives: list[Certificate], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A byte of a unit's file; a unit's file; a change that did not tell the whole row."""
    Spliced(tmp_path / "hurt", lives[0]).certified()
    file = tmp_path / "hurt/evidence/unit0.parquet"
    raw = bytearray(file.read_bytes())
    raw[10] ^= 1
    file.write_bytes(raw)
    code, found = checks(tmp_path / "hurt", capsys)
    assert (code, found[-1]["level"], found[-1]["verdict"]) == (4, "V2", "fail")
    file.unlink()
    code, found = checks(tmp_path / "hurt", capsys)
    assert (code, found[-1]["level"], found[-1]["verdict"]) == (5, "V2", "unknown")
    Spliced(tmp_path / "partial", lives[0], partial=True).certified()
    code, found = checks(tmp_path / "partial", capsys)
    assert (code, found[-1]["level"], found[-1]["verdict"]) == (5, "V2", "unknown")


def test_units_are_of_the_last_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that was made anew before anything was certified: two bases, and the units of the second, which
    were read after the first."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": 1, "v": "before"}], upto=5)
    world.base(copy, [{"id": 1, "v": "now"}], upto=9)
    copy.units = [
        {"low": None, "high": None, "snapshot": "3:3:", "lo": position(6), "hi": position(8), "rows": 1,
         "digest": ""}
    ]  # fmt: skip
    world.certify()
    code, found = checks(tmp_path, capsys)
    assert code == 0, found
    assert "that its 1 units make its base: unknown" in found[-1]["detail"]
