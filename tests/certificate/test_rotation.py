"""Another key signs: by a hand-over that an auditor can follow, whatever stops it in between."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.certificate.test_words import PIPELINE
from truecut.certificate.chain import canonical
from truecut.certificate.issue import Issued, certificate_paths, issue, last_issued
from truecut.certificate.sign import NEXT, PUBLIC, SIGNING, key_hash, private_pem, signer
from truecut.cli.certificate import command
from truecut.errors import TruecutError
from truecut.failpoint import HANDING_OVER
from truecut.runtime.certificate_files import examined
from truecut_verify.main import main as verify

UNKNOWN = {
    "table": "main.t", "sink": "lake", "mode": "mirror", "route": None, "scope": "id\nmain.t",
    "key": canonical(["id"]), "columns": canonical([["id", 1, "int"]]), "edition": 1,
    "at": "00000001-0000000000000001", "source_at": "", "verdict": "unknown", "reason": "no evidence",
    "rows": 0, "root": None, "evidence": "", "segments": "[]", "units": "[]", "sink_version": "",
}  # fmt: skip


def certify(folder: Path) -> Issued:
    """One more, by whatever key the folder has."""
    done = issue(
        folder,
        signer(folder),
        before=last_issued(folder),
        pipeline="shop",
        source={"type": "ducklake", "identity": "id"},
        captured=False,
        copies=[UNKNOWN],
        issued_at="2026-01-01T00:00:00Z",
    )
    assert done is not None
    return done


def test_a_number_is_used_once(tmp_path: Path) -> None:
    """Two who have read the same last certificate: the first one's is there, and stays as it is."""
    before = certify(tmp_path)
    told = {"pipeline": "shop", "source": {"type": "ducklake", "identity": "id"}, "captured": False}
    first, second = (
        issue(tmp_path, signer(tmp_path), before=before, copies=[UNKNOWN], issued_at=at, **told)  # type: ignore[arg-type]
        for at in ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z")
    )
    assert first is not None
    assert second is None
    assert last_issued(tmp_path).document == first.document


def made(folder: Path) -> Path:
    """A pipeline with one certificate."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.yaml").write_text(PIPELINE)
    certify(folder / "certificates")
    return folder / "shop.yaml"


def verdict(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    verify([*more, str(folder / "certificates")])
    return capsys.readouterr().out


def v0(folder: Path) -> tuple[str, str]:
    """What `truecut verify --level files` says of the chain: verdict, and why."""
    (found,) = [check for check in examined(folder / "certificates") if check.level == "V0"]
    return found.verdict, found.detail


def test_a_chain_under_the_key_of_somebody_else_fails(tmp_path: Path) -> None:
    """The pipeline's own key is beside its certificates: a chain that was made anew under another one, with
    its public half in the folder, is not ours. Nor is one that ends by handing over to our key."""
    made(tmp_path / "ours")
    folder = tmp_path / "ours" / "certificates"
    verdict, why = v0(tmp_path / "ours")
    assert (verdict, "the key that was given" in why) == ("pass", True)
    made(tmp_path / "theirs")
    for file in (tmp_path / "theirs" / "certificates").rglob("*"):
        if file.is_file() and file.name != SIGNING:
            (folder / file.relative_to(tmp_path / "theirs" / "certificates")).write_bytes(file.read_bytes())
    assert v0(tmp_path / "ours") == ("fail", "none of them is signed by the public key that was given")


def test_a_key_that_has_signed_nothing_yet_speaks_for_nothing(tmp_path: Path) -> None:
    """From a hand-over until the next certificate nobody knows; then the new key speaks for all."""
    file, folder = made(tmp_path), tmp_path / "certificates"
    assert CliRunner().invoke(command, ["rotate", str(file)]).exit_code == 0
    assert v0(tmp_path)[0] == "unknown"
    certify(folder)
    assert v0(tmp_path)[0] == "pass"
    (folder / SIGNING).unlink()  # kept elsewhere: the certificates' own key, and it is said
    verdict, why = v0(tmp_path)
    assert (verdict, "a key that came with them" in why) == ("pass", True)


def test_the_chain_goes_on_under_another_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three keys, one chain: the first public key speaks for all of them."""
    file, folder = made(tmp_path), tmp_path / "certificates"
    (tmp_path / "first.pem").write_bytes((folder / PUBLIC).read_bytes())
    given = Ed25519PrivateKey.generate()
    (tmp_path / "given.pem").write_bytes(private_pem(given))
    for arguments in (["rotate", str(file)], ["rotate", str(file), "--key", str(tmp_path / "given.pem")]):
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        certify(folder)
    assert signer(folder).public_hash == key_hash(given)
    assert (folder / PUBLIC).read_text().count("BEGIN PUBLIC KEY") == 3
    assert stat.S_IMODE((folder / SIGNING).stat().st_mode) == 0o600
    assert not (folder / NEXT).exists()
    told = verdict(tmp_path, capsys, "--public-key", str(tmp_path / "first.pem"))
    assert "V0 pass" in told
    assert "5 certificates, signed by the key that was given" in told


def test_a_key_without_a_hand_over_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By whoever would sign with it, and by the verifier if somebody did."""
    made(tmp_path)
    folder = tmp_path / "certificates"
    (folder / SIGNING).write_bytes(private_pem(Ed25519PrivateKey.generate()))
    with pytest.raises(TruecutError) as caught:
        certify(folder)
    assert caught.value.fault.code == "TC7002"
    hidden = certificate_paths(folder)[0]
    hidden.rename(tmp_path / hidden.name)
    foreign = signer(folder)
    (tmp_path / hidden.name).rename(hidden)
    issue(
        folder,
        foreign,
        before=last_issued(folder),
        pipeline="shop",
        source={"type": "ducklake", "identity": "id"},
        captured=False,
        copies=[UNKNOWN],
        issued_at="",
    )
    assert "not handed over to [certificate 2]" in verdict(tmp_path, capsys)


@pytest.mark.parametrize("where", ["copies_kept", "certificate_kept", *sorted(HANDING_OVER)])
def test_a_stop_at_any_step_leaves_a_key_that_signs(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the hand-over is signed it is the old one, afterwards the new one."""
    file, folder = made(tmp_path), tmp_path / "certificates"
    old = signer(folder).public_hash
    monkeypatch.setenv("TRUECUT_FAILPOINT", f"{where}:error")
    with pytest.raises(OSError, match=where):
        CliRunner().invoke(command, ["rotate", str(file)], catch_exceptions=False)
    monkeypatch.delenv("TRUECUT_FAILPOINT")
    handed_over = "next_key" in last_issued(folder).document
    assert handed_over == (where in ("certificate_kept", "key_handed_over"))
    certify(folder)
    assert (signer(folder).public_hash != old) == handed_over
    assert "V0 pass" in verdict(tmp_path, capsys)


def test_a_run_that_begins_meanwhile_may_finish_the_hand_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts looks for what was begun; whoever began it finds it done."""
    file, folder = made(tmp_path), tmp_path / "certificates"

    def meanwhile(name: str) -> None:
        if name == "key_handed_over":
            signer(folder)

    monkeypatch.setattr("truecut.runtime.rotation.failpoint", meanwhile)
    done = CliRunner().invoke(command, ["rotate", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    certify(folder)
    assert "V0 pass" in verdict(tmp_path, capsys)


def test_what_cannot_be_handed_over_to_is_said(tmp_path: Path) -> None:
    """No certificate yet, no key, the same key: nothing has changed afterwards."""
    (tmp_path / "shop.yaml").write_text(PIPELINE)
    (tmp_path / "none.pem").write_text("nothing")
    for arguments in (["shop.yaml"], ["shop.yaml", "--key", "none.pem"]):
        paths = [str(tmp_path / one) if "." in one else one for one in arguments]
        done = CliRunner().invoke(command, ["rotate", *paths])
        assert isinstance(done.exception, TruecutError)
        assert done.exception.fault.code == "TC7007"
    made(tmp_path)
    own = str(tmp_path / "certificates" / SIGNING)
    done = CliRunner().invoke(command, ["rotate", str(tmp_path / "shop.yaml"), "--key", own])
    assert isinstance(done.exception, TruecutError)
    assert "signs already" in done.exception.fault.message
    assert last_issued(tmp_path / "certificates").number == 1


def test_a_key_that_somebody_put_there_is_closed_to_others(tmp_path: Path) -> None:
    """Key and secret may be given before the first run."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    key = Ed25519PrivateKey.generate()
    (folder / SIGNING).write_bytes(private_pem(key))
    (folder / SIGNING).chmod(0o644)
    assert signer(folder).public_hash == key_hash(key)
    assert stat.S_IMODE((folder / SIGNING).stat().st_mode) == 0o600
