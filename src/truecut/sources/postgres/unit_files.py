"""What of the units' folder is Truecut's, by name: users name that folder, and may keep theirs in it.

Owns the names of `unit_ledger`'s files, and their removal. Promises: whatever is called otherwise stays, with
the folders that hold it; links are not followed: what they lead to is somebody's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from truecut.sources.postgres import standpoint

PLAN, VOID, FAULT, SHARED, AWAITED = "plan.json", "void", "fault", "shared", "awaited"
AGAIN, PAUSED = "again", "paused"

_TABLE = re.compile(r".+-[0-9a-f]{8}")
_EDITION = re.compile(r"\d{6,}")
_DRAFT = r"(\.[0-9a-f]{32}\.draft)?"  # one that was in the making when its writer was killed
_OF_A_TABLE = re.compile(rf"({AGAIN}\.\d+|{re.escape(standpoint.FILE)}){_DRAFT}|{PAUSED}")
_RECORD = r"\d{6,}\.\d+\.json"
_OF_AN_EDITION = re.compile(
    rf"({re.escape(PLAN)}|{VOID}|{FAULT}|{SHARED}|{AWAITED}\.[0-9a-f]{{16}}\.\d+|{_RECORD}|\d{{6,}}\.\d+\.torn)"
    rf"{_DRAFT}|\d{{6,}}\.\d+\.[0-9a-f]{{32}}\.arrow"
)


def tables(units: Path) -> list[Path]:
    """The folders of all tables."""
    return _folders(units, _TABLE)


def editions(table: Path) -> list[Path]:
    """The folders of a table's editions, the oldest first, planned or not."""
    return sorted(_folders(table, _EDITION), key=lambda folder: int(folder.name))


def remove_edition(folder: Path) -> None:
    """It is not planned any more, then it has no records, then nothing: whoever finds it half removed must
    not take a reading that was torn, or an edition that was void, for one that counts."""
    ours = sorted(_files(folder, _OF_AN_EDITION), key=_order)
    _remove(ours, folder)


def remove_all(units: Path) -> None:
    """Whatever is known of any table."""
    for table in tables(units):
        for edition in editions(table):
            remove_edition(edition)
        _remove(_files(table, _OF_A_TABLE), table)
    _remove((), units)


def _order(path: Path) -> int:
    if path.name == PLAN:
        return 0
    return 1 if re.fullmatch(_RECORD, path.name) else 2


def _remove(ours: Iterator[Path] | list[Path] | tuple[()], folder: Path) -> None:
    """Then their folder, if nothing else is in it."""
    with suppress(OSError):  # somebody else removes it, too; or what is left holds it
        for path in ours:
            path.unlink(missing_ok=True)
        if not folder.is_symlink():
            folder.rmdir()


def _folders(where: Path, name: re.Pattern[str]) -> list[Path]:
    return [
        one for one in _children(where) if name.fullmatch(one.name) and one.is_dir() and not one.is_symlink()
    ]


def _files(where: Path, name: re.Pattern[str]) -> list[Path]:
    return [
        one for one in _children(where) if name.fullmatch(one.name) and (one.is_symlink() or one.is_file())
    ]


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):  # it is gone, or was never there
        return [] if folder.is_symlink() else list(folder.iterdir())
    return []
