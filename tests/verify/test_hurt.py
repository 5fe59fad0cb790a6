"""Faults in the pipeline itself: whatever goes wrong on the way to a sink, verification finds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.verify import hurt
from tests.verify.hurt import Fault, Life
from tests.verify.issuer import Json
from truecut.sinks.passage import Passage
from truecut_verify import digest as plain
from truecut_verify.main import main

REFUSED = {"duplicate", "a row of a unit twice", "wrong splice"}  # the sinks themselves notice


def verdicts(
    life: Life, sinks: Iterable[str], capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, Json]]:
    """By sink and level."""
    capsys.readouterr()
    main(life.arguments(sinks))
    found: dict[str, dict[str, Json]] = {}
    for check in json.loads(capsys.readouterr().out)["checks"]:
        found.setdefault(check["sink"], {})[check["level"]] = check
    return found


def check_life(
    seed: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(folder, seed)
    with monkeypatch.context() as patched:
        patched.setattr(Passage, "watched", hurt.hurt_passage(life.faults))
        last = life.live()[-1]
    refused = {sink for sink, fault in life.faults.items() if fault.name in REFUSED}
    assert set(last.stragglers) == refused
    passed = [sink for sink in life.faults if sink not in refused]
    found = verdicts(life, ["honest", "log", *passed], capsys)
    assert {level: one["verdict"] for level, one in found["honest"].items()} == dict.fromkeys(
        ("V0", "V1", "V2", "V4", "V5"), "pass"
    )
    assert {one["verdict"] for level, one in found["log"].items() if level != "V4"} == {"pass"}
    for sink in passed:
        check_found(folder, life.faults[sink], found[sink])


def check_found(folder: Path, fault: Fault, checks: dict[str, Json]) -> None:
    """At the right level, with the right key where its value can be known."""
    failed = {level: one for level, one in checks.items() if one["verdict"] == "fail"}
    told = (fault.name, fault.locus, fault.keys, checks)
    assert fault.is_done, told
    level = "V4" if fault.locus == "reading" else "V5"
    assert set(failed) == {level}, told
    assert failed[level]["missing"] + failed[level]["extra"] + failed[level]["differs"] == 1, told
    witness = failed[level]["witness"]
    (count,) = [what for what in ("missing", "extra", "differs") if failed[level][what]]
    assert witness["at_sink"] == count, told
    assert witness["key_digest"] in {key_digest(folder, key) for key in fault.keys}, told
    if count != "missing":  # of a row that is not there only its digest is known
        assert {witness["key"]["id"]} == fault.keys, told


def key_digest(folder: Path, key: int) -> str:
    """As the page says it, of the key of a row."""
    last = max(folder.glob("certificates/[0-9]*.json"))
    copies = folder / "certificates" / json.loads(last.read_bytes())["copies"]["file"]
    scope = pq.read_table(copies).column("scope")[0].as_py()
    secret = (folder / "certificates" / "secret").read_bytes()
    table = plain.Table(scope, [("id", "int")], [])
    return plain.key_digest(secret, table, {"id": pa.scalar(key, pa.int64())}).hex()


def test_no_fault_on_the_way_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each at a sink of its own, before evidence is gathered and after; two sinks are served honestly and
    pass. What is told twice is held by the sinks themselves: nothing is claimed of it."""
    check_life(1, tmp_path, capsys, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_no_fault_of_hundreds_passes(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """420 random runs."""
    check_life(seed, tmp_path, capsys, monkeypatch)
