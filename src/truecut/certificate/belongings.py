"""What of a certificates' folder is Truecut's, by name: users name that folder, and may keep theirs in it.

Names are matched as they are made; links are not followed: what they lead to is somebody's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from truecut.certificate.base_pieces import PIECE
from truecut.certificate.durable import UNFINISHED
from truecut.certificate.folding import AGAIN, LEDGERS
from truecut.certificate.issue import COPIES, certificate_paths
from truecut.certificate.segment import EVIDENCE, SECRET
from truecut.certificate.sign import NEXT, PUBLIC, SIGNING

VERIFIED = "verified.json"  # what verifications have found last
_CLAIMED = re.compile(r"\d{10}-[0-9a-f]{12}\.parquet")
_SEGMENT = re.compile(rf"[0-9a-f]{{64}}\.parquet|[0-9a-f]{{16}}{re.escape(PIECE)}")
_OF_A_COPY = re.compile(r"[A-Za-z0-9_.-]+-[0-9a-f]{12}")
_LEDGER = re.compile(rf"{_OF_A_COPY.pattern}(\.duckdb|{re.escape(AGAIN)})(\.wal)?")
_UNFINISHED = re.compile(rf"[0-9a-f]{{16}}{re.escape(UNFINISHED)}")


def remove(folder: Path) -> None:
    """Certificates, evidence, keys; the folders that hold nothing else then."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in (*certificate_paths(folder), *_named(folder, _UNFINISHED), *_single(folder)):
        _unlink(path)
    copies, ledgers, evidence = folder / COPIES, folder / LEDGERS, folder / EVIDENCE
    of_copies = [one for one in _children(evidence) if _OF_A_COPY.fullmatch(one.name)]
    for where, name in ((copies, _CLAIMED), (ledgers, _LEDGER), *((one, _SEGMENT) for one in of_copies)):
        for path in (*_named(where, name), *_named(where, _UNFINISHED)):
            _unlink(path)
    for where in (*of_copies, copies, ledgers, evidence, folder):
        with suppress(OSError):  # not there, not empty, or a link
            where.rmdir()


def is_claimed(name: str) -> bool:
    """Whether a file among the copies is called as what certificates claim is."""
    return _CLAIMED.fullmatch(name) is not None


def is_ledger(name: str) -> bool:
    """Whether a file among the ledgers is called as one of their files is."""
    return _LEDGER.fullmatch(name) is not None


def _unlink(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)


def _single(folder: Path) -> list[Path]:
    return [folder / name for name in (SECRET, SIGNING, NEXT, PUBLIC, VERIFIED)]


def _named(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    return (path for path in _children(folder) if name.fullmatch(path.name))


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
