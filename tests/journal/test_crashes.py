"""Power failures at every step of a journal's life, on a disk that forgets whatever was not synced: what was
told stays true, a crash is never taken for damage, and each sync, taken away, is missed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.journal.crashes import Crashes, Life, is_missed
from tests.journal.lives import (
    Appended,
    Closed,
    Copied,
    Dropped,
    LeftNode,
    Mended,
    Quiet,
    QuietNode,
    Registered,
    Repaired,
    Written,
)
from truecut.journal import disk, local


@pytest.fixture(autouse=True)
def no_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that is asked is another one."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


LIVES: tuple[Life, ...] = (
    Written(),
    Quiet(),
    Closed(),
    Repaired(),
    Dropped(),
    Appended(),
    Copied(),
    QuietNode(),
    LeftNode(),
    Mended(),
    Registered(),
)
MISSED_BY: dict[str, tuple[Life, ...]] = {
    "folder": (Written(), Appended(), Registered()),
    "segment": (Written(), Appended()),
    "segment_name": (Written(), Appended()),
    "frame": (Written(), Appended()),
    "mark": (Quiet(), Closed(), QuietNode(), LeftNode()),
    "found": (Written(),),
    "manifest": (Written(),),
    "manifest_name": (Written(),),
    "dropped": (Dropped(),),
    "quarantine": (Repaired(), Mended()),
    "quarantine_name": (Mended(),),
    "identity": (Appended(),),
    "identity_name": (Appended(),),
    "state": (Appended(),),
    "state_name": (Appended(),),
    "log_folder": (Appended(), Copied()),
    "found_replica": (Appended(),),
    "found_names": (Appended(), Copied()),
    "copy": (Copied(), Mended()),
    "copy_folder": (Copied(),),
    "copy_in_place": (Copied(), Mended()),
    "registry_made": (Registered(),),
    "registry_found": (Registered(),),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(local, "MARK_DELAY_S", 0.005)
    return tmp_path


@pytest.mark.parametrize("life", LIVES, ids=lambda life: type(life).__name__)
def test_what_was_told_is_so_after_any_crash(life: Life, folder: Path) -> None:
    """At every step of a life, and of the life after a kill at any step: whatever part of what was not synced
    the crash leaves."""
    crashes = Crashes(life, folder)
    crashes.everywhere()
    assert crashes.checked > 10
    assert {name for name, lives in MISSED_BY.items() if life in lives} <= crashes.synced


def test_every_sync_has_its_test() -> None:
    """One that is added gets one, too."""
    assert set(disk.SYNCS) == MISSED_BY.keys()


@pytest.mark.parametrize(
    ("sync", "life"),
    [(sync, life) for sync, lives in MISSED_BY.items() for life in lives],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_sync_that_is_left_out_is_missed(sync: str, life: Life, folder: Path) -> None:
    """By the same lives, with nothing else changed."""
    assert is_missed(life, folder, sync)


@pytest.mark.parametrize("level", ["NORMAL", "OFF"])
def test_sqlite_has_to_sync(level: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for the registry's syncs, turned down, is missed, too."""
    monkeypatch.setattr(disk, "sync_commits", lambda found: found.execute(f"PRAGMA synchronous = {level}"))
    assert is_missed(Registered(), folder, "nothing")


OTHER_WAYS = re.compile(
    r"\bos\.(fsync|fdatasync|sync|pwritev?|writev?|copy_file_range|splice|unlink|remove|removedirs|rmdir)\b"
    r"|\bos\.(renames?|replace|link|symlink|truncate|ftruncate|posix_fallocate|mkdir|makedirs|mkfifo|mknod)\b"
    r"|\bO_(WRONLY|RDWR|CREAT|TRUNC|APPEND)\b|\bos\.fdopen\b|\bmmap\b|\bshutil\b|\btempfile\b"
    r"|\bos\.sendfile\((?!connection\b)"  # to a connection it changes nothing
    r"|\.(unlink|rmdir|rename|mkdir|touch|write_text|write_bytes|symlink_to|hardlink_to)\("
    r"|\bopen\([^)]*[\"'][rb+]*[wax+]"
)
ALLOWED = re.compile(r"\bdisk\.rename\(|^lock = os\.open\(.*")  # what locks is of no content


def _goes_past(line: str) -> bool:
    return OTHER_WAYS.search(ALLOWED.sub("", line)) is not None


def test_nothing_goes_past_the_disk() -> None:
    """A call that changes a folder or a file beside journal/disk.py would be tested by no crash."""
    package = Path(disk.__file__).parent
    calls = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path != Path(disk.__file__)
        for line in path.read_text().splitlines()
        if _goes_past(line.strip())
    ]
    assert calls == []


@pytest.mark.parametrize(
    "line",
    [
        "os.write(descriptor, b'')",
        "os.copy_file_range(source, target, size)",
        "os.sendfile(target, source, 0, size)",
        "with mmap.mmap(descriptor, 0) as content:",
        "descriptor = os.open(path, os.O_WRONLY)",
        "os.symlink(old, new)",
        "folder.mkdir(parents=True)",
        "with open(path, 'r+b') as file:",
        "with path.open('ab') as file:",
    ],
)
def test_whatever_went_past_would_be_seen(line: str) -> None:
    """Each way by which Python changes files."""
    assert _goes_past(line)
