"""What a certificate claims, carried on to later places by the evidence that was gathered since."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificate.lives import SECRET, Life
from truecut.certificate.chain import chained
from truecut.certificate.extension import Extension
from truecut.certificate.folding import Claim, Folding, Target, ledger_path
from truecut.certificate.segment import SegmentWriter, Wanted, columns_text
from truecut.model.change import INSERT, READ
from truecut.model.cursor import Version
from truecut.spark.fold import extended
from truecut.testing.orders import ITEMS, NOTED, changes, order, position, rows, seed


def target(life: Life, *, since: str = "") -> Target:
    at, columns = str(position(life.at)), columns_text(NOTED.columns)
    return Target("main.t", "acme", "mirror", life.edition, at, life.head, columns, since)


def certified(life: Life) -> tuple[Claim, str]:
    """Its claim where it stands, and the head of that."""
    claim = Folding(str(life.folder), target(life)).run()
    assert claim.root == life.root()
    return claim, life.head


@pytest.mark.parametrize("number", range(6))
def test_a_claim_is_carried_to_every_place_on_the_way(tmp_path: Path, number: int) -> None:
    """To where each later window ended, whatever happens beyond it, the root is that of the rows there; the
    ledger is as it was."""
    life = Life(tmp_path, random.Random(number))
    life.seed()
    life.window()
    claim, since = certified(life)
    assert claim.root is not None
    ledger = ledger_path(tmp_path, sink="acme", table="main.t").read_bytes()
    told = [(life.place, life.root(), len(life.state))]
    for _ in range(4):
        life.window()
        told.append((life.place, life.root(), len(life.state)))
    places = tuple(place for place, _, _ in told)
    found = Extension(str(tmp_path), target(life, since=since), claim.root, places).run()
    assert not isinstance(found, str), found
    assert [(one.root, one.rows) for one in found] == [(root, rows) for _, root, rows in told]
    assert ledger_path(tmp_path, sink="acme", table="main.t").read_bytes() == ledger


def test_what_cannot_be_carried_on_is_not_claimed(tmp_path: Path) -> None:
    """Another root than the ledger's, a segment that is gone, a copy made anew, columns that changed,
    a ledger that went further or is gone: each is refused, with its reason."""
    life = Life(tmp_path, random.Random(1))
    life.seed()
    life.window()
    claim, since = certified(life)
    assert claim.root is not None
    life.window()
    whole = Extension(str(tmp_path), target(life, since=since), claim.root, (life.place,))
    assert not isinstance(whole.run(), str)
    other = columns_text(ITEMS.columns)
    changed = replace(whole, target=replace(whole.target, columns=other))
    assert "columns changed" in str(changed.run())
    assert "not what the last certificate claims" in str(replace(whole, root=bytes(32)).run())
    life.window()
    certified(life)
    assert "not what the last certificate claims" in str(whole.run())
    _, since = certified(life)
    life.seed()
    anew = replace(whole, target=target(life, since=since))
    assert "made anew" in str(anew.run())
    ledger_path(tmp_path, sink="acme", table="main.t").unlink()
    assert "cannot be read" in str(extended(whole))
    for file in tmp_path.rglob(f"{whole.target.evidence}.parquet"):
        file.unlink()
    assert "missing" in str(whole.run())


def test_rows_of_an_append_table_count_up_to_the_place(tmp_path: Path) -> None:
    """Each window adds its own; what came beyond a place is not in its root."""
    (tmp_path / "secret").write_bytes(SECRET)
    head, heads = "", []
    for place in (1, 2, 3):
        wish = seed("append") if place == 1 else changes("append")
        before = Version(1, position(place - 1), evidence=head) if place > 1 else None
        wanted = order(None, place, t=replace(wish, before=before))
        writer = SegmentWriter(Wanted(str(tmp_path), leaves_out=False), wanted)
        writer.add("main.t", rows([(READ if place == 1 else INSERT, place, place)]))
        (header,) = writer.close().values()
        head = chained(head, header)
        heads.append(head)
    columns = columns_text(ITEMS.columns)
    certified = Target("main.t", "acme", "append", 1, str(position(1)), heads[0], columns, "")
    claim = Folding(str(tmp_path), certified).run()
    assert (claim.rows, claim.root is not None) == (1, True)
    assert claim.root is not None
    later = replace(certified, at=str(position(3)), evidence=heads[2], since=heads[0])
    found = Extension(str(tmp_path), later, claim.root, (1, 2, 3)).run()
    assert not isinstance(found, str), found
    assert [one.rows for one in found] == [1, 2, 3]
    assert found[0].root == claim.root
    assert len({one.root for one in found}) == 3
