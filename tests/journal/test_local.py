"""What only the journal in a folder promises: one writer, budget, full and failing disks."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.journal.world import at, content, lines, texts
from truecut.errors import Retry, TruecutError
from truecut.journal import document, local
from truecut.journal.document import read_document, write_document
from truecut.journal.local import LocalJournal
from truecut.journal.reader import LocalReader


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """And does no harm to the first."""
    journal = LocalJournal(tmp_path)
    with pytest.raises(TruecutError, match="TC6002"):
        LocalJournal(tmp_path)
    assert journal.append(lines("a")) == at(1)
    journal.close()


def test_a_takeover_fences_the_writer_before(tmp_path: Path) -> None:
    """What it had acknowledged stays; what it tries afterwards has no effect."""
    old = LocalJournal(tmp_path, segment_bytes_max=4_100)
    old.append(lines("a"))
    old.append(lines("b"))
    new = LocalJournal(tmp_path, take_over=True)
    assert new.head() == at(2)
    with pytest.raises(TruecutError, match="TC6003") as raised:
        old.append(lines("x"))
    assert raised.value.fault.retry is Retry.FATAL
    assert new.append(lines("c")) == at(3)
    with pytest.raises(TruecutError, match="TC6003"):
        old.trim(before=at(3))
    assert texts(content(new)) == ["a", "b", "c"]
    new.close()
    old.close()


@pytest.mark.parametrize("step", ["_sync", "_check_epoch"])
def test_a_writer_that_slept_through_a_takeover_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It wakes up with its record written, before or after the sync: the newcomer has it, or nobody."""
    old = LocalJournal(tmp_path)
    old.append(lines("a"))
    asleep, awake = threading.Event(), threading.Event()
    before = getattr(old, step)

    def sleep() -> None:
        asleep.set()
        awake.wait()
        before()

    monkeypatch.setattr(old, step, sleep)
    answer = old.submit(lines("b"))
    asleep.wait()
    new = LocalJournal(tmp_path, take_over=True)
    new.append(lines("c"))
    found = texts(content(new))
    awake.set()
    with pytest.raises(TruecutError, match="TC6003"):
        answer.result()
    assert found in (["a", "b", "c"], ["a", "c"])
    assert texts(content(LocalReader(tmp_path))) == found
    new.close()
    old.close()


def test_a_reader_sees_nothing_that_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written and synced is not yet committed."""
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    asleep, awake = threading.Event(), threading.Event()

    def sleep() -> None:
        asleep.set()
        awake.wait()

    monkeypatch.setattr(journal, "_check_epoch", sleep)
    answer = journal.submit(lines("b"))
    asleep.wait()
    assert texts(content(LocalReader(tmp_path))) == ["a"]
    awake.set()
    assert answer.result() == at(2)
    assert texts(content(LocalReader(tmp_path))) == ["a", "b"]
    journal.close()


def test_a_failed_sync_stops_the_writer_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is called written afterwards, even if the disk says yes again; a new writer reads it anew."""
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _raising(errno.EIO))
        with pytest.raises(TruecutError, match="TC6004"):
            journal.append(lines("b"))
    with pytest.raises(TruecutError, match="TC6004"):
        journal.append(lines("c"))
    journal.close()
    again = LocalJournal(tmp_path)
    assert texts(content(again)) in (["a"], ["a", "b"])
    again.close()


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a frame was written: it is taken back, the append waits and says why, and goes on with room."""
    monkeypatch.setattr(local, "FULL_DELAY_S", 0.01)
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", _half_then_full(os.writev))
        answer = journal.submit(lines("b" * 1000))
        while journal.hindrance() is None:
            assert not answer.done()
        hindrance = journal.hindrance()
        assert hindrance is not None
        assert (hindrance.code, hindrance.retry) == ("TC6010", Retry.RETRYABLE)
    assert answer.result() == at(2)
    assert journal.hindrance() is None
    assert texts(content(journal)) == ["a", "b" * 1000]
    journal.close()
    assert content(LocalReader(tmp_path)) == lines("a", "b" * 1000)


def test_a_full_disk_does_not_keep_a_writer_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for room is refused, not lost in silence."""
    journal = LocalJournal(tmp_path)
    monkeypatch.setattr(local, "FULL_DELAY_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", _half_then_full(os.writev))
        answer = journal.submit(lines("a"))
        journal.close()
    with pytest.raises(TruecutError, match="TC6010"):
        answer.result()


def test_a_version_from_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By writers and readers, before anything is touched."""
    LocalJournal(tmp_path).close()
    path = tmp_path / "manifest.json"
    monkeypatch.setattr(document, "FORMAT", 99)
    write_document(path, read_document(path))
    monkeypatch.undo()
    before = path.read_bytes()
    for use in (LocalJournal, lambda folder: LocalReader(folder).head()):
        with pytest.raises(TruecutError, match="TC6007"):
            use(tmp_path)
    assert path.read_bytes() == before


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    """Even at the same place and of the same epoch."""
    for name in ("one", "other"):
        journal = LocalJournal(tmp_path / name)
        journal.append(lines(name))
        journal.close()
    segment = next((tmp_path / "one").glob("*.log"))
    os.replace(tmp_path / "other" / segment.name, segment)
    with pytest.raises(TruecutError, match="TC6001"):
        content(LocalReader(tmp_path / "one"))
    with pytest.raises(TruecutError, match="TC6001"):
        LocalJournal(tmp_path / "one")


def _raising(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def _half_then_full(writev: Any) -> Any:
    """Each write leaves its first bytes, then the disk is full."""
    turns = iter(range(1 << 30))

    def write(descriptor: int, parts: Any) -> int:
        if next(turns) % 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(writev(descriptor, [bytes(parts[0])[:10]]))

    return write
