"""Flipped, missing and torn bytes at every offset of a small log: known or harmless, never served as good."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.world import at, content, lines, numbered, plain_content, texts
from truecut.errors import ExitCode, TruecutError
from truecut.journal import inspection
from truecut.journal.frame import decode, encode, whole
from truecut.journal.local import LocalJournal
from truecut.journal.manifest import read_manifest
from truecut.journal.reader import LocalReader
from truecut.journal.record import Damaged, Record
from truecut.journal.scan import scan
from truecut.journal.segment import PAGE_BYTES

RECORDS = numbered(1, 9)
NEVER = Record(b"never acknowledged")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Nine records in two segments, one finished and one open, closed in good order."""
    folder = tmp_path / "log"
    journal = LocalJournal(folder, segment_bytes_max=5_000)
    for low in range(0, 9, 3):
        journal.append(RECORDS[low : low + 3])
    journal.close()
    manifest = read_manifest(folder)
    assert manifest is not None
    assert [one.reach is None for one in manifest.segments] == [False, True]
    return folder


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix != ".lock" and path.is_file())


def _served(folder: Path) -> list[Record]:
    """What a reader gets before it is told of damage."""
    found: list[Record] = []
    try:
        for entry in LocalReader(folder).read(after=None):
            assert entry.position.place == len(found) + 1
            found.append(entry.record)
    except TruecutError as error:
        _must_be_refusal(error)
    return found


def _damage_is_known(folder: Path) -> bool:
    try:
        return any(one.damage for one in inspection.inspect(folder))
    except TruecutError as error:
        _must_be_refusal(error)
        return True


def _must_be_refusal(error: TruecutError) -> None:
    assert error.fault.code in ("TC6001", "TC6007")  # damaged, or of an unknown format


def test_a_flipped_byte_is_never_served(log: Path) -> None:
    """At every offset of every file: readers get a prefix of what was written, and if it is not all, or a
    record is hurt, the inspection says so."""
    hurt = 0
    for path in _files(log):
        original = path.read_bytes()
        with path.open("r+b") as file:
            for offset, byte in enumerate(original):
                _write(file.fileno(), offset, byte ^ 0x10)
                served = _served(log)
                assert served == RECORDS[: len(served)], f"{path.name} at {offset}"
                known = _damage_is_known(log)
                assert known or served == RECORDS or _only_the_mark(path, offset), f"{path.name} at {offset}"
                assert known or path.suffix != ".log" or offset < PAGE_BYTES, f"{path.name} at {offset}"
                hurt += known
                _write(file.fileno(), offset, byte)
    assert hurt > 2000
    assert _served(log) == plain_content(log) == RECORDS
    assert not _damage_is_known(log)


def test_a_shorter_file_is_never_taken_for_all(log: Path) -> None:
    """Cut anywhere below what is committed: damage, for readers, writers and the inspection."""
    for path in log.glob("*.log"):
        original = path.read_bytes()
        for size in range(len(original)):
            os.truncate(path, size)
            served = _served(log)
            assert served == RECORDS[: len(served)]
            assert len(served) < len(RECORDS)
            assert _damage_is_known(log), f"{path.name} cut to {size}"
            with path.open("r+b") as file:
                file.seek(size)
                file.write(original[size:])
        path.unlink()
        assert _damage_is_known(log)
        assert len(_served(log)) < len(RECORDS)
        path.write_bytes(original)
    assert _served(log) == RECORDS


def test_a_torn_tail_is_cut_off(log: Path, tmp_path: Path) -> None:
    """A crash leaves any part of a frame behind what is committed: the next writer goes on without it."""
    tail = _frame_behind(log, NEVER)
    for size in range(1, len(tail)):
        ours = tmp_path / f"cut-{size}"
        shutil.copytree(log, ours)
        _append_bytes(ours, tail[:size])
        assert _served(ours) == RECORDS
        assert not _damage_is_known(ours)
        journal = LocalJournal(ours)
        assert journal.append(lines("next")) == at(10)
        journal.close()
        assert plain_content(ours) == [*RECORDS, *lines("next")]


def test_a_payload_may_hold_frames(log: Path, tmp_path: Path) -> None:
    """Of another log at the same place and by a writer of the same epoch, of this log from before, by another
    of its writers at places that are still to come, whole segments: in a write that a crash cut short they
    are not taken for good frames behind it."""
    other = LocalJournal(tmp_path / "other", segment_bytes_max=5_000)
    for _ in range(3):
        other.append(numbered(1, 30))
    other.close()
    payload = b"".join(path.read_bytes() for one in (tmp_path / "other", log) for path in one.glob("*.log"))
    payload += _frame_behind(log, NEVER, ahead=20, later=1) + _frame_behind(log, NEVER, ahead=20, later=-1)
    tail = _frame_behind(log, Record(payload + b"the end"))
    for size in (len(tail) - 1, len(tail) - 7, len(tail) // 2):
        ours = tmp_path / f"cut-{size}"
        shutil.copytree(log, ours)
        _append_bytes(ours, tail[:size])
        assert not _damage_is_known(ours)
        LocalJournal(ours).close()
        assert plain_content(ours) == RECORDS
    _append_bytes(log, tail)
    LocalJournal(log).close()
    assert plain_content(log) == [*RECORDS, Record(payload + b"the end")]


def test_a_frame_without_records_is_none(log: Path) -> None:
    """Nobody writes one, and no place could be told of it: at a log's end it is cut off, and one that comes
    over the wire is not as it was sent."""
    _append_bytes(log, _frame_behind(log))
    assert _served(log) == RECORDS
    LocalJournal(log).close()
    assert plain_content(log) == RECORDS
    with pytest.raises(Damaged):
        decode(memoryview(whole([], log_id=bytes(16), first=1, epoch=1)))


def test_a_good_frame_behind_a_bad_one_is_damage(log: Path) -> None:
    """Even where nothing says that it was committed: syncs are one frame, so no crash leaves that behind."""
    tail = _frame_behind(log, NEVER)
    _append_bytes(log, tail[:-1] + b"?" + tail)
    assert _served(log) == RECORDS
    assert _damage_is_known(log)
    with pytest.raises(TruecutError, match="TC6001") as raised:
        LocalJournal(log)
    assert raised.value.exit_code is ExitCode.VERIFICATION_FAILED


def test_a_repair_goes_on_behind_the_damage(log: Path) -> None:
    """What is good before and behind it can be read, what is lost is an error, no number is used twice."""
    first = min(log.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1  # in the frame of records 4 to 6
    first.write_bytes(data)
    assert [one.path for one in inspection.repair(log)] == [first]
    assert inspection.repair(log) == []
    assert (log / "quarantine" / first.name).read_bytes() == bytes(data)
    journal = LocalJournal(log)
    assert content(journal, upto=at(3)) == RECORDS[:3]
    with pytest.raises(TruecutError, match=r"TC6011.* 4 to 6 "):
        content(journal, after=at(3))
    assert content(journal, after=at(6)) == RECORDS[6:]
    assert journal.append(lines("next")) == at(10)
    assert texts(content(journal, after=at(9))) == ["next"]
    journal.close()


def _frame_behind(log: Path, *records: Record, ahead: int = 0, later: int = 0) -> bytes:
    """The bytes of one more frame, as the open segment's writer would have written it, or another one further
    on."""
    manifest = read_manifest(log)
    assert manifest is not None
    assert manifest.open is not None
    start = manifest.open.start
    reach = scan(log / start.name, start).reach
    first, epoch = reach.last + 1 + ahead, start.epoch + later
    _, head = encode(records, log_id=start.log_id, first=first, epoch=epoch, previous_crc=reach.crc)
    return head + b"".join(record.payload for record in records)


def _append_bytes(log: Path, data: bytes) -> None:
    with max(log.glob("*.log")).open("ab") as file:
        file.write(data)


def _only_the_mark(path: Path, offset: int) -> bool:
    """A hurt mark hides records until the next writer has read them; it loses none."""
    return path.suffix == ".log" and 512 <= offset < 2048


def _write(descriptor: int, offset: int, byte: int) -> None:
    os.pwrite(descriptor, bytes([byte]), offset)
