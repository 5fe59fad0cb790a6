"""Certificates and their tables of copies, parsed strictly: whatever is not exactly of the format is refused.

Bounds come first, so that nothing is taken into memory that an honest issuer would not have written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from truecut_verify.verdict import NotACertificate

CERTIFICATE_BYTES_MAX = 2048
COPIES_BYTES_MAX = 64 << 20
ROWS_PER_BYTE_MAX = 16  # of a Parquet file, and values of each of its columns: digests do not compress
INFLATION_MAX = 1000  # how many times larger a table of copies may be in memory than on the disk
BATCH_ROWS = 65_536
_TOO_LARGE = "it would be far larger in memory than it is on the disk"
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError)


# --- canonical JSON ---------------------------------------------------------------------------------------


def dump(value: Any) -> bytes:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse(raw: bytes, name: str) -> Any:
    """Canonical JSON, or nothing: one value has one form, and so one hash."""
    try:
        value = json.loads(raw.decode(), parse_float=_refuse, parse_constant=_refuse)
        canonical = dump(value) == raw
    except (ValueError, RecursionError) as error:
        raise NotACertificate(name, "no JSON that can be read") from error
    if not canonical:
        raise NotACertificate(name, "JSON that is not in its canonical form")
    return value


def _refuse(text: str) -> Any:
    raise ValueError(text)


# --- forms ------------------------------------------------------------------------------------------------

Good = Callable[[Any], bool]


def _form(pattern: str) -> Good:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _list_of(good: Good) -> Good:
    return lambda value: isinstance(value, list) and all(good(one) for one in value)


def _object(**keys: Good) -> Good:
    """Exactly these keys."""
    return lambda value: (
        isinstance(value, dict)
        and set(value) == set(keys)
        and all(good(value[key]) for key, good in keys.items())
    )


def _anything(value: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _column(value: Any) -> bool:
    good = isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and _count(value[1])
    return good and value[1] < 1 << 32 and isinstance(value[2], str | dict)


_POSITION = r"[0-9A-F]{8}-[0-9A-F]{16}"
_HASH = _form(r"[0-9a-f]{64}")
_FILE = _form(r"(?:evidence|copies)(?:/[A-Za-z0-9_=][A-Za-z0-9_.=-]*)+")
_FILES: Good = lambda value: _list_of(_FILE)(value) and len(set(value)) == len(value)  # noqa: E731
_CERTIFICATE: dict[str, Good] = {
    "assumptions": _list_of(_text),
    "copies": _object(file=_FILE, sha256=_HASH, rows=_count),
    "format": _form(r"truecut\.certificate/1"),
    "frontier": _form(f"(?:{_POSITION})?"),
    "issued_at": _text,
    "key": _HASH,
    "number": _count,
    "pipeline": _text,
    "previous": _form(r"(?:[0-9a-f]{64})?"),
    "secret": _form(r"[0-9a-f]{16}"),
    "signature": _form(r"[0-9a-f]{128}"),
    "source": _object(type=_text, identity=_text),
}
_COPY: dict[str, Good] = {
    "table": _text,
    "sink": _text,
    "mode": _form("mirror|append"),
    "route": lambda value: value is None or isinstance(value, str),
    "scope": _text,
    "key": _text,
    "columns": _text,
    "edition": _count,
    "at": _form(_POSITION),
    "source_at": _text,
    "verdict": _form("certified|unknown"),
    "reason": _text,
    "rows": _count,
    "root": lambda value: value is None or (isinstance(value, bytes) and len(value) == 32),
    "evidence": _form(r"(?:[0-9a-f]{64})?"),
    "segments": _text,
    "units": _text,
    "sink_version": _text,
}
_LATER: dict[str, Good] = {"route_by": _COPY["route"], "called": _COPY["route"]}  # since they are told
_SEGMENT: dict[str, Good] = {
    "after": lambda value: value is None or _form(_POSITION)(value),
    "edition": _count,
    "files": _FILES,
    "kind": _form("base|changes"),
    "rows": _count,
    "sha256": _HASH,
    "sink": _text,
    "table": _text,
    "upto": _form(_POSITION),
}
_SPLICE = {
    "splice": _object(
        log=_FILES,
        parents=_FILES,
        route=_form("(?:[0-9a-f]{32})?"),
        seen=_text,
        start=_form(_POSITION),
        units=_FILES,
    )
}
_UNIT: dict[str, Good] = {
    "digest": _form(r"(?:[0-9a-f]{32})?"),
    "hi": _form(_POSITION),
    "high": _anything,
    "lo": _form(_POSITION),
    "low": _anything,
    "rows": _count,
    "snapshot": _text,
}


def _checked(value: Any, name: str, keys: Mapping[str, Good], **optional: Good) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(keys) <= set(value) <= {*keys, *optional}:
        raise NotACertificate(name, "it lacks a key, or has one that the format does not know")
    for key, good in {**keys, **optional}.items():
        if key in value and not good(value[key]):
            raise NotACertificate(name, f"{key} has not its form")
    return value


# --- certificates -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Certificate:
    """One file. `signed` are the bytes under its signature, `digest` is its hash, by which others name it."""

    name: str
    pipeline: str
    number: int
    previous: str
    source: Mapping[str, str]
    frontier: str
    copies: Mapping[str, Any]
    secret: str
    assumptions: tuple[str, ...]
    key: str
    next_key: str | None
    kept_from: int  # those before it were trimmed, or will be
    signature: bytes
    signed: bytes
    digest: str


def parse_certificate(raw: bytes, name: str) -> Certificate:
    """The bytes of one file."""
    if len(raw) > CERTIFICATE_BYTES_MAX or not raw.endswith(b"\n"):
        raise NotACertificate(name, f"more than {CERTIFICATE_BYTES_MAX} bytes, or cut short")
    value = _checked(parse(raw[:-1], name), name, _CERTIFICATE, next_key=_HASH, kept_from=_count)
    signed = dump({key: one for key, one in value.items() if key != "signature"})
    signature = bytes.fromhex(value["signature"])
    known = {key: one for key, one in value.items() if key not in ("format", "issued_at")}
    more = {"name": name, "signed": signed, "signature": signature, "next_key": value.get("next_key")}
    more["kept_from"] = value.get("kept_from", 1)
    return Certificate(**known | more, digest=hashlib.sha256(raw[:-1]).hexdigest())


# --- copies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """What one commit brought to one copy. `header` are the bytes that the chain is made of; `splice` names
    the optional evidence of a base that was read in units."""

    after: str | None
    edition: int
    kind: str
    rows: int
    sha256: str
    sink: str
    table: str
    upto: str
    files: tuple[str, ...]
    header: bytes
    splice: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of keys that was read under one snapshot."""

    low: Any
    high: Any
    snapshot: str
    lo: str
    hi: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Copy:
    """What one certificate claims of one copy."""

    table: str
    sink: str
    mode: str
    route: str | None
    scope: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, int, Any], ...]
    edition: int
    at: str
    source_at: str
    verdict: str
    reason: str
    rows: int
    root: bytes | None
    evidence: str
    segments: tuple[Segment, ...]
    units: tuple[Unit, ...]
    sink_version: str
    route_by: str | None = None  # the column of texts that the route stands in; None: none is told
    called: str | None = None  # the table that is read: its name at the sink; None: its own

    @property
    def name(self) -> tuple[str, str]:
        """What tells it from every other copy of the pipeline."""
        return self.table, self.sink

    def of_route(self, columns: dict[str, list[bytes | None]]) -> dict[str, list[bytes | None]]:
        """Those of the rows, as canonical bytes by column, that are of its route, where that is told."""
        if self.route is None or self.route_by is None:
            return columns
        mine = [raw == self.route.encode() for raw in columns[self.route_by]]
        return {name: list(compress(values, mine)) for name, values in columns.items()}


def read_copies(path: Path, certificate: Certificate) -> Iterator[Copy]:
    """The rows of a table of copies, whose hash has been checked."""
    name = certificate.copies["file"]
    try:
        file = _open(path, name)
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        left = INFLATION_MAX * path.stat().st_size + (16 << 20)
        columns = {*file.schema_arrow.names} - {*_LATER}
        if file.metadata.num_rows != certificate.copies["rows"] or columns != set(_COPY):
            raise NotACertificate(name, "other rows or columns than the certificate says")
        if sum(one.total_byte_size for one in groups) > left:
            raise NotACertificate(name, _TOO_LARGE)
        file = pq.ParquetFile(
            path, read_dictionary=file.schema_arrow.names
        )  # a text once, however often told
        for batch in file.iter_batches(1024):
            if (left := left - sum(map(_texts_bytes, batch.columns))) < 0:
                raise NotACertificate(name, _TOO_LARGE)
            for row in batch.to_pylist():
                yield _copy(row, name)
    except _UNREADABLE as error:
        raise NotACertificate(name, "no table of copies that can be read") from error


def _texts_bytes(column: pa.Array) -> int:
    """What the texts of a column come to, each of them written out."""
    if not isinstance(column, pa.DictionaryArray):
        return 0
    return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0


def _copy(row: dict[str, Any], name: str) -> Copy:
    _checked(row, name, _COPY, **_LATER)
    certified = row["verdict"] == "certified"
    if certified != (row["root"] is not None) or certified == bool(row["reason"]):
        raise NotACertificate(name, "a root where nothing is certified, or no reason why not")
    key, columns, segments, units = (
        parse(row[one].encode(), name) for one in ("key", "columns", "segments", "units")
    )
    lists = {"key": (key, _text), "columns": (columns, _column), "segments": (segments, _anything),
             "units": (units, _anything)}  # fmt: skip
    for one, (value, good) in lists.items():
        if not _list_of(good)(value):
            raise NotACertificate(name, f"{one} has not its form")
    parsed = {
        "key": tuple(key),
        "columns": tuple(map(tuple, columns)),
        "segments": tuple(parse_segment(one, name) for one in segments),
        "units": tuple(Unit(**_checked(one, name, _UNIT)) for one in units),
    }
    told = (row.get("route_by"), "text") in [(one, form) for one, _, form in columns]
    return Copy(**row | parsed | ({} if told else {"route_by": None}))


def parse_segment(value: Any, name: str) -> Segment:
    """A header with its files."""
    _checked(value, name, _SEGMENT, **_SPLICE, splice_sha256=_HASH)
    if (value["kind"] == "base") != (value["after"] is None) or ("splice" in value) != (
        "splice_sha256" in value
    ):
        raise NotACertificate(name, "a base with a beginning, or changes without one")
    header = {key: one for key, one in value.items() if key not in ("files", "splice")}
    known = {key: one for key, one in header.items() if key != "splice_sha256"}
    return Segment(**known, files=tuple(value["files"]), header=dump(header), splice=value.get("splice"))


# --- Parquet ----------------------------------------------------------------------------------------------


def _open(path: Path, name: str) -> pq.ParquetFile:
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
    counts = [sum(one.column(n).num_values for one in groups) for n in range(file.metadata.num_columns)]
    if max(file.metadata.num_rows, *counts) > ROWS_PER_BYTE_MAX * path.stat().st_size:
        raise NotACertificate(name, "more rows or values than a file of its size can honestly hold")
    return file


def read_rows(
    path: Path, name: str, types: Mapping[str, tuple[str, ...]], columns: list[str]
) -> Iterator[Any]:
    """The rows of an evidence file in batches, as lists by column."""
    try:
        file = _open(path, name)
        found = {field.name: str(field.type) for field in file.schema_arrow}
        if set(found) != set(types) or any(found[one] not in allowed for one, allowed in types.items()):
            raise NotACertificate(name, "its columns are not those of the format")
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            yield [batch.column(one).to_pylist() for one in columns]
    except _UNREADABLE as error:
        raise NotACertificate(name, "no evidence that can be read") from error


def count_rows(path: Path, name: str) -> int:
    """As the file's own footer says; reading it finds a lie."""
    try:
        return int(_open(path, name).metadata.num_rows)
    except _UNREADABLE as error:
        raise NotACertificate(name, "no evidence that can be read") from error


def read_metadata(path: Path, name: str) -> tuple[dict[str, Any], int]:
    """What a file of a segment says of itself: the head before it and its header; and its rows."""
    try:
        file = _open(path, name)
        told = file.schema_arrow.metadata or {}
        previous, about = told[b"truecut.previous"].decode(), parse(told[b"truecut.about"], name)
        bytes.fromhex(previous)
    except _UNREADABLE as error:
        raise NotACertificate(name, "no evidence that can be read") from error
    return {"previous": previous, "about": about if isinstance(about, dict) else {}}, int(
        file.metadata.num_rows
    )
