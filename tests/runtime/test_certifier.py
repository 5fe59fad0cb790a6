"""What a run certifies, and what it does when the folder of its certificates is hurt."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.simulation.pipeline import drawn_pipeline
from truecut.certificate.folding import Claim, Folding, ledger_path
from truecut.certificate.issue import Issued, certificate_paths
from truecut.certificate.segment import SECRET, Wanted
from truecut.certificate.sign import SIGNING, signer
from truecut.config.secret import Secret
from truecut.config.settings import CertificateSettings, Pipeline, SinkSettings, copy_fingerprint
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.cursor import CopyState, Cursor
from truecut.model.order import Receipt
from truecut.runtime.background import Background
from truecut.runtime.certifier import Certifier, Shown
from truecut.runtime.runner import CERTIFY_TRIES, Runner
from truecut.runtime.timetable import Timetable
from truecut.sinks.postgres.address import PostgresAddress
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
    pipeline = replace(
        drawn,
        tables=(table, drawn.tables[1]),
        certificate=CertificateSettings(folder, 1_000),
        control=Secret(str(folder / "control.db")),
    )

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


def test_where_a_sink_keeps_a_table_is_told(tmp_path: Path) -> None:
    """A PostgreSQL with a schema of its own has it under another name, and whoever reads it must know; where
    the name is the source's, none is told."""
    for name, schema in ((None, None), ("shop.t", "shop")):
        (tmp_path / str(schema)).mkdir()
        run = bench(tmp_path / str(schema))
        sink = replace(run.sink, type="postgres", address=PostgresAddress(Secret("dbname=target"), schema))
        run.pipeline = replace(run.pipeline, sinks=(sink, *run.pipeline.sinks[1:]))
        run.certifier._pipeline = run.pipeline
        issued = run.issue(run.today)
        assert issued is not None
        assert issued.copies[TABLE, sink.name]["called"] == name


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
        _wait_while=lambda busy, patience_ms: Runner._wait_while(ending, busy, patience_ms),
    )
    certifier._moved, certifier.tend = True, tend  # type: ignore[method-assign]
    Runner._certify_the_end(ending)
    assert len(tries) == CERTIFY_TRIES


def test_what_was_not_issued_is_tried_again(tmp_path: Path) -> None:
    """Whether it could not be, or somebody else was at it: what was shown is told by the next one."""
    run = bench(tmp_path)
    certifier, asked = run.certifier, list[Any]()
    certifier._background = SimpleNamespace(submit=lambda *one: asked.append(one))  # type: ignore[assignment]
    told = shown(run, copy_of(run, edition=1, at=3))[run.sink.name].cursor
    certifier.heard([Receipt(run.sink.name, 1, "applied", told)])
    fault = Fault("TC7006", "the folder is hurt", "Restore it.", Retry.RETRYABLE)
    answers: list[Callable[[Any], Any]] = [
        lambda one: one[2](fault),
        lambda one: one[1](None),
        lambda one: one[1](one[0]()),
    ]
    for answer in answers:
        assert certifier.unsettled
        certifier.tend(often_ms=0)
        certifier.tend(often_ms=0)
        (one,) = asked
        asked.clear()
        answer(one)
    assert not certifier.unsettled
    assert (certifier.faults, certifier.last.number) == (1, 1)


# --- copies that are made anew, and those of another source ------------------------------------------------


def copy_of(
    run: Bench, *, edition: int, at: int, source: str = "source-1", evidence: str = "00", sink: int = 0
) -> CopyState:
    settings = run.pipeline.sinks[sink]
    return CopyState(
        settings.modes[TABLE],
        "7",
        ITEMS.columns,
        fingerprint=copy_fingerprint(run.pipeline.tables[0], settings),
        at=position(at),
        edition=edition,
        source_identity=source,
        evidence=evidence * 32,
    )


def shown(run: Bench, copy: CopyState, certificate: str = "", sink: int = 0) -> dict[str, Shown]:
    cursor = Cursor(copy.at, 1, {TABLE: copy}, certificate)
    return {run.pipeline.sinks[sink].name: Shown(cursor, "")}


def test_a_sink_that_was_lost_has_another_claim(tmp_path: Path) -> None:
    """It counts its editions anew, and carries a certificate that claims more; an older look does not."""
    run = bench(tmp_path)
    name = (TABLE, run.sink.name)
    first = run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=3)))
    assert first is not None
    second = run.certifier._issue_next(shown(run, copy_of(run, edition=4, at=5), first.digest))
    assert second is not None
    stale = run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=4), first.digest))
    assert stale is not None
    assert stale.number == second.number
    there = copy_of(run, edition=1, at=6, sink=1)
    other = run.certifier._issue_next(shown(run, there, first.digest, sink=1))
    assert other is not None
    assert other.number > second.number
    anew = run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=7), second.digest))
    assert anew is not None
    assert (anew.copies[name]["edition"], anew.copies[name]["at"]) == (1, str(position(7)))


def test_copies_that_are_no_more_are_not_claimed(tmp_path: Path) -> None:
    """Of a sink that the pipeline has no more, the next certificate says nothing."""
    run = bench(tmp_path)
    both = {
        **shown(run, copy_of(run, edition=1, at=3)),
        **shown(run, copy_of(run, edition=1, at=3, sink=1), sink=1),
    }
    names = [sink.name for sink in run.pipeline.sinks[:2]]
    issued = run.certifier._issue_next(both)
    assert issued is not None
    assert set(issued.copies) == {(TABLE, name) for name in names}
    run.certifier.revised(replace(run.pipeline, sinks=run.pipeline.sinks[:1]), names[1:])
    issued = run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=4)))
    assert issued is not None
    assert set(issued.copies) == {(TABLE, names[0])}


def test_a_certificate_is_of_one_source(tmp_path: Path) -> None:
    """A source takes another's place, and copies are made anew one after the other: the certificate names the
    later one. Whatever still is of the other goes on as it was, and begins nothing."""
    run = bench(tmp_path)
    one, other = (sink.name for sink in run.pipeline.sinks[:2])
    old, new = copy_of(run, edition=1, at=3), copy_of(run, edition=2, at=9, source="source-2")
    there = copy_of(run, edition=1, at=3, sink=1)
    issued = run.certifier._issue_next(shown(run, new) | shown(run, there, sink=1))
    assert issued is not None
    assert issued.document["source"]["identity"] == "source-2"
    assert set(issued.copies) == {(TABLE, one)}
    run = bench(tmp_path / "second")
    run.certifier._issue_next(shown(run, old) | shown(run, there, sink=1))
    later = replace(there, at=position(4))
    issued = run.certifier._issue_next(shown(run, new) | shown(run, later, sink=1))
    assert issued is not None
    assert issued.document["source"]["identity"] == "source-2"
    assert issued.copies[TABLE, other]["at"] == str(position(4))
    again = run.certifier._issue_next(shown(run, new) | shown(run, replace(there, at=position(5)), sink=1))
    assert again is not None
    assert again.document["source"]["identity"] == "source-2"


def test_a_head_that_was_not_told_is_not_named(tmp_path: Path) -> None:
    """The next certificate tells the segments from where the last one that could has ended."""
    run = bench(tmp_path)
    asked: list[str] = []
    answers = iter([False, True, False])

    def fold(foldings: Sequence[Folding]) -> list[Claim]:
        asked.extend(one.target.since for one in foldings)
        return [
            Claim("unknown", "why", 0, None, (), True)
            if next(answers)
            else Claim("certified", "", 0, bytes(32), ())
        ]

    run.certifier._fold = fold
    for at, evidence in ((1, "01"), (2, "02"), (3, "03")):
        run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=at, evidence=evidence)))
    assert asked == ["", "01" * 32, "01" * 32]


def test_a_run_lets_old_certificates_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pipeline file says how long they are kept; a folder that does not let them is told."""
    told: list[str] = []
    monkeypatch.setattr("truecut.runtime.certifier.tell_fault", lambda log, fault: told.append(fault.code))
    run = bench(tmp_path)
    ledger = ledger_path(tmp_path, sink=run.sink.name, table=TABLE)
    ledger.parent.mkdir()
    ledger.touch()

    def issued(at: int, keep_ms: int | None) -> list[int]:
        run.certifier._settings = CertificateSettings(tmp_path, 1_000, keep_ms)
        done = run.certifier._issue_next(shown(run, copy_of(run, edition=1, at=at)))
        assert done is not None
        return [int(path.stem) for path in certificate_paths(tmp_path)]

    assert [issued(at, None) for at in (1, 2, 3)][-1] == [1, 2, 3]
    assert issued(4, 3_600_000) == [1, 2, 3, 4]
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(Certifier, "_kept_until", lambda certifier: in_an_hour)
    assert issued(5, 1) == [4, 5]
    assert told == []
    monkeypatch.setattr("truecut.certificate.retention.trim", _closed)
    assert issued(6, 1) == [4, 5, 6]
    assert told == ["TC7010"]


def _closed(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_copy_that_cannot_be_certified_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with every certificate; again for another reason, and once it was certified meanwhile."""
    certifier = bench(tmp_path).certifier
    row = {"table": TABLE, "sink": "s", "verdict": "unknown", "reason": "one", "segments": "[1]"}
    history: tuple[tuple[dict[str, str], int], ...] = (
        ({}, 1),
        ({}, 1),
        ({"reason": "two"}, 2),
        ({"verdict": "certified", "reason": ""}, 2),
        ({"reason": "two"}, 3),
    )
    for more, told in history:
        certifier._issued(replace(Issued(), copies={(TABLE, "s"): {**row, **more}}), datetime.now(UTC))
        assert caplog.text.count("cannot be certified") == told
