"""Folders of certificates as honest and dishonest issuers make them, each with the verdict it deserves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.verify import issuer, test_cheats
from tests.verify.issuer import APPEND, INSERT, UPDATE, Change, CopyOf, Json, World, canonical, position
from tests.verify.test_cheats import certificate, claims, story

Build = Callable[[Path], Any]
ROW = {"id": 1, "v": "x", "tenant": "acme"}


def begun(folder: Path, bend: test_cheats.Cheat = lambda world: None, **settings: Any) -> World:
    """A base of one row and a change, in two certificates; `bend`: from the first on."""
    copy = CopyOf("main.t", "lake", **settings)
    world = World(folder, [copy])
    bend(world)
    world.base(copy, [ROW], upto=10)
    world.certify()
    world.changes(copy, [Change(11, 0, UPDATE, {**ROW, "v": "y"})], upto=11)
    world.certify()
    return world


def trimmed(folder: Path, *, tell: bool = True, last: test_cheats.Cheat = lambda world: None) -> World:
    """Four certificates, of which the first two are gone; the third brings a base."""
    world = begun(folder)
    if tell:
        world.bend_certificate = lambda value: {**value, "kept_from": max(1, value["number"] - 1)}
    world.base(world.copies[0], [ROW], upto=20)
    world.certify()
    last(world)
    world.certify()
    for number in (1, 2):
        (folder / f"{number:010}.json").unlink()
    return world


def without_its_base(folder: Path, *, tell: bool) -> None:
    world = begun(folder)
    if tell:
        world.bend_certificate = lambda value: {**value, "kept_from": 2}
    world.certify()
    (folder / "0000000001.json").unlink()


def header(**values: Any) -> test_cheats.Cheat:
    """The header of every segment from now on says this, also to the chain."""

    def bend(world: World) -> None:
        world.bend_header = lambda told: {**told, **values}

    return bend


def second(folder: Path, bend: test_cheats.Cheat) -> None:
    """The lie begins with the second certificate."""
    story(folder, bend=bend)


def made_anew(folder: Path, *, mode: str, then: str) -> None:
    """Another mode, or another route, from the next edition on."""
    world = begun(folder, mode=mode)
    (copy,) = world.copies
    copy.mode, copy.route = then, "acme"
    copy.rows, copy.head = {}, bytes(32)
    world.base(copy, [ROW], upto=12)
    world.certify()


def lost(folder: Path, *, edition: int, upto: int, unknown: bool = False) -> None:
    """A sink that was lost begins again, with a base."""
    world = begun(folder, edition=2)
    (copy,) = world.copies
    copy.edition = edition
    if unknown:
        copy.verdict = "unknown"
        world.base(copy, [ROW], upto=upto)
        told, copy.head, copy.pending = copy.head, bytes(32), []
        world.certify()
        copy.head, copy.verdict = told, "certified"
        upto += 1
    world.base(copy, [ROW], upto=upto)
    world.certify()


def beside(folder: Path, *, edition: int = 0, certify: bool = True) -> World:
    """A second seed beside the rows of an append table."""
    copy = CopyOf("main.t", "lake", mode="append", edition=edition)
    world = World(folder, [copy])
    world.base(copy, [ROW], upto=5)
    if certify:
        world.certify()
    world.base(copy, [ROW], upto=6)
    world.changes(copy, [Change(7, 0, UPDATE, ROW)], upto=7)
    world.certify()
    return world


def earlier_edition(folder: Path, *, hide: bool, lie: bool) -> None:
    """An edition that another one replaced: its evidence may be gone, but what is there is not believed."""
    world = story(folder, bend=test_cheats.SIGNED["another row"][0] if lie else lambda world: None)
    world.bend_events = lambda rows: rows
    world.copies[0].units = []
    world.base(world.copies[0], [ROW], upto=30)
    world.certify()
    if hide:
        (folder / "evidence/000002.parquet").unlink()


def uncertain_at_last(folder: Path) -> None:
    world = begun(folder)
    world.copies[0].verdict = "unknown"
    world.certify()


def untold_value(folder: Path) -> None:
    world = begun(folder)
    world.bend_events = lambda rows: [{**row, "absent": [3]} for row in rows]
    world.changes(world.copies[0], [Change(12, 0, UPDATE, ROW)], upto=12)
    world.certify()


def several(folder: Path, bend: Callable[[list[Json]], list[Json]]) -> None:
    """Two copies, told in another order or number."""
    copies = [CopyOf("main.t", "a"), CopyOf("main.t", "b")]
    world = World(folder, copies, bend_copies=bend)
    for copy in copies:
        world.base(copy, [ROW], upto=3)
    world.certify()


def another_source(folder: Path, *, edition: int = 1) -> World:
    """The pipeline has another source; a copy goes on in its edition, as one of the old source."""
    world = begun(folder)
    world.copies[0].edition = edition
    certificate(source={"type": "ducklake", "identity": "another"})(world)
    world.certify()
    return world


def another_source_trimmed(folder: Path) -> None:
    world = another_source(folder)
    world.certify()
    for number in (1, 2, 3):
        (folder / f"{number:010}.json").unlink()


def rerouted(folder: Path, before: str | None, after: str | None) -> None:
    """Which column tells the route is told once; then it stays."""
    world = begun(folder, route="acme", route_by=before)
    world.copies[0].route_by = after
    world.certify()


def handed_over(folder: Path, *, openly: bool) -> None:
    world = begun(folder)
    other = Ed25519PrivateKey.generate()
    if openly:
        world.hand_over = other
        world.certify()
    else:
        (folder / "public.pem").write_bytes(issuer.pem(world.key) + issuer.pem(other))
        world.key = other
    world.certify()


def given_key(folder: Path, *, mine: bool, late: bool = False) -> bytes:
    world = trimmed(folder) if late else begun(folder)
    return issuer.pem(world.key if mine else Ed25519PrivateKey.generate())


def without_a_key(folder: Path) -> None:
    begun(folder)
    (folder / "public.pem").unlink()


def kept_from(folder: Path, told: Sequence[int]) -> None:
    world = begun(folder)
    for number in told:
        world.bend_certificate = lambda value, number=number: {**value, "kept_from": number}  # type: ignore[misc]
        world.certify()


class KeyAlone(CopyOf):
    """A table of nothing but its key."""

    @property
    def columns(self) -> list[tuple[str, int, Any, pa.DataType]]:
        return [("id", 1, "int", pa.int64())]


class OneNumber(CopyOf):
    """An append table whose own columns have one number, as they are no columns of the source."""

    @property
    def columns(self) -> list[tuple[str, int, Any, pa.DataType]]:
        return [(name, 0 if n < 2 else number, *rest) for n, (name, number, *rest) in enumerate(APPEND)]


def of_copy(folder: Path, copy: CopyOf) -> None:
    world = World(folder, [copy])
    world.base(copy, [ROW], upto=3)
    world.certify()


def of_size(folder: Path, size: int) -> None:
    """A certificate of so many bytes."""
    world, told = begun(folder), {"issued_at": ""}
    world.bend_certificate = lambda value: {**value, **told}
    for _ in range(2):
        world.number, world.previous = 2, named(folder, 2)
        world.certify()
        told = {"issued_at": "x" * (size - len((folder / "0000000003.json").read_bytes()))}


def named(folder: Path, number: int) -> str:
    """The hash of a certificate."""
    return hashlib.sha256((folder / f"{number:010}.json").read_bytes()[:-1]).hexdigest()


def with_a_space(folder: Path) -> None:
    """The same value, in another form."""
    begun(folder)
    path = folder / "0000000002.json"
    path.write_bytes(path.read_bytes().replace(b":", b": ", 1))


def other_columns(folder: Path, change: Callable[[pa.Schema], pa.Schema]) -> None:
    """The table of copies."""
    known = issuer._COPIES
    issuer._COPIES = change(known)
    try:
        begun(folder)
    finally:
        issuer._COPIES = known


def other_evidence(folder: Path) -> None:
    """Columns of another type."""
    known = issuer.EVIDENCE
    issuer.EVIDENCE = known.set(0, pa.field("place", pa.int64()))
    try:
        begun(folder)
    finally:
        issuer.EVIDENCE = known


def two_bases(folder: Path, *, mode: str = "mirror") -> None:
    """Before anything is certified; units that are of the second."""
    copy = CopyOf("main.t", "lake", mode=mode)
    world = World(folder, [copy])
    world.base(copy, [ROW], upto=5)
    world.base(copy, [ROW], upto=9)
    unit = {"low": None, "high": None, "snapshot": "3:3:", "lo": position(6), "hi": position(8)}
    copy.units = [{**unit, "rows": 1, "digest": ""}]
    world.certify()


def base_and_change(folder: Path, hi: int) -> None:
    """In one certificate; the unit ends before the base, or behind it."""
    copy = CopyOf("main.t", "lake")
    world = World(folder, [copy])
    world.base(copy, [ROW], upto=5)
    world.changes(copy, [Change(9, 0, UPDATE, ROW)], upto=9)
    copy.units = [test_cheats._unit(None, None, 3, hi)]
    world.certify()


def gone(folder: Path) -> None:
    (begun(folder).folder / "evidence/000002.parquet").unlink()


def changes_alone(folder: Path, mode: str) -> None:
    """Nothing says what there was before them."""
    copy = CopyOf("main.t", "lake", mode=mode, edition=1)
    world = World(folder, [copy])
    world.changes(copy, [Change(12, 0, INSERT, ROW)], upto=12)
    world.certify()


def next_edition(world: World) -> None:
    world.copies[0].edition += 1


def empty(folder: Path) -> None:
    folder.mkdir(parents=True)


def first(bend: test_cheats.Cheat) -> Build:
    return partial(begun, bend=bend)


_COLUMNS = [[name, number, form] for name, number, form, _ in issuer.COLUMNS]


def columns(*told: Any) -> Build:
    return first(claims(columns=canonical(list(told)).decode()))


HONEST: dict[str, Build] = {
    **{f"a life, {seed}": partial(issuer.live, seed=seed) for seed in range(8)},
    "a story": story,
    "a chain that begins late": trimmed,
    "a mirror that becomes an append table": partial(made_anew, mode="mirror", then="append"),
    "an append table that becomes a mirror": partial(made_anew, mode="append", then="mirror"),
    "a sink that counts anew": partial(lost, edition=0, upto=12),
    "a sink that was unknown first": partial(lost, edition=0, upto=12, unknown=True),
    "a seed beside": beside,
    "a seed beside, told at once": partial(beside, certify=False),
    "a replaced edition": partial(earlier_edition, hide=False, lie=False),
    "a replaced edition that is gone": partial(earlier_edition, hide=True, lie=False),
    "two copies": partial(several, bend=lambda rows: rows),
    "a copy of the source before": another_source,
    "a column of the route, told later": partial(rerouted, before=None, after="tenant"),
    "a column of the route": partial(rerouted, before="tenant", after="tenant"),
    "a key handed over": partial(handed_over, openly=True),
    "the key that was given": partial(given_key, mine=True),
    "nothing but a key": partial(of_copy, copy=KeyAlone("main.t", "lake")),
    "key columns of one number": partial(of_copy, copy=OneNumber("main.t", "lake", mode="append")),
    "as large as may be": partial(of_size, size=2048),
    "what is kept grows": partial(kept_from, told=(1, 2, 2, 4)),
    "two bases": two_bases,
    "two bases of an append table": partial(two_bases, mode="append"),
    "a base and a change": partial(base_and_change, hi=5),
}
UNCERTAIN: dict[str, Build] = {
    "a copy of the source before, begun late": another_source_trimmed,
    "another key than given, begun late": partial(given_key, mine=False, late=True),
    "no key": without_a_key,
    "changes alone": partial(changes_alone, mode="mirror"),
    "rows of an append table alone": partial(changes_alone, mode="append"),
    "no base": partial(without_its_base, tell=False),
    "no base, said to be trimmed": partial(without_its_base, tell=True),
    "unknown at last": uncertain_at_last,
    "a value that was never told": untold_value,
    "evidence that is gone": gone,
}
LIES: dict[str, Build] = {
    "no certificate": empty,
    "another key than given": partial(given_key, mine=False),
    "a key that nobody handed over to": partial(handed_over, openly=False),
    "of another table from the first on": first(claims(scope=f"{issuer.IDENTITY}\nmain.u")),
    "of the source before, in a new edition": partial(another_source, edition=2),
    "a column twice": columns(*_COLUMNS, _COLUMNS[1]),
    "a number twice": columns(*_COLUMNS[:-1], ["tenant", 4, "text"]),
    "no key columns": first(claims(key="[]")),
    "a key of no column": first(claims(key='["w"]')),
    "a list that is none": first(claims(key='{"id":1}')),
    "a first that follows": first(certificate(previous="0" * 64)),
    "what is kept is less than must be": partial(kept_from, told=(3,)),
    "what is kept goes back": partial(kept_from, told=(2, 1)),
    "copies in another order": partial(several, bend=lambda rows: rows[::-1]),
    "a copy twice": partial(several, bend=lambda rows: [*rows, rows[-1]]),
    "another column of the route": partial(rerouted, before="tenant", after="v"),
    "a base that goes back": partial(lost, edition=2, upto=9),
    "an edition that goes back, later": partial(trimmed, last=claims(edition=0)),
    "a position that goes back, later": partial(
        trimmed,
        last=lambda w: claims(at=position(9), segments="[]")(w) or certificate(frontier=position(9))(w)),
    "a lie in a replaced edition": partial(earlier_edition, hide=False, lie=True),
    "a unit behind its base": partial(base_and_change, hi=7),
    "a head of nothing": first(claims(segments="[]")),
    "rows that are not there": partial(second, bend=header(rows=9)),
    "changes of another edition": partial(second, bend=header(edition=0)),
    "changes of a later edition": partial(second, bend=next_edition),
    "more rows than a number holds": partial(second, bend=header(rows=1 << 63)),
    "a position of an earlier history": partial(
        second, bend=lambda w: claims(at=position(99, 0))(w) or certificate(frontier=position(99, 0))(w)),
    "changes that begin before": partial(second, bend=header(after=position(9))),
    "changes that end where they begin": partial(second, bend=header(after=position(11), upto=position(11))),
    "changes from another history": partial(second, bend=header(after=position(9, 0))),
    "changes with no beginning": partial(second, bend=header(after=None)),
    "a base with a beginning": first(header(after=position(3))),
    "a file twice": partial(second, bend=lambda w: _bend_files(w, lambda files: files * 2)),
    "a header with a word more": partial(second, bend=header(more=1)),
    "a header with a splice's hash alone": partial(second, bend=header(splice_sha256="0" * 64)),
    "a space": with_a_space,
    "larger than may be": partial(of_size, size=2049),
    "assumptions that are no list": first(certificate(assumptions="all")),
    "a source with a word more": first(certificate(source={"type": "x", "identity": "y", "more": "z"})),
    "a number that is none": first(certificate(kept_from=True)),
    "a word more": first(certificate(more="")),
    "a position that is none": first(lambda w: claims(at="x")(w) or certificate(frontier="x")(w)),
    "a reason beside a claim": first(claims(reason="none")),
    "a claim without a root": first(claims(root=None)),
    "a root that is short": first(claims(root=bytes(31))),
    "fewer copies than it says": first(
        lambda w: setattr(
            w, "bend_certificate", lambda told: {**told, "copies": {**told["copies"], "rows": 2}})),
    "a column of copies too few": partial(other_columns, change=lambda s: s.remove(len(s) - 1)),
    "a column of copies too many": partial(other_columns, change=lambda s: s.append(pa.field("x", "int64"))),
    "evidence of another type": other_evidence,
    **{
        f"a column that is none, {n}": columns(*_COLUMNS[:-1], told)
        for n, told in enumerate(
            [["tenant", 5], ["tenant", "5", "text"], [5, 5, "text"], ["tenant", 1 << 32, "text"],
             ["tenant", 5, 5], "tenant", ["tenant", -1, "text"]]
        )
    },
}  # fmt: skip


def _bend_files(world: World, change: Callable[[list[str]], list[str]]) -> None:
    def bent(rows: list[Json]) -> list[Json]:
        for row in rows:
            told = [{**one, "files": change(one["files"])} for one in json.loads(row["segments"])]
            row["segments"] = canonical(told).decode()
        return rows

    world.bend_copies = bent
