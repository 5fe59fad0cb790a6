"""What is kept of verifications, and when a run begins one."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.runtime.simulation.pipeline import drawn_pipeline
from tests.runtime.views import view_of
from truecut.certificate import belongings
from truecut.certificate.issue import Issued, issue
from truecut.certificate.sign import signer
from truecut.config.secret import Secret
from truecut.config.settings import CertificateSettings, Level, Pipeline, VerifySettings
from truecut.model.position import Position
from truecut.runtime.background import Background
from truecut.runtime.certificate_lease import VERIFICATION, alone
from truecut.runtime.checked import Checked
from truecut.runtime.health import complaints
from truecut.runtime.timetable import Clock, Timetable
from truecut.runtime.verified import Results, Verified, keep, kept_of, read, taken_in
from truecut.runtime.verifier import Verifier, Verify, remember
from truecut.serving.frontiers import Frontiers
from truecut.serving.metrics import RunMetrics

A, B = ("main.t", "a"), ("main.t", "b")


def check(key: tuple[str, str], verdict: str, *, level: str = "V5", at: int = 7) -> Checked:
    told = {"pass": "7 rows", "fail": "1 of 7 rows is not the source's", "unknown": "it was never copied"}
    return Checked(*key, verdict, told[verdict], Position(1, at), level=level)  # type: ignore[arg-type]


def found(before: Results, *checks: Checked, at_ms: int) -> Results:
    return taken_in(before, checks, level="sink", wanted=[A, B], at_ms=at_ms)


def test_only_a_pass_renews_how_far_a_copy_was_verified() -> None:
    """Unknown leaves the last pass as old as it was, and a failure stays one until a pass; what fails in the
    certificates as a whole fails every copy; a copy of which nothing was said is not one that passes."""
    first = found({}, check(A, "pass", level="V4", at=5), check(A, "pass"), at_ms=1_000)
    assert (first[A].verdict, first[A].upto, first[A].passed_at_ms) == ("pass", str(Position(1, 5)), 1_000)
    assert (first[B].verdict, first[B].upto, first[B].passed_at_ms) == ("unknown", None, None)
    assert (first[A].detail, first[B].detail) == ("", "no certificate tells of it yet")
    doubted = found(first, check(A, "pass", level="V4"), check(A, "unknown"), at_ms=2_000)
    assert doubted[A] == replace(
        first[A], verdict="unknown", detail="V5: it was never copied", checked_at_ms=2_000
    )
    chain = Checked("", "", "fail", "two certificates have one number", level="V0")
    wrong = found(doubted, chain, check(A, "pass"), check(B, "pass"), at_ms=3_000)
    assert {(one.verdict, one.failed) for one in wrong.values()} == {("fail", "sink")}
    assert (wrong[A].upto, wrong[A].passed_at_ms) == (str(Position(1, 5)), 1_000)
    still = found(wrong, check(A, "unknown"), check(B, "pass"), at_ms=4_000)
    assert [(still[key].verdict, still[key].failed) for key in (A, B)] == [
        ("unknown", "sink"),
        ("pass", None),
    ]
    files = [check(key, "pass", level="V2") for key in (A, B)]
    less = taken_in(still, files, level="files", wanted=[A, B], at_ms=4_500)
    assert (less[A].verdict, less[A].failed) == ("pass", "sink")  # of less than what has failed
    healed = found(still, check(A, "pass", at=9), check(B, "pass"), at_ms=5_000)
    assert (healed[A].failed, healed[A].upto, healed[A].passed_at_ms) == (None, str(Position(1, 9)), 5_000)


def test_what_is_kept_is_read_again_and_goes_with_the_proof(tmp_path: Path) -> None:
    """Whole; a hurt file is none; and it is Truecut's own, by name."""
    results = found({}, check(A, "pass"), check(B, "fail"), at_ms=1_000)
    keep(tmp_path, results)
    assert read(tmp_path) == results
    kept = tmp_path / belongings.VERIFIED
    kept.write_bytes(kept.read_bytes()[:-9])
    assert read(tmp_path) == {}
    belongings.remove(tmp_path)
    assert not tmp_path.exists()


def test_a_copy_that_was_found_wrong_is_not_well(tmp_path: Path) -> None:
    """Not for `status --max-lag`, not for /readyz; metrics tell the verdict and the age of the last pass."""
    wrong = found(found({}, check(A, "pass"), at_ms=1_000), check(A, "fail"), at_ms=2_000)[A]
    copy = {"table": A[0], "sink": A[1], "state": "streaming", "error": None}
    for one, said in ((wrong, ["main.t at sink a does not pass verification"]), (None, [])):
        told = {**copy, "verification": None if one is None else one.document()}
        assert complaints({"copies": [told], "sinks": []}, lag_max_ms=1) == said
    view = view_of(tmp_path, {"copy": {}})
    frontiers = Frontiers(0)
    frontiers.update(view, now_ms=1)
    assert frontiers.stuck(now_ms=1) == []
    view.verified = {A: wrong}
    frontiers.update(view, now_ms=2)
    assert frontiers.stuck(now_ms=2) == ["main.t at sink a (verification)"]
    metrics = RunMetrics("p")
    metrics.view = view
    page = metrics.text().decode()
    labels = 'pipeline="p",sink="a",table="main.t"'
    assert f'truecut_verification{{{labels},verdict="fail"}} 1.0' in page
    assert f'truecut_verification{{{labels},verdict="pass"}} 0.0' in page
    assert f"truecut_verified_age_seconds{{{labels}}}" in page


class Moved(Clock):
    """A clock that a test moves."""

    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


class Bench:
    """A run that verifies every minute, and what its verifications find."""

    def __init__(self, folder: Path) -> None:
        drawn = drawn_pipeline(random.Random(1), folder, brisk=True)
        settings = CertificateSettings(folder, 1_000, verify=VerifySettings("sink", 60_000))
        control = Secret(str(folder / "control.db"))
        self.pipeline: Pipeline = replace(drawn, certificate=settings, control=control)
        self.copies = sorted((t, sink.name) for sink in drawn.sinks for t in sink.modes)
        self.folder, self.clock, self.background = folder, Moved(), Background()
        self.verdicts: Iterator[str] = iter(())
        self.looks: list[Level] = []
        self.verifier = self.another("r")

    def another(self, name: str, verify: Verify | None = None) -> Verifier:
        times = Timetable(self.clock)
        return Verifier(self.pipeline, verify or self._verify, self.background, times, runner=name)

    def _verify(self, level: Level, _: Event) -> list[Checked]:
        self.looks.append(level)
        verdict = next(self.verdicts)
        return [check(key, verdict) for key in self.copies]

    def issue(self) -> None:
        row = {"table": "main.t", "sink": "a", "at": ""}
        issue(
            self.folder,
            signer(self.folder),
            before=Issued(),
            pipeline="p",
            source={"type": "ducklake", "identity": "i"},
            captured=False,
            copies=[row],
            issued_at="2026-01-01T00:00:00Z",
        )

    def turn(self, verifier: Verifier | None = None) -> Results:
        """Time for another look, and its answer."""
        one = verifier or self.verifier
        self.clock.ms += 10_000
        one.tend()
        while one.busy:
            self.background.take_answers(wait_s=0.01)
        return one.last


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.background.close()


def test_a_run_verifies_after_the_interval_whoever_did_it_last(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before there is a certificate; then once in an interval, in whichever run; what was found is kept,
    and told: a failure as an error with its code, table and sink."""
    bench.verdicts = iter(["pass", "fail"])
    assert (bench.turn(), bench.looks) == ({}, [])
    bench.issue()
    assert {one.verdict for one in bench.turn().values()} == {"pass"}
    assert sorted(kept_of(bench.pipeline)) == bench.copies
    other = bench.another("s")
    for _ in range(5):
        assert bench.turn(other) == kept_of(bench.pipeline)
    assert len(bench.looks) == 1
    with caplog.at_level(logging.INFO):
        assert {one.verdict for one in bench.turn(other).values()} == {"fail"}
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert sorted((record.facts.table, record.facts.sink) for record in told) == bench.copies  # type: ignore[attr-defined]
    assert {record.facts.code for record in told} == {"TC7060"}  # type: ignore[attr-defined]
    assert bench.turn() == kept_of(bench.pipeline)  # the first run has heard of it
    assert bench.looks == ["sink", "sink"]


def test_one_at_a_time_verifies(bench: Bench) -> None:
    """While another run is at it nothing is begun; afterwards it is."""
    bench.issue()
    bench.verdicts = iter(["pass"])
    with alone(bench.pipeline, "another", lease=VERIFICATION) as is_ours:
        assert is_ours is not None
        assert (bench.turn(), bench.looks) == ({}, [])
    assert {one.verdict for one in bench.turn().values()} == {"pass"}


def test_a_look_that_breaks_is_tried_again(bench: Bench) -> None:
    """It changes nothing of what is known."""
    bench.issue()

    def broken(_: Level, __: Event) -> list[Checked]:
        raise OSError("gone")

    verifier = bench.another("s", broken)
    assert bench.turn(verifier) == {}
    bench.verdicts = iter(["pass"])
    verifier.revised(bench.pipeline, bench._verify)
    assert {one.verdict for one in bench.turn(verifier).values()} == {"pass"}
    assert isinstance(next(iter(kept_of(bench.pipeline).values())), Verified)


def test_what_somebody_asked_for_is_kept_beside_a_run(bench: Bench) -> None:
    """A repair that passes takes back what a run has found wrong; while a run is at it, its own counts."""
    bench.issue()
    bench.verdicts = iter(["fail"])
    assert {one.failed for one in bench.turn().values()} == {"sink"}
    first = bench.copies[0]
    passed = [check(first, "pass")]

    def keep_it() -> set[tuple[str, str]]:
        remember(bench.pipeline, passed, level="sink", wanted=[first], runner="v", at_ms=bench.clock.ms)
        return {key for key, one in kept_of(bench.pipeline).items() if one.failed is None}

    with alone(bench.pipeline, "another", lease=VERIFICATION):
        assert keep_it() == set()
    assert keep_it() == {first}
