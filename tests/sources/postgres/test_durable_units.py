"""What is said of units is on the disk when it is said, and the rows that a record names before that."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from truecut.core.visibility import Snapshot
from truecut.errors import Fault
from truecut.model.table import TableName
from truecut.sources.postgres.unit_ledger import Edition, UnitLedger, UnitRecord

TABLE = TableName("public", "shop")
ROWS = b"rows of a unit"


class Disk:
    """What a power failure would leave: content by each file's last sync, names by each folder's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._content: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self.before: dict[str, dict[str, bytes]] = {}  # by the names that files got: what was left right then
        real_sync, real_link = os.fsync, os.link

        def sync(descriptor: int) -> None:
            real_sync(descriptor)
            path, found = Path(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                self._names[path.readlink()] = {one.name: one.inode() for one in os.scandir(path)}
            else:
                self._content[found.st_ino] = path.read_bytes()

        def link(draft: Path, path: Path) -> None:
            assert self._content[draft.stat().st_ino] == draft.read_bytes(), (
                "it may appear with other content"
            )
            self.before[path.name] = self.left(path.parent)
            real_link(draft, path)

        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(os, "link", link)

    def left(self, folder: Path) -> dict[str, bytes]:
        names = self._names.get(folder, {})
        return {name: self._content.get(number, b"") for name, number in names.items()}


def found_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


SAID: dict[str, Callable[[Edition], object]] = {
    "void": lambda edition: edition.make_void("its columns have changed since"),
    "torn": lambda edition: edition.tear(0, reading=1, floor=7),
    "fault": lambda edition: edition.fail(Fault("TC2007", "a row has NULL in its key", "Mend it.")),
    "shared": lambda edition: edition.share("00000003-1"),
}


@pytest.mark.parametrize("word", SAID)
def test_what_is_said_of_an_edition_is_on_the_disk(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten, an edition that is void would be delivered, and a unit that lacks a value would count."""
    disk = Disk(monkeypatch)
    SAID[word](Edition(tmp_path, 1))
    assert len(disk.before) == 1
    assert disk.left(tmp_path) == found_in(tmp_path) != {}


def test_what_is_asked_for_and_waited_for_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten, whoever asked would get what was read before, or whoever was waited for would be another."""
    disk, ledger = Disk(monkeypatch), UnitLedger(tmp_path)
    ledger.ask_again(TABLE, 3)
    folder = ledger.folder_of(TABLE)
    assert disk.left(folder) == found_in(folder) == {"again.3": b""}
    assert ledger.await_first(TABLE, frozenset({5, 9}), log="one", oid=7) == {5, 9}
    assert disk.left(folder / "000001") == found_in(folder / "000001") != {}


def test_rows_are_on_the_disk_before_their_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: a record that a power failure leaves names a file that it leaves, too."""
    disk, edition = Disk(monkeypatch), Edition(tmp_path, 1)
    path = edition.new_file(0)
    with path.open("wb") as file:  # as the reader of a unit leaves it
        file.write(ROWS)
        file.flush()
        os.fsync(file.fileno())
    edition.finished(0, UnitRecord(path.name, Snapshot.parse("10:12:"), 5, 1, "digest"))
    assert disk.before == {"000000.1.json": {path.name: ROWS}}
    assert disk.left(tmp_path) == found_in(tmp_path)
