"""Honest certificates pass, at every level that files can show."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.verify import issuer
from tests.verify.issuer import CopyOf, World
from truecut_verify.main import main


def verify(*arguments: object) -> int:
    return main([str(one) for one in arguments])


@pytest.mark.parametrize("seed", range(25))
def test_an_honest_life_passes(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mirror, routed mirror and append table; absent values, truncates, new bases, keys that change hands."""
    world = issuer.live(tmp_path, seed)
    assert verify("--json", tmp_path) == 0, capsys.readouterr().out
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "truecut.verify/v1"
    assert told["verdict"] == "pass"
    found = {(one["table"], one["sink"], one["level"]) for one in told["checks"]}
    assert found == {(c.table, c.sink, level) for c in world.copies for level in ("V0", "V1", "V2")}


def test_a_certificate_and_an_archive_are_checked_as_their_folder_is(tmp_path: Path) -> None:
    """One certificate: the chain up to it. An archive: what is inside."""
    issuer.live(tmp_path / "c", 3)
    assert verify(tmp_path / "c" / "0000000004.json") == 0
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for one in sorted((tmp_path / "c").rglob("*")):
            file.write(one, one.relative_to(tmp_path))
    shutil.rmtree(tmp_path / "c")
    assert verify(archive) == 0


def test_a_key_that_is_trusted_speaks_for_the_whole_chain(tmp_path: Path) -> None:
    """Before it by hashes, after it by hand-over; a stranger's key does not."""
    world = World(tmp_path / "c", [CopyOf("main.t", "lake")])
    world.base(world.copies[0], [], upto=1)
    keys = [world.key]
    for _ in range(3):
        world.hand_over = Ed25519PrivateKey.generate()
        keys.append(world.hand_over)
        world.certify()
    for n, key in enumerate([*keys[:3], Ed25519PrivateKey.generate()]):
        (tmp_path / "k.pem").write_bytes(issuer.pem(key))
        assert verify("--public-key", tmp_path / "k.pem", tmp_path / "c") == (0 if n < 3 else 4)


def test_a_thousand_certificates_take_seconds(tmp_path: Path) -> None:
    """V0 to V2 of a long chain, in CPU seconds."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": n, "v": "x"} for n in range(50)], upto=1)
    for n in range(1000):
        change = issuer.Change(n + 2, 0, issuer.UPDATE, {"id": n % 50, "v": str(n)})
        world.changes(copy, [change], upto=n + 2)
        world.certify()
    before = time.process_time()
    assert verify(tmp_path) == 0
    assert time.process_time() - before < 20


def test_many_rows_are_replayed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the rows of one part, and the verdict is the same."""
    issuer.live(tmp_path, 5)
    monkeypatch.setattr("truecut_verify.replay.ROWS_AT_ONCE", 2)
    assert verify(tmp_path) == 0


def test_what_was_trimmed_is_unknown_and_what_is_unknown_is_not_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evidence that is gone, a certificate that does not know, a chain without its beginning: exit code 5."""
    world = World(tmp_path / "c", [CopyOf("main.t", "lake")])
    world.base(world.copies[0], [{"id": 1}], upto=1)
    world.certify()
    world.certify()
    (tmp_path / "c" / "0000000001.json").rename(tmp_path / "first")
    assert verify(tmp_path / "c") == 5
    assert "pass" not in [
        line.split()[2] for line in capsys.readouterr().out.splitlines() if "V2" in line[:5]
    ]
    (tmp_path / "first").rename(tmp_path / "c" / "0000000001.json")
    assert verify(tmp_path / "c") == 0
    world.copies[0].verdict = "unknown"
    world.certify()
    assert verify(tmp_path / "c") == 5
    world.copies[0].verdict = "certified"
    world.certify()
    assert verify(tmp_path / "c") == 0
    (tmp_path / "c" / "evidence" / "000001.parquet").unlink()
    assert verify(tmp_path / "c") == 5


def test_a_replaced_edition_may_be_gone(tmp_path: Path) -> None:
    """What is claimed now rests on the last base."""
    world = World(tmp_path, [CopyOf("main.t", "lake")])
    world.base(world.copies[0], [{"id": 1}], upto=1)
    world.certify()
    world.base(world.copies[0], [{"id": 2}], upto=2)
    world.certify()
    (tmp_path / "evidence" / "000001.parquet").unlink()
    assert verify(tmp_path) == 0


def test_wrong_usage_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing there, or a sink without the secret: exit code 2."""
    assert verify(tmp_path / "nothing") == 2
    assert verify("--sink", "ducklake:x", tmp_path) == 2
    assert "--secret" in capsys.readouterr().err


def test_the_command_is_installed(tmp_path: Path) -> None:
    """`make setup` puts it beside the other one, and it needs nothing of Truecut."""
    issuer.live(tmp_path, 1)
    command = Path(sys.executable).with_name("truecut-verify")
    said = subprocess.run([command, tmp_path], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "verdict: pass" in said.stdout
    assert "not said" in said.stdout


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_certificate_that_says_unknown_is_no_lie(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells a head and not the segments that led there: nothing can be followed from there on, until the
    copy is made anew; a seed beside the rows of an append table is not enough."""
    copy = CopyOf("main.t", "lake", mode=mode)
    world = World(tmp_path, [copy])

    def told() -> list[str]:
        world.certify()
        verify("--json", tmp_path)
        return [one["verdict"] for one in json.loads(capsys.readouterr().out)["checks"]]

    row = {"id": 1, "v": "x"}
    world.base(copy, [row], upto=1)
    assert told() == ["pass", "pass", "pass"]
    copy.verdict = "unknown"
    world.changes(copy, [issuer.Change(2, 0, issuer.UPDATE, row)], upto=2)
    copy.pending = []
    assert told() == ["pass", "unknown", "unknown"]
    copy.verdict = "certified"
    world.changes(copy, [issuer.Change(3, 0, issuer.UPDATE, row)], upto=3)
    assert told() == ["pass", "unknown", "unknown"]
    world.base(copy, [row], upto=4)
    assert told() == ["pass", *(["pass"] * 2 if mode == "mirror" else ["unknown"] * 2)]
    copy.head, copy.rows = bytes(32), {}
    world.base(copy, [row], upto=5)
    assert told() == ["pass", "pass", "pass"]
    world.base(copy, [row], upto=6)
    assert told() == ["pass", "pass", "pass"]
