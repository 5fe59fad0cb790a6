"""Certificates that lie, by files: each is found at its level, with its witness."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.verify import issuer
from tests.verify.issuer import DELETE, INSERT, READ, TRUNCATE, UPDATE, Change, CopyOf, Json, World, canonical
from truecut_verify.main import main

Cheat = Callable[[World], object]


def story(folder: Path, *, upto: int = 4, bend: Cheat = lambda world: None) -> World:
    """A base of three rows, then three certificates with a change each; `bend` makes the issuer lie from the
    second on."""
    copy = CopyOf("main.t", "lake")
    world = World(folder, [copy])
    world.base(copy, [{"id": n, "v": "x", "n": 0.0, "tenant": "acme"} for n in range(3)], upto=10)
    copy.units = UNITS
    world.certify()
    bend(world)
    changes = [
        [Change(11, 0, INSERT, {"id": 7, "v": "new"}), Change(11, 1, UPDATE, {"id": 1, "v": "y"})],
        [Change(13, 0, DELETE, {"id": 0})],
        [Change(14, 0, UPDATE, {"id": 2, "v": "z"})],
    ]
    for each in changes[: upto - 1]:
        world.changes(copy, each, upto=each[-1].place)
        world.certify()
    return world


def _unit(low: Any, high: Any, lo: int = 3, hi: int = 5) -> Json:
    told = {"snapshot": "1:9:", "rows": 1, "digest": "0" * 32}
    return {"low": low, "high": high, "lo": issuer.position(lo), "hi": issuer.position(hi), **told}


UNITS = [_unit(None, 10), _unit(10, 20), _unit(20, None)]


def verdicts(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[Json]]:
    capsys.readouterr()
    code = main([*more, "--json", str(folder)])
    return code, json.loads(capsys.readouterr().out)["checks"]


def caught(
    folder: Path, capsys: pytest.CaptureFixture[str], level: str, *, verdict: str = "fail", **witness: Any
) -> Json:
    """The one check that did not pass first, of that level, with that witness."""
    code, checks = verdicts(folder, capsys)
    assert code == {"fail": 4, "unknown": 5}[verdict]
    first: Json = next(one for one in checks if one["verdict"] != "pass")
    assert (first["level"], first["verdict"]) == (level, verdict), first
    assert first["detail"]
    told = first["witness"] or {}
    assert {key: told.get(key) for key in witness} == witness, first
    return first


# --- by whoever can change the files, but cannot sign -------------------------------------------------------


def _damage(path: Path, at: int = -20) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def _edit(world: World, number: int, **values: Any) -> None:
    path = world.folder / f"{number:010}.json"
    path.write_bytes(canonical({**json.loads(path.read_bytes()), **values}) + b"\n")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


UNSIGNED: dict[str, tuple[Cheat, str, Json]] = {
    "a signature that is wrong": (lambda w: _edit(w, 4, signature="0" * 128), "V0", {"certificate": 4}),
    "a certificate that was edited": (lambda w: _edit(w, 4, issued_at="later"), "V0", {"certificate": 4}),
    "one in the middle edited": (lambda w: _edit(w, 2, issued_at="later"), "V0", {"certificate": 3}),
    "a byte of a certificate flipped": (lambda w: _damage(w.folder / "0000000004.json"), "V0", {}),
    "a byte of the table of copies": (
        lambda w: _damage(w.folder / "copies/0000000002.parquet", 100), "V0", {"certificate": 2}),
    "a byte of evidence": (
        lambda w: _damage(w.folder / "evidence/000002.parquet", 50), "V1",
        {"certificate": 2, "upto": issuer.position(11)}),
    "evidence cut short": (lambda w: _cut(w.folder / "evidence/000003.parquet"), "V1", {"certificate": 3}),
    "a certificate cut short": (lambda w: _cut(w.folder / "0000000003.json"), "V0", {}),
    "an empty certificate": (lambda w: (w.folder / "0000000003.json").write_bytes(b""), "V0", {}),
    "a certificate left out": (lambda w: (w.folder / "0000000002.json").unlink(), "V0", {"certificate": 2}),
    "a certificate twice": (
        lambda w: shutil.copy(w.folder / "0000000004.json", w.folder / "0000000005.json"), "V0", {}),
    "evidence swapped": (
        lambda w: shutil.copy(w.folder / "evidence/000003.parquet", w.folder / "evidence/000004.parquet"),
        "V1", {"certificate": 4}),
    "the table of copies gone": (lambda w: (w.folder / "copies/0000000004.parquet").unlink(), "V0", {}),
    "another public key": (
        lambda w: (w.folder / "public.pem").write_bytes(b"x-----END PUBLIC KEY-----"), "V0", {}),
}  # fmt: skip


@pytest.mark.parametrize("cheat", UNSIGNED)
def test_what_was_changed_after_it_was_signed(
    cheat: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the signing key nothing can be changed: the level, and where."""
    world = story(tmp_path)
    change, level, witness = UNSIGNED[cheat]
    change(world)
    caught(tmp_path, capsys, level, **witness)


def test_a_segment_that_is_gone_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have been trimmed. Never a pass."""
    world = story(tmp_path)
    (world.folder / "evidence/000003.parquet").unlink()
    caught(tmp_path, capsys, "V1", verdict="unknown", certificate=3, file="evidence/000003.parquet")


def test_the_key_of_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A chain that was made anew, with a key of its maker's own, is not signed by the key that is trusted."""
    mine = story(tmp_path / "mine")
    story(tmp_path / "forged")
    (tmp_path / "k.pem").write_bytes(issuer.pem(mine.key))
    assert verdicts(tmp_path / "mine", capsys, "--public-key", str(tmp_path / "k.pem"))[0] == 0
    code, checks = verdicts(tmp_path / "forged", capsys, "--public-key", str(tmp_path / "k.pem"))
    assert (code, checks[0]["level"], checks[0]["witness"]) == (4, "V0", {"certificate": 1})


def test_a_key_that_nobody_handed_over_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last certificate is signed by another key, which is even in the folder."""
    world = story(tmp_path, upto=3)
    other = Ed25519PrivateKey.generate()
    (tmp_path / "public.pem").write_bytes(issuer.pem(world.key) + issuer.pem(other))
    world.key = other
    world.certify()
    caught(tmp_path, capsys, "V0", certificate=4)


def test_two_chains_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second half of another chain under the same key does not follow."""
    one, two = story(tmp_path / "one"), World(tmp_path / "two", [CopyOf("main.t", "lake")])
    two.key = one.key
    (two.folder / "public.pem").write_bytes(issuer.pem(one.key))
    two.base(two.copies[0], [{"id": 5}], upto=10)
    for _ in range(4):
        two.certify()
    for name in (
        "0000000003.json",
        "0000000004.json",
        "copies/0000000003.parquet",
        "copies/0000000004.parquet",
    ):
        shutil.copy(two.folder / name, one.folder / name)
    caught(one.folder, capsys, "V0", certificate=3)


# --- by an issuer who signs ---------------------------------------------------------------------------------


def claims(**values: Any) -> Cheat:
    """Every claim from now on says this."""

    def bend(world: World) -> None:
        world.bend_copies = lambda rows: [{**row, **values} for row in rows]

    return bend


def units(*told: Json) -> Cheat:
    return claims(units=canonical(list(told)).decode())


def segments(change: Callable[[list[Json]], list[Json]]) -> Cheat:
    """The list of segments of the third certificate is another one."""

    def bend(world: World) -> None:
        def bent(rows: list[Json]) -> list[Json]:
            if world.number != 3:
                return rows
            return [
                {**row, "segments": canonical(change(json.loads(row["segments"]))).decode()} for row in rows
            ]

        world.bend_copies = bent

    return bend


def events(change: Callable[[list[Json]], list[Json]]) -> Cheat:
    def bend(world: World) -> None:
        world.bend_events = change

    return bend


def certificate(**values: Any) -> Cheat:
    def bend(world: World) -> None:
        world.bend_certificate = lambda value: {**value, **values}

    return bend


A, B, C = UNITS
SIGNED: dict[str, tuple[Cheat, str, Json]] = {
    "a unit dropped": (units(A, C), "V0", {"certificate": 2, "unit": 1}),
    "the first unit dropped": (units(B, C), "V0", {"certificate": 2, "unit": 0}),
    "the last unit dropped": (units(A, B), "V0", {"certificate": 2, "unit": 1}),
    "units reordered": (units(B, A, C), "V0", {"certificate": 2}),
    "units that overlap": (units(A, _unit(9, 20), C), "V0", {"certificate": 2, "unit": 1}),
    "a unit's end moved": (units(A, _unit(10, 19), C), "V0", {"certificate": 2, "unit": 2}),
    "a unit twice": (units(A, B, B, C), "V0", {"certificate": 2, "unit": 2}),
    "bounds that only look the same": (units(A, _unit(10, 1), _unit(True, None)), "V0", {"unit": 2}),
    "hi before lo": (units(A, _unit(10, 20, lo=6), C), "V0", {"certificate": 2, "unit": 1}),
    "hi after the base": (units(A, _unit(10, 20, hi=99), C), "V0", {"certificate": 2, "unit": 1}),
    "another table": (claims(scope=f"{issuer.IDENTITY}\nmain.u"), "V0", {"certificate": 2}),
    "another server": (claims(scope="elsewhere\nmain.t"), "V0", {"certificate": 2}),
    "another timeline": (
        lambda w: claims(at=issuer.position(99, 2))(w) or certificate(frontier=issuer.position(99, 2))(w),
        "V0", {"certificate": 2}),
    "a position that goes back": (
        lambda w: claims(at=issuer.position(9))(w) or certificate(frontier=issuer.position(9))(w),
        "V0", {"certificate": 2}),
    "a frontier that is not lowest": (certificate(frontier=issuer.position(12)), "V0", {"certificate": 2}),
    "an edition that goes back": (claims(edition=0), "V0", {"certificate": 2}),
    "another mode": (claims(mode="append"), "V0", {"certificate": 2}),
    "another route": (claims(route="acme"), "V0", {"certificate": 2}),
    "another key": (claims(key='["v"]'), "V0", {"certificate": 2}),
    "a key that is no column": (claims(key='["w"]'), "V0", {"certificate": 2}),
    "another pipeline": (certificate(pipeline="other"), "V0", {"certificate": 2}),
    "another secret": (certificate(secret="0" * 16), "V0", {"certificate": 2}),
    "a number that is left out": (certificate(number=7), "V0", {}),
    "another head": (claims(evidence="0" * 64), "V1", {"certificate": 2}),
    "a segment cut": (segments(lambda found: []), "V1", {"certificate": 3}),
    "a segment repeated": (segments(lambda found: found * 2), "V1", {"certificate": 3}),
    "a segment of another table": (
        segments(lambda found: [{**found[0], "table": "main.u"}]), "V0", {"certificate": 3}),
    "a segment's range moved": (
        segments(lambda found: [{**found[0], "after": issuer.position(12)}]), "V1", {"certificate": 3}),
    "rows reordered": (events(lambda rows: rows[::-1]), "V1", {"certificate": 2, "place": 11, "seq": 0}),
    "a row twice": (events(lambda rows: [*rows, rows[-1]]), "V1", {"certificate": 2, "place": 11, "seq": 1}),
    "a place outside": (
        events(lambda rows: [{**rows[0], "place": 10}, *rows[1:]]), "V1", {"certificate": 2, "place": 10}),
    "a place beyond": (
        events(lambda rows: [*rows[:-1], {**rows[-1], "place": 99}]), "V1", {"certificate": 2, "place": 99}),
    "a change dropped": (events(lambda rows: rows[1:]), "V2", {"certificate": 2}),
    "an update of what is not there": (
        events(lambda rows: [{**rows[0], "op": UPDATE}, *rows[1:]]), "V2",
        {"certificate": 2, "place": 11, "seq": 0}),
    "an insert of what is there": (
        events(lambda rows: [*rows[:-1], {**rows[-1], "op": INSERT, "row": bytes(16)}]), "V2",
        {"certificate": 2, "place": 11, "seq": 1}),
    "a read among changes": (
        events(lambda rows: [{**rows[0], "op": READ}, *rows[1:]]), "V2", {"certificate": 2, "seq": 0}),
    "an operation that there is not": (
        events(lambda rows: [{**rows[0], "op": 9}, *rows[1:]]), "V2", {"certificate": 2, "seq": 0}),
    "another row": (
        events(lambda rows: [{**rows[0], "row": bytes(16)}, *rows[1:]]), "V2", {"certificate": 2}),
    "a delete with a row": (
        events(lambda rows: [{**rows[0], "op": DELETE}, *rows[1:]]), "V2", {"certificate": 2, "seq": 0}),
    "an insert without a row": (
        events(lambda rows: [{**rows[0], "row": None}, *rows[1:]]), "V2", {"certificate": 2, "seq": 0}),
    "a truncate that was none": (
        events(lambda rows: [*rows[:1], {**rows[-1], "op": TRUNCATE, "key": None, "row": None}][: len(rows)]),
        "V2", {"certificate": 2}),
    "a root that is none": (claims(root=bytes(32)), "V2", {"certificate": 2}),
    "a row more than there is": (claims(rows=99), "V2", {"certificate": 2}),
}  # fmt: skip


@pytest.mark.parametrize("cheat", SIGNED)
def test_what_a_dishonest_issuer_signs(
    cheat: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signature is not believed: what is signed must be whole, and the evidence must make it."""
    bend, level, witness = SIGNED[cheat]
    story(tmp_path, bend=bend)
    caught(tmp_path, capsys, level, **witness)


def test_segments_reordered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two segments of one certificate change places, and the head is left or made anew."""
    for name, rehashed in (("left", False), ("anew", True)):
        copy = CopyOf("main.t", "lake")
        world = World(tmp_path / name, [copy])
        world.base(copy, [{"id": 1}], upto=10)
        world.certify()
        before = copy.head
        for place in (11, 12):
            world.changes(copy, [Change(place, 0, UPDATE, {"id": 1, "v": str(place)})], upto=place)
        copy.pending.reverse()
        for told in copy.pending if rehashed else ():
            header = canonical({key: one for key, one in told.items() if key != "files"})
            before = copy.head = hashlib.sha256(before + header).digest()
        world.certify()
        caught(world.folder, capsys, "V1", certificate=2)


def test_two_errors_that_cancel_in_a_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What one row has too much the other one has too little: the root sees both, they are of two buckets."""

    def bend(rows: list[Json]) -> list[Json]:
        more = [int.from_bytes(row["row"], "big") for row in rows[:2]]
        return [
            {**row, "row": ((one + each) % (1 << 128)).to_bytes(16, "big")}
            for row, one, each in zip(rows, more, (1, -1), strict=True)
        ]

    story(tmp_path, upto=2, bend=lambda world: events(bend)(world))
    caught(tmp_path, capsys, "V2", certificate=2)


def test_a_value_that_was_never_told_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An absent value without its cell: not a failure, and no pass either."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": 1, "toast": "long"}], upto=1)
    world.bend_events = lambda rows: [{**row, "absent": [3]} for row in rows]
    world.changes(copy, [Change(2, 0, UPDATE, {"id": 1, "toast": "long"})], upto=2)
    world.certify()
    caught(tmp_path, capsys, "V2", verdict="unknown", certificate=1, place=2, seq=0)


def test_null_is_not_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An issuer that takes an absent value for NULL claims another content."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": 1, "toast": "long"}], upto=1)
    world.changes(copy, [Change(2, 0, UPDATE, {"id": 1, "v": "w", "toast": "long"}, ("toast",))], upto=2)
    copy.rows[1,] = {"id": 1, "v": "w", "toast": None}
    world.certify()
    caught(tmp_path, capsys, "V2", certificate=1)


# --- bombs --------------------------------------------------------------------------------------------------


def test_bombs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is small and would be huge is not read: JSON, Parquet, archives."""
    import zipfile

    world = story(tmp_path / "c")
    (world.folder / "0000000004.json").write_bytes(b"[" * 3000)
    caught(world.folder, capsys, "V0")
    (world.folder / "0000000004.json").write_bytes(b"[" * 1999 + b"\n")
    caught(world.folder, capsys, "V0")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("0000000001.json", b"\0" * 10_000_000)
    assert verdicts(tmp_path / "bomb.zip", capsys)[1][0]["detail"].startswith("not a certificate")
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as file:
        file.writestr("../0000000001.json", b"x")
    assert verdicts(tmp_path / "out.zip", capsys)[1][0]["verdict"] == "fail"


def most_taken() -> int:
    """Bytes that Arrow has had at once, ever."""
    return pa.default_memory_pool().max_memory() or 0


def test_one_row_of_ten_million_values_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list in one row of evidence, in 2,600 bytes: not read."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": 1}], upto=1)
    values = pa.repeat(pa.scalar(0, pa.uint32()), 10_000_000)
    write = world.evidence_file

    def bomb(events: list[Json]) -> tuple[str, bytes]:
        name, _ = write(events)
        table = pq.read_table(world.folder / name)
        many = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        table = table.set_column(5, table.schema.field(5), many)
        pq.write_table(table, world.folder / name, compression="zstd")
        return name, (world.folder / name).read_bytes()

    world.evidence_file = bomb  # type: ignore[method-assign]
    world.changes(copy, [Change(2, 0, UPDATE, {"id": 1})], upto=2)
    world.certify()
    before = most_taken()
    assert "more rows or values" in caught(tmp_path, capsys, "V1")["detail"]
    assert most_taken() == before


def test_a_text_that_is_told_a_thousand_times_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of copies with one long text, once in a dictionary, of every row: not written out."""
    world = World(tmp_path, [CopyOf("main.t", f"{n:04}", verdict="unknown") for n in range(1024)])
    for copy in world.copies:
        copy.head, copy.at = bytes(32), 1
    world.bend_copies = lambda rows: [{**row, "reason": "x" * 200_000} for row in rows]
    world.certify()
    before = most_taken()
    assert "far larger in memory" in caught(tmp_path, capsys, "V0")["detail"]
    assert most_taken() < before + (8 << 20)


def test_more_rows_than_bytes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A million equal rows in a few kilobytes are no evidence."""
    copy = CopyOf("main.t", "lake")
    world = World(tmp_path, [copy])
    world.base(copy, [{"id": 1}], upto=1)
    row = pq.read_table(tmp_path / "evidence/000001.parquet")
    repeated = pa.table(
        [
            pa.repeat(row.column(name)[0], 1_000_000).cast(row.schema.field(name).type)
            for name in row.column_names
        ],
        schema=row.schema,
    )
    pq.write_table(repeated, tmp_path / "evidence/000001.parquet", compression="zstd")
    import hashlib

    hashed = hashlib.sha256((tmp_path / "evidence/000001.parquet").read_bytes()).digest()
    header = {**copy.pending[0], "rows": 1_000_000, "sha256": hashlib.sha256(hashed).hexdigest()}
    copy.pending = [header]
    bare = {key: one for key, one in header.items() if key != "files"}
    copy.head = hashlib.sha256(bytes(32) + canonical(bare)).digest()
    world.certify()
    found = caught(tmp_path, capsys, "V1")
    assert "more rows" in found["detail"]
