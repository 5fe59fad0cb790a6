"""Certificates in their folder: read the last, write the next.

Promises: a number is used once, whoever else writes there; the table of copies is there before the
certificate that names it; a crash in between leaves nothing that anybody believes.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from truecut.certificate import durable
from truecut.certificate.chain import canonical
from truecut.errors import Retry, TruecutError
from truecut.failpoint import failpoint

if TYPE_CHECKING:
    from truecut.certificate.sign import Signer

FORMAT = "truecut.certificate/1"
COPIES = "copies"
RECENT = 100  # certificates that are looked through
ASSUMED = {
    True: ("log-complete", "read-total", "rows-locked", "collation", "secret-kept"),
    False: ("log-complete", "read-total", "secret-kept"),
}
_TEXTS = (
    "table sink mode route scope key columns at source_at verdict reason evidence segments units sink_version"
)
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in _TEXTS.split()[:7]),
        pa.field("edition", pa.int64()),
        *(pa.field(name, pa.string()) for name in _TEXTS.split()[7:11]),
        pa.field("rows", pa.int64()),
        pa.field("root", pa.binary(32)),
        *(pa.field(name, pa.string()) for name in _TEXTS.split()[11:]),
        pa.field("route_by", pa.string()),
        pa.field("called", pa.string()),
    ]
)
Copies = Mapping[tuple[str, str], Mapping[str, Any]]  # (table, sink) → the row of the table of copies


@dataclass(frozen=True, slots=True)
class Issued:
    """One that stands in the folder."""

    number: int = 0
    digest: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    copies: Copies = field(default_factory=dict)


def certificate_paths(folder: Path) -> list[Path]:
    """All of them, in order."""
    return sorted(path for path in folder.glob("*.json") if path.stem.isdecimal() and len(path.stem) == 10)


def last_issued(folder: Path) -> Issued:
    """The newest; number 0 where there is none."""
    paths = certificate_paths(folder)
    return read_issued(paths[-1]) if paths else Issued()


def last_readable(folder: Path) -> Issued:
    """The newest, where another one shall follow it."""
    try:
        return last_issued(folder)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise TruecutError(
            "TC7006",
            f"the last certificate in {folder} cannot be read ({type(error).__name__}); none is issued",
            fix="Restore the certificates' folder; what is delivered goes on, and its evidence is kept.",
            retry=Retry.RETRYABLE,
        ) from error


def recent(folder: Path, last: Issued, digest: str) -> Issued | None:
    """The certificate of this digest, if it is one of the last few."""
    number, known, previous = last.number, last.digest, str(last.document.get("previous", ""))
    try:
        while known != digest and number > max(1, last.number - RECENT):
            number, known = number - 1, previous
            previous = json.loads(_path(folder, number).read_bytes())["previous"]
        return read_issued(_path(folder, number)) if digest and known == digest else None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def told_of(folder: Path, digest: str) -> bool | None:
    """Whether a certificate of this digest is in the folder, or was the one before the first there; None: it
    may have been among those that were trimmed."""
    first: Mapping[str, Any] = {"number": 1}
    for path in reversed(certificate_paths(folder)):
        raw = path.read_bytes().removesuffix(b"\n")
        first = json.loads(raw)
        if digest in (hashlib.sha256(raw).hexdigest(), first["previous"]):
            return True
    return None if first["number"] > 1 else False


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:010d}.json"


def read_issued(path: Path) -> Issued:
    """A certificate, and what it claims."""
    raw = path.read_bytes().removesuffix(b"\n")
    document = json.loads(raw)
    table = pq.read_table(path.parent / document["copies"]["file"])
    copies = {(row["table"], row["sink"]): row for row in table.to_pylist()}
    return Issued(document["number"], hashlib.sha256(raw).hexdigest(), document, copies)


def issue(
    folder: Path,
    signer: Signer,
    *,
    before: Issued,
    pipeline: str,
    source: Mapping[str, str],
    captured: bool,
    copies: Sequence[Mapping[str, Any]],
    issued_at: str,
    next_key: str | None = None,
    kept_from: int = 1,
) -> Issued | None:
    """The next certificate; None where somebody else has issued one with its number. `next_key`: the raw
    public key, hexadecimal, that signs from the one after it on. `kept_from`: what is before it may go."""
    number = before.number + 1
    rows = sorted(copies, key=lambda row: (row["table"], row["sink"]))
    file, sha256 = _keep_copies(folder, number, rows)
    told: dict[str, Any] = {
        "format": FORMAT,
        "pipeline": pipeline,
        "number": number,
        "previous": before.digest,
        "source": dict(source),
        "frontier": min(row["at"] for row in rows),
        "copies": {"file": file, "sha256": sha256, "rows": len(rows)},
        "secret": signer.secret_name,
        "assumptions": list(ASSUMED[captured]),
        "issued_at": issued_at,
        "key": signer.public_hash,
    }
    if next_key is not None:
        told["next_key"] = next_key
    if (first := max(kept_from, before.document.get("kept_from", 1))) > 1:
        told["kept_from"] = first
    told["signature"] = signer.signature(canonical(told))
    raw = canonical(told).encode()
    made = durable.write(folder, raw + b"\n")
    failpoint("certificate_written")
    if not durable.keep_first(made, _path(folder, number)):
        return None
    failpoint("certificate_kept")
    kept = {(row["table"], row["sink"]): row for row in rows}
    return Issued(number, hashlib.sha256(raw).hexdigest(), told, kept)


def _keep_copies(folder: Path, number: int, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Under a name that also tells its content: two who write one number do not meet."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA), out, compression="zstd")
    data = out.getvalue().to_pybytes()
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{COPIES}/{number:010d}-{sha256[:12]}.parquet"
    (folder / COPIES).mkdir(exist_ok=True)
    durable.keep(durable.write(folder / COPIES, data), folder / name)
    failpoint("copies_kept")
    return name, sha256


def with_units(folder: Path, issued: Issued) -> Issued:
    """The certificate, each copy with the units that its base was read in: these stand where the base was
    told, which is where its edition was told first."""
    paths = [path for path in certificate_paths(folder) if int(path.stem) <= issued.number]
    copies = {key: {**row, "units": _units(paths, key, row)} for key, row in issued.copies.items()}
    return replace(issued, copies=copies)


def _units(paths: Sequence[Path], key: tuple[str, str], row: Mapping[str, Any]) -> str:
    """By halving: editions grow. Where they do not (a sink was lost), or what told it was trimmed, there is
    no picture of them."""

    def edition(path: Path) -> int:
        try:
            told = read_issued(path).copies.get(key)
        except (OSError, ValueError, KeyError, pa.ArrowException):  # a run trims meanwhile
            return 0
        return 0 if told is None else int(told["edition"])

    first = bisect_left(paths, row["edition"], key=edition)
    try:
        told = read_issued(paths[first]).copies[key] if first < len(paths) else row
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return "[]"
    return str(told["units"]) if told["edition"] == row["edition"] else "[]"
