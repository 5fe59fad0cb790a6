"""Questions to single functions of the verifier, at their edges, each with its answer."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.verify import issuer
from tests.verify.issuer import INSERT, UPDATE, Change, CopyOf, World, canonical, position
from tests.verify.judging import Question, of_files, verifier
from tests.verify.test_cheats import claims, story
from tests.verify.worlds import ROW, begun, named, trimmed
from truecut_verify import digest

Asked = Iterator[tuple[str, Question, Any]]


def answers(folder: Path) -> Asked:
    yield from _of_chain(folder / "chain")
    yield from _of_replay(folder / "replay")
    yield from _of_extension(folder / "extension")
    yield from _of_bounds(folder / "bounds")
    yield from _of_routes(folder / "routes")
    yield from _of_verdicts()
    yield from _of_digests()


def _chain(folder: Path, upto: int) -> tuple[Any, Any]:
    found = verifier("folder").Folder(folder, tuple(f"{n:010}.json" for n in range(1, upto + 1)
                                                    if (folder / f"{n:010}.json").exists()))  # fmt: skip
    return found, verifier("chain").read_chain(found, None)


def _of_chain(folder: Path) -> Asked:
    """What a sink names: of the chain, before or after it, or of none."""
    begun(folder / "whole")
    digests = [named(folder / "whole", n) for n in (1, 2)]
    late = trimmed(folder / "late")
    before = json.loads((folder / "late/0000000003.json").read_bytes())["previous"]

    def told(path: Path, upto: int, digest: str, beyond: bool) -> str:
        try:
            verifier("chain").check_told(*_chain(path, upto), digest, beyond=beyond)
        except verifier("verdict").Finding as finding:
            return str(finding.verdict)
        return "pass"

    strange = "f" * 64
    for path, upto, name, beyond, wanted in (
        ("whole", 2, "", False, "pass"),
        ("whole", 2, digests[0], False, "pass"),
        ("whole", 1, digests[1], False, "pass"),
        ("whole", 2, strange, False, "fail"),
        ("whole", 2, strange, True, "unknown"),
        ("late", 4, before, False, "pass"),
        ("late", 4, strange, False, "pass"),
        ("late", 4, strange, True, "unknown"),
        ("late", 4, late.previous, True, "pass"),
    ):
        yield (
            f"told {path} {upto} {name[:4]} {beyond}",
            partial(told, folder / path, upto, name, beyond),
            wanted,
        )

    copies = [CopyOf("main.a", "lake"), CopyOf("main.t", "lake")]
    world = World(folder / "fewer", copies)
    for copy in copies:
        world.base(copy, [ROW], upto=3)
    world.certify()
    world.copies = copies[:1]
    world.certify()
    yield "current", lambda: sorted(_chain(folder / "fewer", 2)[1].current), [("main.a", "lake")]


def _of_replay(folder: Path) -> Asked:
    """Parts of buckets: each row is of one part, each truncate of all; as many parts as it takes."""
    for seed in (3, 5):
        issuer.live(folder / str(seed), seed)
        in_parts = _with("replay", "ROWS_AT_ONCE", 2, partial(_verdict, folder / str(seed)))
        yield f"in parts, {seed}", in_parts, "pass"
    world = story(folder / "story")
    keys = [
        world.digest_of(world.copies[0], {"id": n, "v": "x", "n": 0.0, "tenant": "acme"})[0] for n in range(3)
    ]
    places = [verifier("digest").bucket(key) for key in keys]

    def part(low: int, high: int) -> int:
        found, chain = _chain(folder / "story", 1)
        (history,) = chain.copies.values()
        (segment,) = verifier("evidence").runs_of(history)[0].segments
        return len(list(verifier("replay").events(found, segment, low, high)))

    for n, at in enumerate(places):
        yield f"its own bucket {n}", partial(part, at, at + 1), 1
        yield f"up to its bucket {n}", partial(part, 0, at), sum(other < at for other in places)

    def parts(rows: int) -> int:
        run = SimpleNamespace(segments=[SimpleNamespace(rows=rows)])
        return len(verifier("replay").parts_of(run))

    for rows, wanted in ((0, 1), (4_000_000, 1), (4_000_001, 2), (1 << 60, 4096)):
        yield f"parts of {rows}", partial(parts, rows), wanted


def _of_extension(folder: Path) -> Asked:
    """Segments beyond the last certificate, by the head that a cursor names."""
    world = begun(folder)
    (copy,) = world.copies
    heads = [copy.head.hex()]
    for place in (12, 13):
        world.changes(copy, [Change(place, 0, UPDATE, ROW)], upto=place)
        _named_by(world, heads[-1], copy)
        heads.append(copy.head.hex())
    twice = folder / "evidence/other"
    world.base(copy, [ROW], upto=14)
    _named_by(world, heads[0], copy)
    base = copy.head.hex()

    def more(head: str, **other: Any) -> Any:
        found, chain = _chain(folder, 2)
        (history,) = chain.copies.values()
        segments = verifier("evidence").extension(found, replace(history.last, **other), head)
        return None if segments is None else [one.upto for one in segments]

    yield "no extension", partial(more, heads[0]), []
    yield "an extension", partial(more, heads[1]), [position(12)]
    yield "two extensions", partial(more, heads[2]), [position(12), position(13)]
    yield "a head of nothing known", partial(more, "e" * 64), None
    yield "a head that is none", partial(more, "*"), None
    yield "of another copy", partial(more, heads[1], table="main.u"), None
    yield "a base that nobody signed", partial(more, base), None
    yield (
        "as many as may be",
        _with("evidence", "EXTENSION_MAX", 2, partial(more, heads[2])),
        [position(12), position(13)],
    )
    yield "more than may be", _with("evidence", "EXTENSION_MAX", 1, partial(more, heads[2])), None
    from_nothing = World(folder / "first", [CopyOf("main.t", "lake")])
    from_nothing.copies[0].edition = 1
    from_nothing.changes(from_nothing.copies[0], [Change(12, 0, INSERT, ROW)], upto=12)
    _named_by(from_nothing, "", from_nothing.copies[0])
    made = from_nothing.copies[0].head.hex()
    shutil.copytree(folder / "first/evidence/copy", folder / "evidence/first")
    yield "from no head at all", partial(more, made, evidence=""), [position(12)]
    file = folder / f"evidence/first/{made}.parquet"
    wrong = file.with_name(f"{'d' * 64}.parquet")
    shutil.copy(file, wrong)
    yield "a name that is not its own", partial(more, "d" * 64, evidence=""), None
    twice.mkdir()
    shutil.copy(wrong, twice / f"{'c' * 64}.parquet")
    shutil.copy(wrong, folder / f"evidence/copy/{'c' * 64}.parquet")
    yield "two of one name", partial(more, "c" * 64, evidence=""), None


def _named_by(world: World, before: str, copy: CopyOf) -> None:
    """The last segment's file under its head, as the format names it."""
    told = copy.pending.pop()
    (name,) = told.pop("files")
    table = pq.read_table(world.folder / name)
    about = {**told, "rows": 0, "sha256": ""}
    metadata = {b"truecut.previous": before.encode(), b"truecut.about": canonical(about)}
    made = world.folder / "evidence/copy/made.parquet"
    made.parent.mkdir(exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), made)
    bare = {**told, "sha256": hashlib.sha256(hashlib.sha256(made.read_bytes()).digest()).hexdigest()}
    copy.head = hashlib.sha256((bytes.fromhex(before) or bytes(32)) + canonical(bare)).digest()
    made.rename(made.with_name(f"{copy.head.hex()}.parquet"))


def _with(module: str, name: str, value: Any, question: Question) -> Question:
    """Under another bound."""

    def asked() -> Any:
        there = verifier(module)
        known = getattr(there, name)
        setattr(there, name, value)
        try:
            return question()
        finally:
            setattr(there, name, known)

    return asked


def _of_bounds(folder: Path) -> Asked:
    """As large as may be, and larger."""
    begun(folder)
    evidence, copies = folder / "evidence/000001.parquet", folder / "copies/0000000002.parquet"
    size = copies.stat().st_size
    metadata = pq.ParquetFile(copies).metadata
    inflated = metadata.row_group(0).total_byte_size

    verdict = partial(_verdict, folder)

    def count() -> int:
        return int(verifier("documents").count_rows(evidence, "x"))

    rows = Fraction(1, evidence.stat().st_size)
    yield "a row for each byte", _with("documents", "ROWS_PER_BYTE_MAX", rows, count), 1
    yield "more rows", _with("documents", "ROWS_PER_BYTE_MAX", 0, verdict), "fail"
    just = Fraction(inflated - (1 << 20), size)
    largest = max(one.stat().st_size for one in folder.glob("copies/*"))
    assert largest == size
    yield "inflated as may be", _with("documents", "INFLATION_MAX", just, partial(_last_copies, folder)), 1
    yield "inflated", _with("documents", "INFLATION_MAX", -(10**6), verdict), "fail"
    yield "copies as large as may be", _with("chain", "COPIES_BYTES_MAX", largest, verdict), "pass"
    yield "copies larger", _with("chain", "COPIES_BYTES_MAX", largest - 1, verdict), "fail"


def _verdict(folder: Path) -> str:
    return str(of_files(folder)()[0]["verdict"])


def _last_copies(folder: Path) -> int:
    found, chain = _chain(folder, 2)
    last = chain.certificates[-1]
    return len(list(verifier("documents").read_copies(found.find(last.copies["file"]), last)))


def _of_routes(folder: Path) -> Asked:
    """Rows of one route, where a column of texts tells it."""
    values = {"tenant": [b"acme", b"bolt", None], "id": [b"1", b"2", b"3"]}
    mine = {"tenant": [b"acme"], "id": [b"1"]}
    for route, by, wanted in (
        ("acme", "tenant", mine), ("acme", None, values), (None, None, values), (None, "tenant", values),
        ("acme", "id", values),
    ):  # fmt: skip
        path = folder / f"{route} {by}"
        begun(path, bend=claims(route=route, **({"route_by": by} if by else {})))

        def kept(path: Path = path) -> Any:
            (history,) = _chain(path, 1)[1].copies.values()
            return history.last.of_route(values)

        yield f"route {route} by {by}", kept, wanted


def _of_verdicts() -> Asked:
    """The sentences for every mixture of two copies' verdicts."""

    def said(*levels: str) -> list[int]:
        verdict = verifier("verdict")
        checks = [
            verdict.Check(level, told, "", table, "s", at)
            for table, each in zip("ab", levels, strict=False)
            for level, told, at in (one.split() for one in each.split(", ") if one)
        ]
        known = [*verdict._CLAIMS.values()]
        found = verdict.claims(checks)
        return [verdict.overall(checks), *(known.index(one) if one in known else one for one in found)]

    limits = verifier("verdict")._LIMITS
    unsaid = "Whether a copy equals the source is not said: that needs V4 and V5 at one frontier."
    held = "Whether a copy still holds what was delivered is not said: that needs the sink (--sink)."
    equal = "{} at s equals the source at {}."
    unread = "Not read, and nothing is said of what they hold: {} at s."
    for levels, wanted in (
        ((), ["unknown", unsaid, held]),
        (("V0 pass 1",), ["pass", 0, unsaid, held]),
        (("V0 unknown 1",), ["unknown", unsaid, held]),
        (("V0 fail 1",), ["fail", unsaid, held]),
        (("V0 pass 1, V4 pass 1, V5 pass 1",), ["pass", 0, 4, 5, equal.format("a", 1)]),
        (("V4 pass 1, V5 fail 1",), ["fail", 4, unsaid]),
        (("V4 fail 1, V5 pass 1",), ["fail", 5, unsaid]),
        (("V4 fail 1, V5 fail 1",), ["fail", unsaid]),
        (("V4 pass 1, V5 pass 2",), ["pass", 4, 5, unsaid]),
        (("V5 pass 1", "V0 pass 1"), ["pass", 0, unsaid, unread.format("b")]),
    ):  # fmt: skip
        yield f"said of {levels}", partial(said, *levels), [*wanted, limits]

    def without_a_table() -> int:
        verdict = verifier("verdict")
        checks = [verdict.Check("V0", "pass", ""), verdict.Check("V5", "pass", "", "a", "s", "1")]
        return sum("Not read" in one for one in verdict.claims(checks))

    yield "a chain is not read", without_a_table, 0


def _of_digests() -> Asked:
    """Values at the edges of their forms."""

    def encoded(value: Any, form: Any, kind: Any = None) -> str:
        try:
            return str(verifier("digest").encode(pa.scalar(value, kind), form).hex())
        except verifier("digest").Unencodable:
            return "refused"

    def number(value: int) -> str:
        try:
            return str(verifier("digest").integer_bytes(value).hex())
        except verifier("digest").Unencodable:
            return "refused"

    for value, size in (
        (1 << 63, 16),
        (-(1 << 63), 8),
        ((1 << 63) - 1, 8),
        (-(1 << 127), 16),
        (1 << 127, 17),
    ):
        yield f"number {value}", partial(number, value), value.to_bytes(size, "big", signed=True).hex()
    yield "a number too large", partial(number, 1 << 200), "refused"
    yield "not a number", partial(encoded, float("nan"), "float"), "7ff8000000000000"
    yield "a float", partial(encoded, 1.5, "float"), "3ff8000000000000"
    cents = f"02{150:032x}"
    yield "cents", partial(encoded, Decimal("1.50"), "decimal:2"), cents
    yield "of another scale", partial(encoded, Decimal("1.505"), "decimal:2"), "refused"
    yield "of the very scale", partial(encoded, Decimal("1.5"), "decimal:2"), cents
    yield "no decimal number", lambda: _decimal(Decimal("NaN")), "refused"
    one = "01" + f"{8:016x}" + f"{1:016x}"
    yield "a list", partial(encoded, [1, None], {"list": "int"}), f"{2:016x}{one}00"
    struct = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    yield (
        "a struct",
        partial(encoded, {"a": 1, "b": None}, {"struct": [["a", "int"], ["b", "int"]]}, struct),
        f"{one}00",
    )
    pairs = [(1, None)]
    yield (
        "a map",
        partial(encoded, pairs, {"map": ["int", "int"]}, pa.map_(pa.int64(), pa.int64())),
        f"{1:016x}{one}00",
    )

    def keys(*names: str) -> str:
        now = verifier("digest")
        table = now.Table("s", [(name, "int") for name in names], [])
        return str(now.key_digest(bytes(16), table, {name: pa.scalar(1) for name in names}).hex())

    for name, names, raw in (("a key", ["a"], f"{1:016x}"), ("a key of two", ["a", "b"], one + one)):
        message = digest.header(b"K", 0, "s") + digest.body(bytes.fromhex(raw))
        yield name, partial(keys, *names), digest.mac(bytes(16), message).hex()


def _decimal(value: Any) -> str:
    try:
        return str(verifier("digest").decimal_bytes(value, 2).hex())
    except verifier("digest").Unencodable:
        return "refused"
