"""What only the journal in a folder promises: one writer, budget, full and failing disks."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.journal.world import at, content, lines, plain_content, plain_texts, texts
from tests.patience import PATIENCE_S
from truecut.errors import Retry, TruecutError
from truecut.journal import disk, document, inspection, local
from truecut.journal.document import read_document, write_document
from truecut.journal.local import LocalJournal
from truecut.journal.manifest import Manifest, read_manifest
from truecut.journal.reader import LocalReader
from truecut.journal.record import Record
from truecut.journal.segment import SegmentWriter


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
    assert plain_texts(tmp_path) == ["a", "b", "c"]
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

    def sleep(*what: str) -> None:
        asleep.set()
        awake.wait()
        before(*what)

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
    assert texts(content(LocalReader(tmp_path))) == plain_texts(tmp_path) == found
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
    assert texts(content(LocalReader(tmp_path))) == plain_texts(tmp_path) == ["a"]
    awake.set()
    assert answer.result() == at(2)
    assert texts(content(LocalReader(tmp_path))) == plain_texts(tmp_path) == ["a", "b"]
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
    assert plain_texts(tmp_path) in (["a"], ["a", "b"])
    again.close()


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a frame was written: it is taken back, the append waits and says why, and goes on with room."""
    monkeypatch.setattr(local, "FULL_DELAY_S", 0.01)
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", _half_then_full(os.pwritev))
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
    assert plain_content(tmp_path) == lines("a", "b" * 1000)


def test_a_full_disk_does_not_keep_a_writer_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for room is refused, not lost in silence."""
    journal = LocalJournal(tmp_path)
    monkeypatch.setattr(local, "FULL_DELAY_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", _half_then_full(os.pwritev))
        answer = journal.submit(lines("a"))
        journal.close()
    with pytest.raises(TruecutError, match="TC6010"):
        answer.result()


def test_a_disk_that_is_full_when_a_segment_begins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried: nothing is left open, the append waits and says why, and goes on with room;
    whichever of the new segment's files there is no room for."""
    monkeypatch.setattr(local, "FULL_DELAY_S", 0.001)
    journal = LocalJournal(tmp_path, segment_bytes_max=4_100)
    expected = []
    for room in (0, 100, 4_095, 4_096):  # for less than a page, or for a page and no manifest
        text = f"with room for {room} " * 20
        expected.append(text)
        journal.append(lines(text))  # the next one begins a segment
        files = len(os.listdir("/proc/self/fd"))
        with room_for(room, monkeypatch) as attempts:
            answer = journal.submit(lines("more"))
            _until(lambda: len(attempts) > 50)
            hindrance = journal.hindrance()
            assert not answer.done()
            assert hindrance is not None
            assert (hindrance.code, hindrance.retry) == ("TC6010", Retry.RETRYABLE)
            assert len(os.listdir("/proc/self/fd")) <= files + 4  # of the attempt that is being made
        answer.result()
        expected.append("more")
        assert journal.hindrance() is None
    journal.close()
    assert plain_texts(tmp_path) == expected
    assert not [one for one in inspection.inspect(tmp_path) if one.damage]


@contextmanager
def room_for(size: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """No file may grow beyond a size, as the system says it: half of a write is done, the next is refused.
    Manifests do not fit in any case."""
    refused: list[int] = []
    really = os.pwritev

    def write(descriptor: int, parts: Any, offset: int) -> int:
        data = b"".join(parts)
        left = (0 if data.startswith(b"{") else size) - offset
        if left <= 0:
            refused.append(descriptor)
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return int(really(descriptor, [data[:left]], offset))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", write)
        yield refused


def test_a_full_disk_is_told_to_whoever_opens_a_log(tmp_path: Path) -> None:
    """A real one, by the system's own limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        with pytest.raises(TruecutError, match="TC6010"):
            LocalJournal(tmp_path / "log")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    journal = LocalJournal(tmp_path / "log")
    assert journal.append(lines("a")) == at(1)
    journal.close()
    assert plain_texts(tmp_path / "log") == ["a"]


def test_a_fault_in_the_writing_thread_fails_every_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait and those that come; nobody waits for ever. What was acknowledged is there."""
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    monkeypatch.setattr(SegmentWriter, "write", _raising_type_error)
    answers = [journal.submit(lines("b"))]
    with pytest.raises(TruecutError, match=r"TC6012.*TypeError") as raised:
        answers[0].result(timeout=PATIENCE_S)
    assert raised.value.fault.retry is Retry.FATAL
    with pytest.raises(TruecutError, match="TC6012"):
        journal.append(lines("c"))
    journal.close()
    monkeypatch.undo()
    assert plain_texts(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "field",
    [
        {"rows": -1},
        {"rows": 1 << 32},
        {"part": -1},
        {"generation": -1},
        {"generation": 1 << 32},
        {"kind": 9},
        {"schemas": (-1,)},
        {"schemas": (1 << 64,)},
        {"payload": "text"},
        {"payload": memoryview(b"12345678").cast("Q")},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_record_that_cannot_be_written_is_refused(tmp_path: Path, field: dict[str, Any]) -> None:
    """Before it is taken; and the journal goes on."""
    journal = LocalJournal(tmp_path)
    with pytest.raises(AssertionError, match=r"a record's|a schema's"):
        journal.submit([Record(**{"payload": b"x", **field})]).result(timeout=PATIENCE_S)
    assert journal.append(lines("a")) == at(1)
    journal.close()
    assert plain_texts(tmp_path) == ["a"]


def test_an_answer_cannot_be_cancelled(tmp_path: Path) -> None:
    """What was submitted is on its way, and its writer goes on."""
    journal = LocalJournal(tmp_path)
    answers = [journal.submit(lines(f"{n}")) for n in range(50)]
    assert not any(answer.cancel() for answer in answers)
    assert [answer.result() for answer in answers] == [at(n) for n in range(1, 51)]
    journal.close()


def test_a_version_from_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By writers and readers, before anything is touched."""
    LocalJournal(tmp_path).close()
    path = tmp_path / "manifest.json"
    monkeypatch.setattr(document, "FORMAT", 99)
    write_document(path, read_document(path), disk.MANIFEST)
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


def _raising_type_error(*_: object) -> None:
    raise TypeError("unforeseen")


def _until(condition: Any) -> None:
    while not condition():
        threading.Event().wait(0.001)


def _raising(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def _half_then_full(pwritev: Any) -> Any:
    """Each write leaves its first bytes, then the disk is full."""
    turns = iter(range(1 << 30))

    def write(descriptor: int, parts: Any, offset: int) -> int:
        if next(turns) % 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(pwritev(descriptor, [bytes(parts[0])[:10]], offset))

    return write


def test_a_full_disk_while_it_is_trimmed_is_said_and_removes_nothing(tmp_path: Path) -> None:
    """There is no room to write down what would go: everything stays, and the next attempt does it."""
    journal = LocalJournal(tmp_path, segment_bytes_max=4_100)
    for text in "abc":
        journal.append(lines(text))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(TruecutError, match="TC6010"):
            journal.trim(before=at(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert texts(content(journal)) == ["a", "b", "c"]
    journal.trim(before=at(3))
    assert journal.oldest() == at(3)
    journal.close()


def test_what_is_not_the_logs_stays_beside_it(tmp_path: Path) -> None:
    """Its folder may hold logs of another kind: neither a writer that opens it nor the log's end takes them
    away; what a writer of the log has left behind goes."""
    theirs = {name: f"the user's {name}" for name in ("app.log", "app.index", "2026-01-01.log")}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    left = tmp_path / "00000000000000000001-00000009.log"
    left.write_text("begun by a writer that was killed")
    journal = LocalJournal(tmp_path)
    journal.append(lines("a"))
    journal.close()
    assert not left.exists()
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs
    local.remove_log(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == theirs
    left.write_text("a segment with a name of ours, where no log is")
    local.remove_log(tmp_path)
    assert left.exists()


@pytest.mark.parametrize("steps", range(8))
def test_a_log_s_end_that_was_cut_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """By whoever removes it again: nothing of it stays behind for ever."""
    folder = tmp_path / "log"
    journal = LocalJournal(folder, segment_bytes_max=4_100)
    for text in ("a", "b", "c"):
        journal.append(lines(text * 60))
    journal.close()
    real, done = disk.remove, iter(range(steps))

    def remove(path: Path) -> None:
        if next(done, None) is None:
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as killed, suppress(KeyboardInterrupt):
        killed.setattr(disk, "remove", remove)
        local.remove_log(folder)
    local.remove_log(folder)
    assert not folder.exists()


class Late(LocalReader):
    """Has read a manifest that has been replaced since."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder)
        self.outdated = [manifest]

    def _manifest(self) -> Manifest:
        return self.outdated.pop() if self.outdated else super()._manifest()


@pytest.mark.parametrize("ask", ["size", "head", "oldest"])
def test_a_segment_that_was_empty_goes_under_a_reader_s_eyes(tmp_path: Path, ask: str) -> None:
    """The writer's successor leaves it out and removes it, behind the manifest that the reader has read."""
    first = LocalJournal(tmp_path)
    first.append(lines("a"))
    first.close()
    LocalJournal(tmp_path).close()
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    third = LocalJournal(tmp_path)
    assert getattr(Late(tmp_path, manifest), ask)() == getattr(third, ask)()
    third.close()
