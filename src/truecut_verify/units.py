"""V2 of a base that was read in units, where the optional evidence of its units is there.

Keys are digests here, which have no order: a unit's keys are those that its evidence puts into it (assumption
`collation`). So a key is told as its unit's number and its digest, and a unit's range is that of its number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truecut_verify.chain import History
from truecut_verify.cut import Change, Evidence, ReadUnit, Row, Snapshot, decide
from truecut_verify.digest import MODULUS
from truecut_verify.documents import Segment, Unit, dump, read_rows
from truecut_verify.evidence import Run, columns_of
from truecut_verify.folder import Folder
from truecut_verify.verdict import Fail, Unknown

_BLOCK = ("fixed_size_binary[16]",)
_ROWS = {"key": _BLOCK, "row": _BLOCK, "route": _BLOCK}
_LOG = {"place": ("uint64",), "xid": ("uint64",), "unit": ("uint32",), "key": _BLOCK, "row": _BLOCK,
        "route": _BLOCK, "partial": ("bool",)}  # fmt: skip
_PARENTS = {"xid": ("uint64",), "parent": ("uint64",)}


def check_units(folder: Folder, run: Run, history: History) -> str:
    """The cut of the run's base, decided again; a word about it."""
    base = run.segments[0]
    claims = [(cert, copy) for cert, copy in history.claims if base in copy.segments]
    if not claims or [one for one in claims[0][1].segments if one.kind == "base"][-1] is not base:
        return ""
    number, units = claims[0][0].number, claims[0][1].units
    if base.splice is None:
        told = f"; that its {len(units)} units make its base: unknown (no evidence of the log between)"
        return told if units else ""
    try:
        evidence = _evidence(folder, base, units)
    except (ValueError, TypeError, AttributeError) as error:
        raise Fail("the evidence of its units is not of the format", certificate=number) from error
    if (wrong := decide(evidence)) is not None:
        raise Fail(f"its units do not make its base: {wrong}", certificate=number)
    return f", its base is the cut of {len(units)} units"


def _evidence(folder: Folder, base: Segment, units: Sequence[Unit]) -> Evidence:
    told = base.splice
    assert told is not None
    _check_files(folder, base, told)
    if len(told["units"]) != len(units):
        raise Fail("not one file of evidence for each unit")
    mine = bytes.fromhex(told["route"])
    parents = {one: top for names in _read(folder, told["parents"], _PARENTS) for one, top in names}
    log = [change for rows in _read(folder, told["log"], _LOG) for change in _changes(rows, mine)]
    read = [_unit(folder, n, unit, told["units"][n], len(units), mine) for n, unit in enumerate(units)]
    keys = [key for unit in read for key, _ in unit.rows] + [one.key for one in log if one.key is not None]
    owner = {key[4:]: key for key in keys}
    claimed = [
        row for columns in columns_of(folder, base, ["key", "row"]) for row in zip(*columns, strict=True)
    ]
    if any(key not in owner for key, _ in claimed):
        raise Fail("a row of the base that no unit and no change has brought")
    return Evidence(
        int(told["start"][9:], 16), _snapshot(told["seen"]), int(base.upto[9:], 16), read, log, parents,
        sorted((owner[key], row) for key, row in claimed),
    )  # fmt: skip


def _check_files(folder: Folder, base: Segment, told: Mapping[str, Any]) -> None:
    names = [*told["log"], *told["parents"], *told["units"]]
    if any(folder.find(name) is None for name in names):
        raise Unknown("the evidence of its units is not here (trimmed, or left out)")
    found = hashlib.sha256(dump(told) + b"".join(folder.sha256(name) or b"" for name in names)).hexdigest()
    if found != json.loads(base.header)["splice_sha256"]:
        raise Fail("the evidence of its units has another hash", upto=base.upto)


def _read(folder: Folder, names: Sequence[str], types: Mapping[str, tuple[str, ...]]) -> Iterator[Any]:
    for name in names:
        path = folder.find(name)
        assert path is not None
        for columns in read_rows(path, name, types, list(types)):
            yield zip(*columns, strict=True)


def _changes(rows: Any, mine: bytes) -> Iterator[Change]:
    """A row of another route is, for this copy, no row."""
    for place, xid, unit, key, row, route, partial in rows:
        if partial:
            raise Unknown("a change in the splice did not tell the whole row", place=place)
        here = row if not mine or route == mine else None
        yield Change(place, xid, None if key is None else unit.to_bytes(4, "big") + key, here)


def _unit(folder: Folder, n: int, unit: Unit, name: str, count: int, mine: bytes) -> ReadUnit:
    rows = [row for part in _read(folder, [name], _ROWS) for row in part]
    total = sum(int.from_bytes(row, "big") for _, row, _ in rows) % MODULUS
    if (len(rows), total) != (unit.rows, int(unit.digest, 16)):
        raise Fail("a unit has other rows than the certificate says", unit=n)
    low, high = (None if one in (0, count) else one.to_bytes(4, "big") for one in (n, n + 1))
    kept: list[Row] = [
        (n.to_bytes(4, "big") + key, row) for key, row, route in rows if not mine or route == mine
    ]
    lo, hi = int(unit.lo[9:], 16), int(unit.hi[9:], 16)
    return ReadUnit(low, high, lo, hi, _snapshot(unit.snapshot), sorted(kept))


def _snapshot(text: str) -> Snapshot:
    """As PostgreSQL writes it: xmin:xmax:xip,…"""
    _, xmax, running = text.split(":")
    return Snapshot(int(xmax), frozenset(int(one) for one in running.split(",") if one))
