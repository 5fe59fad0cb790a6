"""The checker that was extracted from the proof, and a PostgreSQL's real backfill: what was certified of it
is accepted, and what would not be the source is not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.proofs import certificates
from tests.proofs.certificates import Certificate, Change, Part
from tests.verify.read_in_units import T, certified
from truecut.core.visibility import Snapshot
from truecut_verify import cut
from truecut_verify.files import examine
from truecut_verify.folder import opened
from truecut_verify.units import _evidence


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Certificate:
    """From the files alone, as the independent verifier reads them."""
    database = postgres.create_database("real_backfill")
    with certified(tmp_path_factory.mktemp("real"), database) as seeded, opened([seeded.folder]) as folders:
        (folder,) = folders
        found = examine(folder, None)
        assert found.chain is not None
        base = found.runs[T, "all"][-1].segments[0]
        (copy,) = [one for _, one in found.chain.copies[T, "all"].claims]
        snapshots = [Snapshot.parse(one.snapshot) for one in copy.units]
        return _of(_evidence(folder, base, copy.units), snapshots)


def _of(told: cut.Evidence, snapshots: list[Snapshot]) -> Certificate:
    before = Snapshot(1, told.before.xmax, told.before.running)
    return Certificate(
        told.start,
        before,
        told.frontier,
        tuple(
            Part(one.low, one.high, one.lo, one.hi, snapshot, tuple(one.rows))
            for one, snapshot in zip(told.units, snapshots, strict=True)
        ),
        tuple(Change(one.place, one.xid, one.key, one.row) for one in told.log),
        tuple(told.parents.items()),
        tuple(told.claimed),
    )


def verdict(built: Path, one: Certificate) -> str:
    text = "".join(f"{line}\n" for line in certificates.lines(one))
    said = subprocess.run([built / "verdicts"], input=text, capture_output=True, text=True, check=True)
    return said.stdout.strip()


def test_a_real_backfill_is_accepted(built: Path, real: Certificate) -> None:
    """Its units, their snapshots and the log between make what is claimed, says the proof's own decision; and
    snapshots disagree there, events count, and several units were read."""
    assert verdict(built, real) == "accepted"
    assert len(real.units) > 4
    assert len({one.snapshot for one in real.units}) > 2
    assert any(not one.snapshot.sees(change.xid) for one in real.units for change in real.log)
    assert any(one.snapshot.sees(change.xid) for one in real.units for change in real.log)


def test_what_a_real_backfill_is_not_is_refused(built: Path, real: Certificate) -> None:
    """A row less; a unit less; a change less that counts; rows that are older than their snapshot."""
    counted = [n for n, one in enumerate(real.log) if one.key is not None and one.row is not None]
    first, last = real.units[0], real.units[-1]
    stale = replace(first, snapshot=last.snapshot, lo=last.lo, hi=last.hi)
    wrong = [
        replace(real, claimed=real.claimed[1:]),
        replace(real, units=real.units[1:]),
        replace(real, log=(*real.log[: counted[-1]], *real.log[counted[-1] + 1 :])),
        replace(real, units=(stale, *real.units[1:])),
    ]
    assert [verdict(built, one) for one in wrong] == ["refused"] * len(wrong)
