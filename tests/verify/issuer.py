"""A small issuer of honest certificates, for tests of the verifier: written from the format's page alone.

A `World` is one source table with values, its copies at sinks, and the folder that certifies them. Tests
change the folder, or what the issuer believes, and ask the verifier.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from truecut_verify import digest

SECRET = bytes(range(16))
IDENTITY = "11112222-source"
PIPELINE = "shop"
Row = dict[str, Any]
Json = dict[str, Any]

COLUMNS: list[tuple[str, int, Any, pa.DataType]] = [
    ("id", 1, "int", pa.int64()),
    ("v", 2, "text", pa.string()),
    ("n", 3, "float", pa.float64()),
    ("toast", 4, "text", pa.string()),
    ("tenant", 5, "text", pa.string()),
]
APPEND: list[tuple[str, int, Any, pa.DataType]] = [
    ("_truecut_position", 4294967290, "text", pa.string()),
    ("_truecut_seq", 4294967291, "text", pa.string()),
    *COLUMNS,
    ("_truecut_op", 4294967295, "text", pa.string()),
    ("_truecut_unchanged", 4294967294, {"list": "text"}, pa.list_(pa.string())),
]
EVIDENCE = pa.schema(
    [
        ("place", pa.uint64()),
        ("seq", pa.int64()),
        ("op", pa.uint8()),
        ("key", pa.binary(16)),
        ("row", pa.binary(16)),
        ("absent", pa.list_(pa.uint32())),
        ("cells", pa.list_(pa.struct([("column", pa.uint32()), ("digest", pa.binary(16))]))),
    ]
)
INSERT, UPDATE, DELETE, READ, TRUNCATE = 1, 2, 3, 4, 5
OPS = {INSERT: "insert", UPDATE: "update", DELETE: "delete", READ: "read", TRUNCATE: "truncate"}


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def position(place: int, generation: int = 1) -> str:
    return f"{generation:08X}-{place:016X}"


def raw_key(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Change:
    """Of the source. `absent`: columns that the source did not send."""

    place: int
    seq: int
    op: int
    row: Row | None
    absent: tuple[str, ...] = ()


@dataclass
class CopyOf:
    """One copy, as its issuer knows it."""

    table: str
    sink: str
    mode: str = "mirror"
    route: str | None = None
    route_by: str | None = None
    called: str | None = None
    edition: int = 0
    at: int = 0
    rows: dict[Any, Row] = field(default_factory=dict)
    head: bytes = bytes(32)
    upto: int = 0
    pending: list[Json] = field(default_factory=list)
    units: list[Json] = field(default_factory=list)
    verdict: str = "certified"

    @property
    def columns(self) -> list[tuple[str, int, Any, pa.DataType]]:
        return COLUMNS if self.mode == "mirror" else APPEND

    @property
    def key(self) -> list[str]:
        return ["id"] if self.mode == "mirror" else ["_truecut_position", "_truecut_seq"]


@dataclass
class World:
    folder: Path
    copies: list[CopyOf]
    secret: bytes = SECRET
    identity: str = IDENTITY
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    number: int = 0
    previous: str = ""
    files: int = 0
    hand_over: Ed25519PrivateKey | None = None
    # What a cheating issuer does to things before they are signed.
    bend_copies: Callable[[list[Json]], list[Json]] = lambda rows: rows
    bend_certificate: Callable[[Json], Json] = lambda value: value
    bend_events: Callable[[list[Json]], list[Json]] = lambda rows: rows
    bend_header: Callable[[Json], Json] = lambda header: header

    def __post_init__(self) -> None:
        (self.folder / "copies").mkdir(parents=True, exist_ok=True)
        (self.folder / "evidence").mkdir(exist_ok=True)
        (self.folder / "public.pem").write_bytes(pem(self.key))

    # --- digests ------------------------------------------------------------------------------------------

    def scope(self, copy: CopyOf) -> str:
        return f"{self.identity}\n{copy.table}"

    def table(self, copy: CopyOf) -> digest.Table:
        forms = {name: form for name, _, form, _ in copy.columns}
        rest = [(name, number, form) for name, number, form, _ in copy.columns if name not in copy.key]
        return digest.Table(self.scope(copy), [(name, forms[name]) for name in copy.key], rest)

    def digest_of(self, copy: CopyOf, row: Row) -> tuple[bytes, int]:
        scalars = {name: pa.scalar(row.get(name), kind) for name, _, _, kind in copy.columns}
        return digest.row_digest(self.secret, self.table(copy), scalars)

    def cell_of(self, copy: CopyOf, row: Row, name: str) -> bytes | None:
        """Of one column: the row with it less the row without it."""
        if row.get(name) is None:
            return bytes(16)
        _, whole = self.digest_of(copy, row)
        _, without = self.digest_of(copy, {**row, name: None})
        return ((whole - without) % digest.MODULUS).to_bytes(16, "big")

    def root(self, copy: CopyOf) -> bytes:
        sums, counts = [0] * 4096, [0] * 4096
        for row in copy.rows.values():
            key, total = self.digest_of(copy, row)
            at = digest.bucket(key)
            sums[at] = (sums[at] + total) % digest.MODULUS
            counts[at] += 1
        words = b"".join((one >> 32 * n & 0xFFFFFFFF).to_bytes(4, "big") for one in sums for n in range(4))
        return hashlib.sha256(words + b"".join(one.to_bytes(8, "big") for one in counts)).digest()

    # --- segments -----------------------------------------------------------------------------------------

    def base(self, copy: CopyOf, rows: Sequence[Row], *, upto: int, files: int = 1) -> None:
        """The whole content."""
        copy.edition += 1
        if copy.mode == "mirror":
            copy.rows, copy.head = {}, bytes(32)
        events = []
        for seq, row in enumerate(self.mine(copy, rows)):
            kept = row if copy.mode == "mirror" else _appended(row, upto, seq, READ)
            copy.rows[tuple(kept[name] for name in copy.key)] = kept
            events.append(self.event(copy, Change(upto, seq, READ, kept)))
        self.segment(copy, "base", None, upto, events, files)

    def mine(self, copy: CopyOf, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if copy.route is None or row[copy.route_by or "tenant"] == copy.route]

    def changes(self, copy: CopyOf, changes: Sequence[Change], *, upto: int, files: int = 1) -> None:
        """Of the copy's own route already."""
        events = []
        for change in changes:
            if copy.mode == "append":
                row = _appended(change.row or {}, change.place, change.seq, change.op)
                copy.rows[row["_truecut_position"], row["_truecut_seq"]] = row
                events.append(self.event(copy, Change(change.place, change.seq, INSERT, row)))
                continue
            events.append(self.event(copy, change))
            if change.op == TRUNCATE:
                copy.rows.clear()
                continue
            assert change.row is not None
            at = (change.row["id"],)
            if change.op == DELETE:
                del copy.rows[at]
            else:
                before = copy.rows.get(at, {})
                copy.rows[at] = {**change.row, **{name: before[name] for name in change.absent}}
        self.segment(copy, "changes", copy.upto, upto, events, files)

    def event(self, copy: CopyOf, change: Change) -> Json:
        told: Json = {"place": change.place, "seq": change.seq, "op": change.op, "key": None, "row": None}
        told |= {"absent": None, "cells": None}
        if change.op == TRUNCATE:
            return told
        assert change.row is not None
        sent = {name: None if name in change.absent else value for name, value in change.row.items()}
        key, total = self.digest_of(copy, sent)
        told["key"] = key
        if change.op == DELETE:
            return told
        told["row"] = total.to_bytes(16, "big")
        numbers = {name: number for name, number, _, _ in copy.columns}
        if change.absent:
            told["absent"] = [numbers[name] for name in change.absent]
        elif "toast" in numbers and copy.mode == "mirror":
            told["cells"] = [{"column": numbers["toast"], "digest": self.cell_of(copy, sent, "toast")}]
        return told

    def segment(
        self, copy: CopyOf, kind: str, after: int | None, upto: int, events: list[Json], files: int
    ) -> None:
        events = self.bend_events(events)
        names, hashes = [], b""
        size = -(-len(events) // files) or 1
        for start in range(0, len(events), size):
            name, raw = self.evidence_file(events[start : start + size])
            names.append(name)
            hashes += hashlib.sha256(raw).digest()
        header = self.bend_header(
            {
                "after": None if after is None else position(after),
                "edition": copy.edition,
                "kind": kind,
                "rows": len(events),
                "sha256": hashlib.sha256(hashes).hexdigest(),
                "sink": copy.sink,
                "table": copy.table,
                "upto": position(upto),
            }
        )
        copy.head = hashlib.sha256(copy.head + canonical(header)).digest()
        copy.pending.append({**header, "files": names})
        copy.at = copy.upto = upto

    def evidence_file(self, events: list[Json]) -> tuple[str, bytes]:
        self.files += 1
        name = f"evidence/{self.files:06}.parquet"
        pq.write_table(pa.Table.from_pylist(events, EVIDENCE), self.folder / name, compression="zstd")
        return name, (self.folder / name).read_bytes()

    # --- certificates -------------------------------------------------------------------------------------

    def certify(self) -> Json:
        """The next certificate."""
        self.number += 1
        rows = self.bend_copies([self.claim(copy) for copy in self.copies])
        name = f"copies/{self.number:010}.parquet"
        schema = _COPIES
        for later in ("route_by", "called"):
            if any(later in row for row in rows):
                schema = schema.append(pa.field(later, pa.string()))
        pq.write_table(pa.Table.from_pylist(rows, schema), self.folder / name)
        value: Json = {
            "format": "truecut.certificate/1",
            "pipeline": PIPELINE,
            "number": self.number,
            "previous": self.previous,
            "source": {"type": "ducklake", "identity": self.identity},
            "frontier": min([row["at"] for row in rows], default=""),
            "copies": {
                "file": name,
                "sha256": hashlib.sha256((self.folder / name).read_bytes()).hexdigest(),
                "rows": len(rows),
            },
            "secret": hashlib.sha256(self.secret).hexdigest()[:16],
            "assumptions": ["log-complete", "read-total", "secret-kept"],
            "issued_at": "2026-01-01T00:00:00Z",
            "key": hashlib.sha256(raw_key(self.key)).hexdigest(),
        }
        if self.hand_over is not None:
            value["next_key"] = raw_key(self.hand_over).hex()
        self.write(self.bend_certificate(value))
        if self.hand_over is not None:
            self.key, self.hand_over = self.hand_over, None
        for copy in self.copies:
            copy.pending = []
        return value

    def write(self, value: Json) -> None:
        """Signed, and under its number."""
        signed = {**value, "signature": self.key.sign(canonical(value)).hex()}
        raw = canonical(signed)
        (self.folder / f"{value['number']:010}.json").write_bytes(raw + b"\n")
        self.previous = hashlib.sha256(raw).hexdigest()

    def claim(self, copy: CopyOf) -> Json:
        certified = copy.verdict == "certified"
        return {
            "table": copy.table,
            "sink": copy.sink,
            "mode": copy.mode,
            "route": copy.route,
            "scope": self.scope(copy),
            "key": canonical(copy.key).decode(),
            "columns": canonical([[name, number, form] for name, number, form, _ in copy.columns]).decode(),
            "edition": copy.edition,
            "at": position(copy.at),
            "source_at": "",
            "verdict": copy.verdict,
            "reason": "" if certified else "no ledger",
            "rows": len(copy.rows),
            "root": self.root(copy) if certified else None,
            "evidence": copy.head.hex(),
            "segments": canonical(copy.pending).decode(),
            "units": canonical(copy.units).decode(),
            "sink_version": "",
        } | {name: told for name in ("route_by", "called") if (told := getattr(copy, name)) is not None}

    def state(self, sink: str) -> str:
        """What the cursor of a sink would hold."""
        told = {
            copy.table: {
                "at": position(copy.at),
                "edition": copy.edition,
                "evidence": copy.head.hex(),
                "source_identity": self.identity,
            }
            for copy in self.copies
            if copy.sink == sink
        }
        return json.dumps({"certificate": self.previous, "copies": told})


_TEXTS_BEFORE = ("table", "sink", "mode", "route", "scope", "key", "columns")
_COPIES = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS_BEFORE),
        ("edition", pa.int64()),
        *((name, pa.string()) for name in ("at", "source_at", "verdict", "reason")),
        ("rows", pa.int64()),
        ("root", pa.binary()),
        *((name, pa.string()) for name in ("evidence", "segments", "units", "sink_version")),
    ]
)


def _appended(row: Row, place: int, seq: int, op: int) -> Row:
    own = {"_truecut_position": position(place), "_truecut_seq": f"{seq:016X}", "_truecut_op": OPS[op]}
    return {**dict.fromkeys(name for name, *_ in APPEND), **row, **own, "_truecut_unchanged": None}


# --- random lives -----------------------------------------------------------------------------------------


def a_row(chance: random.Random, key: int) -> Row:
    return {
        "id": key,
        "v": chance.choice(["a", "b ", "ä", None, str(key)]),
        "n": chance.choice([0.0, -0.0, 1.5, None]),
        "toast": chance.choice(["long" * 9, None]),
        "tenant": chance.choice(["acme", "bolt"]),
    }


def live(folder: Path, seed: int, *, certificates: int = 6) -> World:
    """A random honest life: a mirror, a routed mirror and an append table; several editions; a hand-over."""
    chance = random.Random(seed)
    copies = [
        CopyOf("main.log", "lake", mode="append"),
        CopyOf("main.t", "acme", route="acme"),
        CopyOf("main.t", "lake"),
    ]
    world = World(folder, copies)
    source = {key: a_row(chance, key) for key in range(chance.randrange(2, 9))}
    place = chance.randrange(1, 5)
    for copy in copies:
        world.base(copy, list(source.values()), upto=place, files=chance.randrange(1, 3))
    for _ in range(certificates):
        for _ in range(chance.randrange(3)):
            before, place = place, place + chance.randrange(1, 4)
            changes = _changes(chance, source, place)
            for copy in copies:
                mine = _restricted(copy, changes)
                if mine:
                    world.changes(copy, mine, upto=place, files=chance.randrange(1, 3))
                copy.at = place
            if chance.random() < 0.2:
                world.base(copies[2], list(source.values()), upto=place)
            assert before < place
        if chance.random() < 0.3:
            world.hand_over = Ed25519PrivateKey.generate()
        world.certify()
    return world


def _changes(chance: random.Random, source: dict[int, Row], place: int) -> list[tuple[Row | None, Change]]:
    """(the row before, the change): a routed copy needs to know where a row was."""
    found: list[tuple[Row | None, Change]] = []
    for seq in range(chance.randrange(1, 6)):
        key = chance.randrange(12)
        before = source.get(key)
        if chance.random() < 0.05:
            source.clear()
            found.append((None, Change(place, seq, TRUNCATE, None)))
        elif before is None:
            source[key] = a_row(chance, key)
            found.append((None, Change(place, seq, INSERT, dict(source[key]))))
        elif chance.random() < 0.3:
            del source[key]
            found.append((before, Change(place, seq, DELETE, dict(before))))
        else:
            absent = ("toast",) if chance.random() < 0.4 else ()
            told = {**a_row(chance, key), "tenant": before["tenant"]}
            source[key] = {**told, **{name: before[name] for name in absent}}
            found.append((before, Change(place, seq, UPDATE, dict(source[key]), absent)))
    return found


def _restricted(copy: CopyOf, changes: list[tuple[Row | None, Change]]) -> list[Change]:
    return [
        change
        for _, change in changes
        if copy.route is None or change.row is None or change.row["tenant"] == copy.route
    ]
