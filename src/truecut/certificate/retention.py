"""What is too old goes: certificates, what they claim, the evidence that they told, ledgers of copies that
are no more.

Promises: nothing goes that a ledger has still to fold or that no certificate has told yet, and the newest
certificate stays. It is announced first: a certificate says from which one on they are kept (`kept_from`),
then the others go, the oldest first, evidence before the certificate that tells it. So what is left is one
chain, whose first certificate names the digest of the one before, and a stop in between leaves files that
the next time removes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from truecut.certificate import belongings
from truecut.certificate.durable import UNFINISHED
from truecut.certificate.folding import LEDGERS, ledger_path
from truecut.certificate.issue import COPIES, Issued, certificate_paths, read_issued
from truecut.certificate.ledger import Ledger
from truecut.certificate.segment import EVIDENCE
from truecut.failpoint import failpoint

REMOVED_MAX = 1_000  # certificates at a time: somebody waits for the next one
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


def kept_from(folder: Path, last: Issued, *, until: datetime) -> int:
    """The first certificate that is kept when those issued before `until` go; `last` always is."""
    first = int(last.document.get("kept_from", 1))
    if not all(_is_folded(folder, row) for row in last.copies.values()):
        return first
    for path in certificate_paths(folder)[:REMOVED_MAX]:
        number = int(path.stem)
        if number >= last.number or not _is_before(path, until):
            break
        first = max(first, number + 1)
    return first


def trim(folder: Path, last: Issued, *, until: datetime) -> None:
    """Remove what `last` says is not kept, and what else nobody needs that was written before `until`."""
    first = int(last.document.get("kept_from", 1))
    for path in certificate_paths(folder):
        if int(path.stem) >= first:
            break
        for file in _told(path):
            file.unlink(missing_ok=True)
        failpoint("evidence_trimmed")
        path.unlink(missing_ok=True)
        failpoint("certificate_trimmed")
    wanted = {ledger_path(folder, sink=sink, table=table).stem for table, sink in last.copies}
    left = [
        one
        for one in (folder / COPIES).glob("*")
        if belongings.is_claimed(one.name) and one.name < f"{first:010d}"
    ]
    left += [
        one
        for one in (folder / LEDGERS).glob("*")
        if belongings.is_ledger(one.name) and one.name.split(".duckdb")[0] not in wanted
    ]
    for file in (*left, *_unfinished(folder)):
        if _is_older(file, until):
            file.unlink(missing_ok=True)


def _is_folded(folder: Path, row: Any) -> bool:
    """Whether the copy's ledger has taken in all that was told: one that is behind, or gone, needs it."""
    path = ledger_path(folder, sink=row["sink"], table=row["table"])
    if not row["evidence"]:
        return True
    if row["verdict"] == "certified" or not path.exists():
        return path.exists()
    try:
        with Ledger.open(path, row["mode"]) as ledger:
            return bool(ledger.standing.evidence == row["evidence"])
    except duckdb.Error:
        return False


def _is_before(certificate: Path, until: datetime) -> bool:
    """One that cannot be read is not removed either: somebody should look."""
    try:
        issued_at = json.loads(certificate.read_bytes())["issued_at"]
        return datetime.fromisoformat(issued_at) < until
    except _UNREADABLE:
        return False


def _told(certificate: Path) -> Iterable[Path]:
    """The files of evidence that it tells."""
    folder = certificate.parent
    try:
        rows = list(read_issued(certificate).copies.values())
        segments = [one for row in rows for one in json.loads(row["segments"])]
        names = [name for one in segments for name in (*one["files"], *_of_units(one))]
    except _UNREADABLE:
        return []
    return [folder / name for name in names if name.startswith(f"{EVIDENCE}/")]


def _of_units(segment: Mapping[str, Any]) -> list[str]:
    """The evidence of a base's units: the copy's own names, others may have others for the same files."""
    splice = segment.get("splice", {})
    return [name for kind in ("log", "parents", "units") for name in splice.get(kind, ())]


def _unfinished(folder: Path) -> list[Path]:
    """Of writers that were stopped."""
    return [one for where in (".", COPIES, f"{EVIDENCE}/*") for one in folder.glob(f"{where}/*{UNFINISHED}")]


def _is_older(file: Path, until: datetime) -> bool:
    try:
        return file.stat().st_mtime < until.timestamp()
    except FileNotFoundError:
        return False
