"""A base that was read in units, with its evidence, as files: of what the proof's checker is asked about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.proofs.certificates import Certificate, Part
from tests.verify.issuer import READ, CopyOf, Json, Row, World, canonical, position
from truecut.core.visibility import Snapshot

BLOCK = pa.binary(16)
ROWS = pa.schema([("key", BLOCK), ("row", BLOCK), ("route", BLOCK)])
LOG = pa.schema(
    [
        ("place", pa.uint64()),
        ("xid", pa.uint64()),
        ("unit", pa.uint32()),
        ("key", BLOCK),
        ("row", BLOCK),
        ("route", BLOCK),
        ("partial", pa.bool_()),
    ]
)
PARENTS = pa.schema([("xid", pa.uint64()), ("parent", pa.uint64())])
ELSEWHERE = bytes(15) + b"\2"  # a route that is not the copy's


def key_of(key: bytes) -> bytes:
    return hashlib.sha256(b"key" + key).digest()[:16]


def row_of(key: bytes, row: bytes) -> bytes:
    return hashlib.sha256(b"row" + key + b"=" + row).digest()[:16]


class Digested(World):
    """Rows are digests already."""

    def digest_of(self, copy: CopyOf, row: Row) -> tuple[bytes, int]:
        return row["key"], int.from_bytes(row["row"], "big")


@dataclass
class Spliced:
    """`route`: in hexadecimal, if the copy gets only a part; the evidence holds rows of others, too."""

    folder: Path
    one: Certificate
    route: str = ""
    partial: bool = False

    def certified(self) -> World:
        """One certificate, of one copy, of one base."""
        copy = CopyOf("main.t", "lake", route="acme" if self.route else None, edition=1)
        world = Digested(self.folder, [copy])
        copy.units = [self._unit(part) for part in self.one.units]
        copy.at = copy.upto = self.one.frontier
        events: list[Json] = []
        for key, row in self.one.claimed:
            told = {"key": key_of(key), "row": row_of(key, row)}
            copy.rows[told["key"]] = told
            events.append({"place": copy.at, "seq": len(events), "op": READ, **told})
        name, raw = world.evidence_file([{"absent": None, "cells": None, **one} for one in events])
        told_splice, hashed = self._splice(copy)
        header = {
            "after": None,
            "edition": 1,
            "kind": "base",
            "rows": len(events),
            "sha256": hashlib.sha256(hashlib.sha256(raw).digest()).hexdigest(),
            "sink": copy.sink,
            "table": copy.table,
            "upto": position(copy.at),
            "splice_sha256": hashed,
        }
        copy.head = hashlib.sha256(copy.head + canonical(header)).digest()
        copy.pending = [{**header, "files": [name], "splice": told_splice}]
        world.certify()
        return world

    def _unit(self, part: Part) -> Json:
        rows = [row_of(key, row) for key, row in self._rows(part)]
        total = sum(int.from_bytes(row, "big") for row in rows) % (1 << 128)
        return {
            "low": None if part.low is None else part.low.hex(),
            "high": None if part.high is None else part.high.hex(),
            "snapshot": _text(part.snapshot),
            "lo": position(part.lo),
            "hi": position(part.hi),
            "rows": len(rows),
            "digest": f"{total:032x}",
        }

    def _rows(self, part: Part) -> list[tuple[bytes, bytes]]:
        elsewhere = [(b"elsewhere", repr(part.low).encode())] if self.route else []
        return [*part.rows, *elsewhere]

    def _splice(self, copy: CopyOf) -> tuple[Json, str]:
        units = [self._file(f"unit{n}", ROWS, self._told(part)) for n, part in enumerate(self.one.units)]
        parents = [{"xid": xid, "parent": parent} for xid, parent in self.one.parents]
        told = {
            "log": [self._file("log", LOG, self._log())],
            "parents": [self._file("parents", PARENTS, parents)],
            "route": self.route,
            "seen": _text(self.one.before),
            "start": position(self.one.start),
            "units": units,
        }
        hashes = b"".join(
            hashlib.sha256((self.folder / name).read_bytes()).digest()
            for name in [*told["log"], *told["parents"], *units]
        )
        return told, hashlib.sha256(canonical(told) + hashes).hexdigest()

    def _told(self, part: Part) -> list[dict[str, Any]]:
        return [
            {"key": key_of(key), "row": row_of(key, row),
             "route": ELSEWHERE if key == b"elsewhere" else self._mine()}
            for key, row in self._rows(part)
        ]  # fmt: skip

    def _log(self) -> list[dict[str, Any]]:
        return [
            {
                "place": one.place,
                "xid": one.xid,
                "unit": 0 if one.key is None else self._owner(one.key),
                "key": None if one.key is None else key_of(one.key),
                "row": None if one.row is None or one.key is None else row_of(one.key, one.row),
                "route": None if one.row is None else self._mine(),
                "partial": self.partial,
            }
            for one in self.one.log
        ]

    def _mine(self) -> bytes | None:
        return bytes.fromhex(self.route) if self.route else None

    def _owner(self, key: bytes) -> int:
        """In whose range the key lies."""
        holding = [
            n
            for n, part in enumerate(self.one.units)
            if (part.low is None or part.low <= key) and (part.high is None or key < part.high)
        ]
        return holding[0] if holding else 0

    def _file(self, name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> str:
        (self.folder / "evidence").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), self.folder / f"evidence/{name}.parquet")
        return f"evidence/{name}.parquet"


def _text(one: Snapshot) -> str:
    """As PostgreSQL writes it."""
    return f"{one.xmin}:{one.xmax}:{','.join(map(str, sorted(one.xip)))}"
