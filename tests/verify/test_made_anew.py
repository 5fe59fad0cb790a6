"""Copies that are made anew: in another mode, at a sink that was lost, at one that comes back. Honest all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.issuer import INSERT, UPDATE, Change, CopyOf, World
from truecut_verify.main import main

ROW = {"id": 1, "v": "x", "tenant": "acme"}


def verify(folder: Path) -> int:
    return main([str(folder)])


def world_of(folder: Path, **settings: object) -> tuple[World, CopyOf]:
    """One copy of a long life: its third edition, with a change."""
    copy = CopyOf("main.t", "lake", edition=2, **settings)  # type: ignore[arg-type]
    world = World(folder, [copy])
    world.base(copy, [ROW], upto=10)
    world.certify()
    world.changes(copy, [Change(11, 0, UPDATE, {**ROW, "v": "y"})], upto=11)
    world.certify()
    return world, copy


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_each_edition_is_replayed_in_its_own_mode(mode: str, tmp_path: Path) -> None:
    """A mirror that became an append table, and the other way round."""
    world, copy = world_of(tmp_path, mode=mode)
    copy.mode = "append" if mode == "mirror" else "mirror"
    copy.rows, copy.head = {}, bytes(32)
    world.base(copy, [ROW], upto=12)
    world.certify()
    world.changes(copy, [Change(13, 0, INSERT, {**ROW, "id": 2})], upto=13)
    world.certify()
    assert verify(tmp_path) == 0


def test_a_sink_that_was_lost_counts_its_editions_anew(tmp_path: Path) -> None:
    """It begins with a base, which replaces all that was claimed before."""
    world, copy = world_of(tmp_path)
    copy.edition = 0
    world.base(copy, [ROW], upto=12)
    world.certify()
    assert verify(tmp_path) == 0


def test_a_sink_that_was_lost_may_be_unknown_first(tmp_path: Path) -> None:
    """Whoever says that he does not know has claimed nothing."""
    world, copy = world_of(tmp_path)
    copy.edition, copy.verdict, told = 0, "unknown", copy.head
    world.base(copy, [ROW], upto=12)
    told, copy.head, copy.pending = copy.head, bytes(32), []
    world.certify()
    assert verify(tmp_path) == 5
    copy.head, copy.verdict = told, "certified"
    world.base(copy, [ROW], upto=13)
    world.certify()
    assert verify(tmp_path) == 0


@pytest.mark.parametrize("route", [None, "acme"])
def test_a_sink_that_comes_back_may_be_another_one(route: str | None, tmp_path: Path) -> None:
    """Under its old name, with another route, in the very edition that it had."""
    world, _ = world_of(tmp_path)
    world.copies = [CopyOf("main.other", "lake")]
    world.base(world.copies[0], [ROW], upto=12)
    world.certify()
    back = CopyOf("main.t", "lake", route=route, edition=2)
    world.copies = [*world.copies, back]
    world.base(back, [ROW], upto=14)
    world.certify()
    assert verify(tmp_path) == 0


@pytest.mark.parametrize("lie", ["edition", "route", "at"])
def test_without_a_base_nothing_is_anew(lie: str, tmp_path: Path) -> None:
    """What goes back, or becomes something else, has to begin anew; and no base goes back in its edition."""
    world, copy = world_of(tmp_path)
    if lie == "edition":
        copy.edition = 1
    if lie == "route":
        copy.route = "acme"
    if lie == "at":
        copy.edition = 2
        world.base(copy, [ROW], upto=9)
    world.certify()
    assert verify(tmp_path) == 4


def test_what_was_not_told_is_told_by_the_next(tmp_path: Path) -> None:
    """A certificate that does not know stays at the head that was told; the next one goes on from there."""
    world, copy = world_of(tmp_path)
    before = copy.head.hex()
    world.changes(copy, [Change(12, 0, UPDATE, {**ROW, "v": "z"})], upto=12)
    told, copy.verdict, copy.pending = copy.pending, "unknown", []
    world.bend_copies = lambda rows: [{**row, "evidence": before} for row in rows]
    world.certify()
    assert verify(tmp_path) == 5
    world.bend_copies = lambda rows: rows
    copy.verdict, copy.pending = "certified", told
    world.certify()
    assert verify(tmp_path) == 0
