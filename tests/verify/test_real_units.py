"""Certificates of a PostgreSQL's table that was read in units: the verifier decides the real cut again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.certificate.test_schema import violated
from tests.postgres_server import PostgresServer
from tests.verify.issuer import Json
from tests.verify.read_in_units import Seeded, T, certified, signed_again
from truecut.certificate.issue import with_units
from truecut.certificate.words import page, shown
from truecut_verify.main import main

Units = list[dict[str, Any]]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Seeded]:
    with certified(tmp_path_factory.mktemp("real_units"), postgres.create_database("real_units")) as made:
        yield made


def checks(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], Json]:
    """By sink and level; one that fails early has no more."""
    capsys.readouterr()
    main(["--json", str(folder)])
    found = json.loads(capsys.readouterr().out)["checks"]
    return {(one["sink"], one["level"]): one for one in found}


def test_the_cut_of_real_units_is_decided_again(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    """V0 to V2 pass; of the mirror and of one tenant's part the units are decided, of the append table the
    word says that they are not. Ranges go from no bound to no bound, and show no key."""
    issued = seeded.issued()
    found = checks(seeded.folder, capsys)
    assert {one["verdict"] for one in found.values()} == {"pass"}, found
    units: Units = json.loads(issued.copies[T, "all"]["units"])
    assert len(units) > 4
    for sink in ("all", "acme"):
        assert f"its base is the cut of {len(units)} units" in found[sink, "V2"]["detail"]
        assert json.loads(issued.copies[T, sink]["units"]) == units
    assert f"that its {len(units)} units make its base: unknown" in found["log", "V2"]["detail"]
    assert (units[0]["low"], units[-1]["high"]) == (None, None)
    assert all(one["high"] == two["low"] for one, two in pairwise(units))
    assert all(len(one["high"]) == 32 for one in units[:-1])
    assert sum(one["rows"] for one in units) > 350
    assert len({one["snapshot"] for one in units}) > 2
    assert len(max(seeded.folder.glob("*.json")).read_bytes()) <= 2048
    assert violated(seeded.folder) == []
    assert {sink: row["route_by"] for (_, sink), row in issued.copies.items()} == {
        "all": None, "acme": "tenant", "log": None,
    }  # fmt: skip


def dropped(units: Units) -> None:
    del units[2]


def overlapping(units: Units) -> None:
    units[2]["low"] = units[1]["low"]


def end_moved(units: Units) -> None:
    units[-1]["high"] = units[-1]["low"]


def read_later(units: Units) -> None:
    units[1]["hi"] = units[1]["hi"][:9] + "F" * 16


def count_changed(units: Units) -> None:
    units[1]["rows"] += 1


def digest_changed(units: Units) -> None:
    units[1]["digest"] = f"{int(units[1]['digest'], 16) ^ 1:032x}"


def stale_rows(units: Units) -> None:
    """Rows that are older than the snapshot under which they are said to be read."""
    units[0] |= {name: units[-1][name] for name in ("snapshot", "lo", "hi")}


def snapshot_of_another(units: Units) -> None:
    units[0]["snapshot"] = units[-1]["snapshot"]


CHEATS: dict[str, tuple[Callable[[Units], None], str]] = {
    one.__name__: (one, level)
    for level, cheats in (
        ("V0", (dropped, overlapping, end_moved, read_later)),
        ("V2", (count_changed, digest_changed, stale_rows, snapshot_of_another)),
    )
    for one in cheats
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_on_a_real_certificate_fails(
    cheat: str, seeded: Seeded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By an issuer who signs it. Each at its level, of that copy; the others pass."""
    shutil.copytree(seeded.folder, tmp_path / "certificates")
    change, level = CHEATS[cheat]
    signed_again(tmp_path / "certificates", change)
    found = checks(tmp_path / "certificates", capsys)
    assert (found["all", "V0"]["verdict"] == "fail") == (level == "V0"), found
    assert found["all", level]["verdict"] == "fail", found
    assert found["acme", "V2"]["verdict"] == "pass", found


def test_later_certificates_show_the_units(
    seeded: Seeded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stand in the certificate that told the base, once; what is shown of a later one has them, too, in
    words and on the page, and the verifier decides them all the same."""
    folder = tmp_path / "certificates"
    shutil.copytree(seeded.folder, folder)
    first, last = seeded.issued(), seeded.goes_on(folder)
    assert (last.number, {row["units"] for row in last.copies.values()}) == (2, {"[]"})
    found = with_units(folder, last)
    assert {key: row["units"] for key, row in found.copies.items()} == {
        key: row["units"] for key, row in first.copies.items()
    }
    count = len(json.loads(found.copies[T, "all"]["units"]))
    assert "\n".join(shown(found)).count(f"  {count} units of ") == 3
    assert page(found, certificates=2).count("<rect ") == 3 * count
    decided = f"its base is the cut of {count} units"
    assert decided in checks(folder, capsys)["all", "V2"]["detail"]


def test_evidence_of_units_goes_with_its_copy(
    seeded: Seeded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each copy has names of its own for the files that all share: what one loses the others keep; what is
    trimmed is gone, and its verdict unknown."""
    folder = tmp_path / "certificates"
    shutil.copytree(seeded.folder, folder)
    for path in folder.glob("evidence/acme*/*.piece.parquet"):
        path.unlink()
    found = checks(folder, capsys)
    assert (found["all", "V2"]["verdict"], found["acme", "V2"]["verdict"]) == ("pass", "unknown")
    seeded.goes_on(folder)
    seeded.goes_on(folder, by=2, keep_ms=0)
    assert list(folder.glob("evidence/*/*")) == []
    found = checks(folder, capsys)
    assert {one["verdict"] for (_, level), one in found.items() if level == "V2"} == {"unknown"}
