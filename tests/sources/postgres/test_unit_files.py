"""What is known of units goes by name; whatever somebody has put beside it stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from truecut.core.cut import Range
from truecut.core.visibility import Snapshot
from truecut.errors import Fault
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.sources.postgres import standpoint, unit_files
from truecut.sources.postgres.relation import Relation
from truecut.sources.postgres.unit_ledger import Edition, Settled, UnitLedger, UnitRecord
from truecut.sources.postgres.units import Plan

TABLE = TableName("public", "a.b/c")
PLAN = Plan(Relation(7, TABLE, "d", (), ()), (), (Range(None, None), Range(None, None)))
SETTLED = Settled(Snapshot.parse("10:12:"), 5, Position(1, 3), "log", 4)
IN_A_TABLE = ("notes.txt", "again.mine", "mine/plan.json", "000007x/void", "paused.bak")
IN_AN_EDITION = ("notes.txt", "plan.json.bak", "mine.arrow", "000000.1.json.txt", "void.draft", "deep/fault")


@pytest.fixture
def ledger(tmp_path: Path) -> UnitLedger:
    return UnitLedger(tmp_path / "units")


def _edition(ledger: UnitLedger) -> Edition:
    """One of everything that is ever known of an edition, and what killed processes leave."""
    ledger.await_first(TABLE, frozenset({5}), log="log", oid=7)
    edition = ledger.begin(TABLE, PLAN, SETTLED)
    for _ in range(2):
        path = edition.new_file(0)
        path.write_bytes(b"rows")
        edition.finished(0, UnitRecord(path.name, SETTLED.snapshot, 5, 1, "digest"))
        edition.tear(0, reading=edition.reading(0), floor=9)
    edition.new_file(1).write_bytes(b"half")
    edition.share("0001")
    edition.fail(Fault("TC2007", "a row has NULL in its key", "Mend it."))
    edition.make_void("it was asked for")
    for name in ("plan.json", "000001.1.json", "void", "000001.1.torn"):
        (edition.folder / f"{name}.{'0a' * 16}.draft").write_text("half")
    return edition


def _of_the_table(ledger: UnitLedger) -> Path:
    folder = ledger.folder_of(TABLE)
    ledger.ask_again(TABLE, 3)
    ledger.pause(TABLE, paused=True)
    (folder / standpoint.FILE).write_text("{}")
    for name in ("again.4", standpoint.FILE):
        (folder / f"{name}.{'0a' * 16}.draft").write_text("half")
    return folder


def _put(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the user's {name}")
        yield path


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_all_of_ours_goes(ledger: UnitLedger) -> None:
    """Also what was left half made; the folders, too, where nothing else is in them."""
    _edition(ledger)
    _edition(ledger)
    _of_the_table(ledger)
    ledger.await_first(TABLE, frozenset(), log="log", oid=7)  # of an edition that was never planned
    ledger.remove()
    assert not ledger.folder.exists()
    ledger.remove()


def test_what_is_not_ours_stays(ledger: UnitLedger) -> None:
    """A user's files in the folders of a table and of an edition, with names like ours; folders beside."""
    edition, table = _edition(ledger), _of_the_table(ledger)
    mine = {
        *_put(ledger.folder, ("notes.txt", "photos/paused", "photos/000001/plan.json")),
        *_put(table, IN_A_TABLE),
        *_put(edition.folder, IN_AN_EDITION),
    }
    ledger.remove()
    assert _files(ledger.folder) == mine
    assert all(path.read_text() == f"the user's {path.name}" for path in mine if path.parent == table)


def test_what_is_beside_an_older_edition_stays(ledger: UnitLedger) -> None:
    """A complete edition takes the place of those before it, planned or half removed, and of nothing else."""
    first, second, third = (_edition(ledger) for _ in range(3))
    (first.folder / unit_files.PLAN).unlink()  # somebody was killed while he removed it
    kept = _files(third.folder)
    mine = set(_put(second.folder, IN_AN_EDITION)) | set(_put(ledger.folder_of(TABLE), IN_A_TABLE))
    ledger.forget_older(TABLE, third)
    assert _files(ledger.folder) == mine | kept
    assert not first.folder.exists()
    assert ledger.current(TABLE) == third


def test_links_are_not_followed(ledger: UnitLedger, tmp_path: Path) -> None:
    """What a link in the folder leads to is somebody's own."""
    edition = _edition(ledger)
    elsewhere = edition.folder.rename(tmp_path / "elsewhere")
    held = _files(elsewhere)
    edition.folder.symlink_to(elsewhere)
    (ledger.folder / "t-0123abcd").symlink_to(elsewhere.parent)
    ledger.remove()
    assert _files(elsewhere) == held


def test_what_was_torn_or_void_never_counts_while_it_goes(
    ledger: UnitLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed at any step leaves no edition that seems good, and no reading that seems whole."""
    edition = _edition(ledger)
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        real(path, missing_ok=missing_ok)
        current = ledger.current(TABLE)
        assert current is None or current.void is not None
        record = edition.record(0)
        assert record is None

    monkeypatch.setattr(Path, "unlink", unlink)
    ledger.remove()
    assert not ledger.folder.exists()
