"""Old certificates and their evidence go by a rule: what is left is one chain, and unknown is never pass."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.certificate.lives import SCOPE, Life
from truecut.certificate import retention
from truecut.certificate.base_pieces import PIECE
from truecut.certificate.chain import canonical
from truecut.certificate.folding import LEDGERS, Folding, Target, ledger_path
from truecut.certificate.issue import Issued, certificate_paths, issue, last_issued, told_of
from truecut.certificate.segment import columns_text
from truecut.certificate.sign import signer
from truecut.certificate.words import page, shown
from truecut.failpoint import TRIMMING
from truecut.testing.orders import NOTED, position
from truecut_verify.main import main as verify

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = [["id", 1, "int"], ["value", 2, "text"], ["note", 3, "text"]]


@dataclass
class Chain:
    """A copy with a certificate a day, all of which are younger than `keep_days` when the next is issued."""

    folder: Path
    keep_days: int | None = None
    day: int = 0
    life: Life = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.life = Life(self.folder, random.Random(1))
        self.life.seed()

    @property
    def until(self) -> datetime:
        return BEGUN + timedelta(days=self.day - (self.keep_days or 1_000))

    def certify(self) -> Issued:
        """As a run does it; files are as old as the day on which they were written."""
        self.day += 1
        before = last_issued(self.folder)
        kept_from = retention.kept_from(self.folder, before, until=self.until)
        issued = issue(
            self.folder,
            signer(self.folder),
            before=before,
            pipeline="shop",
            source={"type": "ducklake", "identity": "source-1"},
            captured=False,
            copies=[self.row(before)],
            issued_at=(BEGUN + timedelta(days=self.day)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            kept_from=kept_from,
        )
        assert issued is not None
        written_s = (BEGUN + timedelta(days=self.day)).timestamp()
        for path in self.folder.rglob("*"):
            if path.is_file() and path.stat().st_mtime > written_s:
                os.utime(path, (written_s, written_s))
        return issued

    def row(self, before: Issued) -> dict[str, Any]:
        known = before.copies.get(("main.t", "acme"))
        since = "" if known is None else known["evidence"]
        at, head = str(position(self.life.place)), self.life.head
        columns = columns_text(NOTED.columns)
        target = Target("main.t", "acme", "mirror", self.life.edition, at, head, columns, since)
        claim = Folding(str(self.folder), target).run()
        return {
            "table": "main.t", "sink": "acme", "mode": "mirror", "route": None, "scope": SCOPE,
            "key": canonical(["id"]), "columns": canonical(COLUMNS), "edition": self.life.edition, "at": at,
            "source_at": "", "verdict": claim.verdict, "reason": claim.reason, "rows": claim.rows,
            "root": claim.root, "evidence": since if claim.untold else head,
            "segments": canonical(list(claim.segments)), "units": "[]", "sink_version": "",
        }  # fmt: skip

    def days(self, count: int) -> Issued:
        for _ in range(count):
            self.life.window()
            issued = self.certify()
            retention.trim(self.folder, issued, until=self.until)
        return issued

    def verdicts(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        capsys.readouterr()
        verify(["--json", str(self.folder)])
        return [one["verdict"] for one in json.loads(capsys.readouterr().out)["checks"]]

    def numbers(self) -> list[int]:
        return [int(path.stem) for path in certificate_paths(self.folder)]

    def evidence(self) -> int:
        """Segments; the base was written by several tasks, whose files stand beside its own."""
        return len(list(self.folder.glob("evidence/*/*.parquet"))) - len(self.pieces())

    def pieces(self) -> list[Path]:
        return list(self.folder.glob(f"evidence/*/*{PIECE}"))


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    signer(tmp_path / "c")
    return Chain(tmp_path / "c", keep_days=4)


def test_what_is_left_is_a_chain_and_the_copy_stays_certified(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old certificates, claims and evidence are gone; the next says so; replay from a base that is gone is
    unknown, and known again from the next base on."""
    issued = chain.days(12)
    first = issued.document["kept_from"]
    assert chain.numbers() == list(range(first, 13))
    assert 3 <= 13 - first <= 5
    assert (chain.evidence(), chain.pieces()) == (13 - first, [])
    assert len(list(chain.folder.glob("copies/*"))) == 13 - first
    assert issued.copies["main.t", "acme"]["root"] == chain.life.root()
    assert told_of(chain.folder, issued.digest)
    assert told_of(chain.folder, issued.document["previous"])
    assert told_of(chain.folder, "0" * 64) is None  # it may have been among those that are gone
    assert chain.verdicts(capsys) == ["pass", "unknown", "unknown"]
    assert f"certificate {first}" in "\n".join(shown(issued))
    assert f"certificate {first}" in page(issued, certificates=4)
    verify([str(chain.folder)])
    assert "trimmed" in capsys.readouterr().out
    chain.life.seed()
    assert chain.certify().copies["main.t", "acme"]["verdict"] == "certified"
    assert chain.verdicts(capsys) == ["pass", "pass", "pass"]


def test_without_the_rule_nothing_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However old it is; a certificate that is not there was never one of this chain."""
    signer(tmp_path / "c")
    chain = Chain(tmp_path / "c")
    assert "kept_from" not in chain.days(12).document
    assert (chain.numbers(), chain.evidence()) == (list(range(1, 13)), 13)
    assert chain.pieces()
    assert told_of(chain.folder, "0" * 64) is False
    assert chain.verdicts(capsys) == ["pass", "pass", "pass"]


@pytest.mark.parametrize("hurt", ["behind", "lost"])
def test_what_a_ledger_still_needs_stays(chain: Chain, hurt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could not be folded for long, one that is gone: afterwards it is made of what was kept."""
    chain.days(2)
    path = ledger_path(chain.folder, sink="acme", table="main.t")
    if hurt == "lost":
        for _ in range(10):
            chain.day += 1
            path.unlink(missing_ok=True)
            assert retention.kept_from(chain.folder, last_issued(chain.folder), until=chain.until) == 1
    else:
        with monkeypatch.context() as context:
            context.setattr("truecut.certificate.ledger.Ledger.fold", _full)
            assert chain.days(10).copies["main.t", "acme"]["verdict"] == "unknown"
        assert chain.numbers()[0] == 1
    claim = chain.days(1).copies["main.t", "acme"]
    assert (claim["verdict"], claim["root"]) == ("certified", chain.life.root())


def _full(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("where", sorted(TRIMMING))
def test_a_stop_leaves_what_the_next_time_removes(
    where: str, chain: Chain, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between the chain is whole: nothing fails."""
    chain.keep_days = None
    chain.days(9)
    chain.keep_days = 4
    chain.life.window()
    issued = chain.certify()
    left = chain.evidence()
    for _ in range(3):
        with monkeypatch.context() as context:
            context.setenv("TRUECUT_FAILPOINT", f"{where}:error")
            with pytest.raises(OSError, match=where):
                retention.trim(chain.folder, issued, until=chain.until)
        assert "fail" not in chain.verdicts(capsys)
        assert chain.verdicts(capsys)[0] == "pass"
    retention.trim(chain.folder, issued, until=chain.until)
    first = issued.document["kept_from"]
    assert chain.numbers() == list(range(first, 11))
    assert chain.evidence() == left - first
    assert len(list(chain.folder.glob("copies/*"))) == 11 - first


def test_ledgers_of_copies_that_are_no_more_go_when_they_are_old(chain: Chain) -> None:
    """And what writers that were stopped have left; nothing of today, and nothing that is somebody's own."""
    issued = chain.days(6)
    old, young = (ledger_path(chain.folder, sink=sink, table="main.t") for sink in ("gone", "left"))
    theirs = chain.folder / LEDGERS / "sales.duckdb", chain.folder / "copies" / "00.parquet"
    unfinished = chain.folder / "copies" / "x.unfinished"
    for path in (old, young, unfinished, *theirs):
        path.write_bytes(b"")
    for path in (old, unfinished, *theirs):
        os.utime(path, (0, 0))
    mine = ledger_path(chain.folder, sink="acme", table="main.t")
    os.utime(mine, (0, 0))
    retention.trim(chain.folder, issued, until=chain.until)
    assert sorted((chain.folder / LEDGERS).iterdir()) == sorted([mine, young, theirs[0]])
    assert theirs[1].exists()
    assert not unfinished.exists()


def test_a_certificate_keeps_what_it_must(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    """The one before it at least, and no fewer than the one before it has kept."""
    issued = chain.days(12)
    for lie in (issued.number + 1, 2):
        document = {**issued.document, "kept_from": lie}
        del document["signature"]
        document["signature"] = signer(chain.folder).signature(canonical(document))
        (chain.folder / f"{issued.number:010d}.json").write_text(canonical(document) + "\n")
        assert chain.verdicts(capsys) == ["fail"]
