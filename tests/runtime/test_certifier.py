"""What a run certifies, and what it does when the folder of its certificates is hurt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.simulation.pipeline import drawn_pipeline
from truecut.certificate.folding import Claim, Folding
from truecut.certificate.issue import Issued
from truecut.certificate.segment import SECRET, Wanted
from truecut.certificate.sign import SIGNING, signer
from truecut.config.settings import CertificateSettings, Pipeline, SinkSettings, copy_fingerprint
from truecut.errors import TruecutError
from truecut.model.cursor import CopyState, Cursor
from truecut.runtime.background import Background
from truecut.runtime.certifier import Certifier, Shown
from truecut.runtime.runner import CERTIFY_TRIES, Runner
from truecut.runtime.timetable import Timetable
from truecut.spark.wave.apply import _segments
from truecut.testing.orders import ITEMS, order, position, seed

TABLE = "main.t"


@dataclass
class Bench:
    """A run that issues certificates of one sink."""

    pipeline: Pipeline
    certifier: Certifier

    @property
    def sink(self) -> SinkSettings:
        return self.pipeline.sinks[0]

    def issue(self, fingerprint: str) -> Issued | None:
        """Of a copy that was shaped by settings with this fingerprint."""
        copy = CopyState(
            self.sink.modes[TABLE],
            "7",
            ITEMS.columns,
            fingerprint=fingerprint,
            at=position(3),
            edition=1,
            source_identity="source-1",
            evidence="00" * 32,
        )
        cursor = Cursor(position(3), 1, {TABLE: copy})
        return self.certifier._issue_next({self.sink.name: Shown(cursor, "")})

    @property
    def today(self) -> str:
        return copy_fingerprint(self.pipeline.tables[0], self.sink)


def bench(folder: Path) -> Bench:
    drawn = drawn_pipeline(random.Random(1), folder, brisk=True)
    table = replace(drawn.tables[0], key=("value", "id"))
    pipeline = replace(drawn, tables=(table, drawn.tables[1]), certificate=CertificateSettings(folder, 1_000))

    def fold(foldings: Sequence[Folding]) -> list[Claim]:
        return [Claim("certified", "", 0, bytes(32), ()) for _ in foldings]

    return Bench(pipeline, Certifier(pipeline, fold, Background(), Timetable(), runner="r"))


def test_a_copy_of_other_settings_is_not_certified(tmp_path: Path) -> None:
    """Its route, key and mode are not those that the file names today."""
    run = bench(tmp_path)
    before = run.issue("of another route")
    assert before is not None
    assert before.number == 0
    issued = run.issue(run.today)
    assert issued is not None
    assert issued.copies[TABLE, run.sink.name]["at"] == str(position(3))


def test_a_key_is_told_in_its_one_order(tmp_path: Path) -> None:
    """However the pipeline file names its columns: the fingerprint is the same, so must digests be."""
    run = bench(tmp_path)
    mirror = replace(run.sink, modes={**run.sink.modes, TABLE: "mirror"})
    run.pipeline = replace(run.pipeline, sinks=(mirror, *run.pipeline.sinks[1:]))
    run.certifier._pipeline = run.pipeline
    issued = run.issue(run.today)
    assert issued is not None
    assert issued.copies[TABLE, run.sink.name]["key"] == '["id","value"]'


def test_a_hurt_folder_is_told_and_nothing_else_stops(tmp_path: Path) -> None:
    """The run starts; whenever a certificate is due it is told again; once it is mended one is issued."""
    bench(tmp_path).issue(bench(tmp_path).today)
    first = tmp_path / "0000000001.json"
    whole = first.read_bytes()
    first.write_bytes(whole[:50])
    run = bench(tmp_path)
    assert run.certifier.digest == ""
    with pytest.raises(TruecutError) as caught:
        run.issue(run.today)
    assert caught.value.fault.code == "TC7006"
    assert not (tmp_path / "0000000002.json").exists()
    first.write_bytes(whole)
    again = run.issue(run.today)
    assert again is not None
    assert again.number == 1  # nothing has moved since


@pytest.mark.parametrize("name", [SECRET, SIGNING])
def test_a_lost_key_is_not_made_again(tmp_path: Path, name: str) -> None:
    """While there are certificates: neither where it is gone, nor where another one stands in its place."""
    run = bench(tmp_path)
    run.issue(run.today)
    own = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    with pytest.raises(TruecutError) as caught:
        signer(tmp_path)
    assert caught.value.fault.code == "TC7002"
    assert "restore" in caught.value.fault.fix
    assert not (tmp_path / name).exists()
    signer(tmp_path / "other")
    (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(TruecutError, match="TC7002"):
        signer(tmp_path)
    (tmp_path / name).write_bytes(own)
    signer(tmp_path)


def test_a_folder_that_is_gone_is_a_fault_of_the_order(tmp_path: Path) -> None:
    """It is tried again; nothing was written."""
    with pytest.raises(TruecutError) as caught:
        _segments(Wanted(str(tmp_path / "gone"), leaves_out=False), order(None, 1, t=seed()))
    assert caught.value.fault.code == "TC7001"


def test_the_end_of_a_run_does_not_wait_for_what_cannot_be_issued(tmp_path: Path) -> None:
    """A few tries that come to nothing are enough: the next run issues it."""
    run = bench(tmp_path)
    run.issue(run.today)
    (tmp_path / "0000000001.json").write_bytes(b"{")
    certifier, ticks = run.certifier, iter(range(0, 1_000_000, 100))
    tries: list[int | None] = []

    def tend(*, often_ms: int | None = None) -> None:
        tries.append(often_ms)
        with pytest.raises(TruecutError) as caught:
            run.issue(run.today)
        certifier._failed(caught.value.fault)

    ending: Any = SimpleNamespace(
        _certifier=certifier,
        _pipeline=run.pipeline,
        _clock=SimpleNamespace(now_ms=lambda: next(ticks)),
        _background=SimpleNamespace(take_answers=lambda *, wait_s: None),
        _leases=SimpleNamespace(tend=lambda runner, *, claim: None),
        _view=SimpleNamespace(runner="r"),
    )
    certifier._moved, certifier.tend = True, tend  # type: ignore[method-assign]
    Runner._certify_the_end(ending)
    assert len(tries) == CERTIFY_TRIES
