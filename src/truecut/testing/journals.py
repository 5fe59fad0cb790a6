"""The laws of a journal (`truecut.journal.contract`), whatever it is made of.

Take them over with `from truecut.testing.journals import *` and a fixture `open_journal`: it opens the test's
own log for writing, again and again, in small segments (5,000 bytes), with a budget `bytes_max` if asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from truecut.errors import Retry, TruecutError
from truecut.journal.contract import Journal, JournalReader
from truecut.journal.record import SOURCE_BYTES_MAX, Kind, Record
from truecut.model.position import Position, SourcePosition

Open = Callable[..., Journal]


def at(number: int, generation: int = 1) -> Position:
    return Position(generation, number)


def lines(*texts: str) -> list[Record]:
    return [Record(text.encode()) for text in texts]


def numbered(first: int, last: int) -> list[Record]:
    """Records that say their own number, of various lengths."""
    return [Record(f"{n}:".encode() + b"x" * (n * 37 % 400)) for n in range(first, last + 1)]


def content(
    reader: JournalReader, *, after: Position | None = None, upto: Position | None = None
) -> list[Record]:
    """The records in a range; their positions are checked to be the numbers that follow `after`."""
    entries = list(reader.read(after=after, upto=upto))
    first = 1 if after is None else after.place + 1
    assert [entry.position.place for entry in entries] == list(range(first, first + len(entries)))
    assert [entry.position.generation for entry in entries] == [entry.record.generation for entry in entries]
    return [entry.record for entry in entries]


def texts(records: Sequence[Record]) -> list[str]:
    return [record.payload.decode() for record in records]


def test_a_new_log_is_empty(open_journal: Open) -> None:
    """No head, no oldest record, nothing to read."""
    journal = open_journal()
    assert (journal.head(), journal.oldest(), content(journal)) == (None, None, [])


def test_an_append_is_answered_with_the_place_of_its_last_record(open_journal: Open) -> None:
    """Records are numbered 1, 2, 3, …, and read back in that order."""
    journal = open_journal()
    assert journal.append(lines("a", "b")) == at(2)
    assert journal.append(lines("c")) == at(3) == journal.head()
    assert texts(content(journal)) == ["a", "b", "c"]


def test_a_record_comes_back_whole(open_journal: Open) -> None:
    """Every part of its head, and any bytes in it; also none at all."""
    records = [
        Record(
            b"\x00\n\xff" * 1000, Kind.UNIT, "rows/1", generation=3, schemas=(7, 1 << 63), part=4, last=False
        ),
        Record(b"", Kind.MARKER, "ünïcode/12", generation=4),
        Record(b"x", generation=4, schemas=(1,), source_position=SourcePosition("0/16B3748 é")),
        Record(b"y", generation=4, source_position=SourcePosition("g" * SOURCE_BYTES_MAX)),
    ]
    journal = open_journal()
    assert journal.append(records) == at(4, generation=4)
    assert content(journal) == records
    assert [one.head.record.source_position for one in journal.heads(after=None)] == [
        record.source_position for record in records
    ]


def test_ranges_are_open_below_and_closed_above(open_journal: Open) -> None:
    """`after` is exclusive, `upto` inclusive, wherever frames and segments begin and end."""
    journal = open_journal()
    records = numbered(1, 60)
    for low in range(0, 60, 4):
        journal.append(records[low : low + 4])
    for after in range(61):
        for upto in range(after, 61, 7):
            found = content(journal, after=at(after) if after else None, upto=at(upto))
            assert found == records[after:upto]
    assert content(journal, after=at(60)) == []
    assert content(journal, after=at(59), upto=at(1000)) == records[59:]


def test_whoever_opens_it_again_goes_on_behind_what_is_there(open_journal: Open) -> None:
    """Numbers go on, nothing is lost, nothing comes twice."""
    records = numbered(1, 50)
    for low in range(0, 50, 10):
        journal = open_journal()
        assert journal.head() == (at(low) if low else None)
        for record in records[low : low + 10]:
            journal.append([record])
        journal.close()
    assert content(open_journal()) == records


def test_an_append_may_insist_on_what_came_before(open_journal: Open) -> None:
    """An append that expects another end changes nothing."""
    journal = open_journal()
    journal.append(lines("a"), expected_last=None)
    journal.append(lines("b"), expected_last=at(1))
    with pytest.raises(TruecutError, match="TC6008"):
        journal.append(lines("x"), expected_last=at(1))
    journal.append(lines("c"), expected_last=at(2))
    assert texts(content(journal)) == ["a", "b", "c"]


def test_many_submit_at_once(open_journal: Open) -> None:
    """Each answer names the place where exactly that record is; the order of each submitter is kept."""
    journal = open_journal()

    def submit(who: int) -> list[tuple[int, str]]:
        answers = [(f"{who}-{n}", journal.submit(lines(f"{who}-{n}"))) for n in range(200)]
        return [(answer.result().place, text) for text, answer in answers]

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(submit, range(8)))
    assert all(places == sorted(places) for places in answered)
    found = texts(content(journal))
    assert sorted(place for places in answered for place, _ in places) == list(range(1, 1601))
    assert all(found[place - 1] == text for places in answered for place, text in places)


def test_trimmed_records_are_gone_and_say_so(open_journal: Open) -> None:
    """Only whole segments before the given place go; the rest stays, and reading from before is an error."""
    journal = open_journal()
    records = numbered(1, 60)
    for record in records:
        journal.append([record])
    journal.trim(before=at(40))
    oldest = journal.oldest()
    assert oldest is not None
    assert 1 < oldest.place <= 40
    assert content(journal, after=at(oldest.place - 1)) == records[oldest.place - 1 :]
    with pytest.raises(TruecutError, match=f"TC6006.*{oldest}"):
        content(journal)
    journal.trim(before=at(1000))  # the segment that is being written stays
    journal.append(lines("more"))
    assert journal.head() == at(61)


def test_a_log_that_was_trimmed_and_reopened_does_not_begin_again(open_journal: Open) -> None:
    """Numbers are never used twice, however little is left."""
    journal = open_journal()
    for record in numbered(1, 60):
        journal.append([record])
    for _ in range(2):
        journal.close()
        journal = open_journal()
        journal.trim(before=at(1000))
        oldest = journal.oldest()  # the last segment may stay
        assert journal.head() == at(60)
        assert oldest is None or oldest.place > 40
    assert journal.append(lines("more")) == at(61) == journal.head()
    assert texts(content(journal, after=at(60))) == ["more"]


def test_a_generation_never_falls(open_journal: Open) -> None:
    """Positions grow along the log, so a record of an older source is refused."""
    journal = open_journal()
    journal.append([Record(b"new", generation=2)])
    with pytest.raises(AssertionError, match="generation"):
        journal.append([Record(b"old", generation=1)])
    assert journal.append([Record(b"newer", generation=3)]) == at(2, generation=3)
    for generation in (1, 2, 3, 9):  # places alone are in order: a bound may have any generation
        found = content(journal, after=at(1, generation), upto=at(2, generation))
        assert found == [Record(b"newer", generation=3)]


def test_what_is_kept_can_be_measured(open_journal: Open) -> None:
    """Bytes behind a position: never less than the payloads, less the later it is, and less after a trim."""
    journal = open_journal()
    records = numbered(1, 60)
    assert journal.size() == 0
    for record in records:
        journal.append([record])
    sizes = [journal.size(after=at(place)) for place in range(1, 60)]
    payloads = [sum(len(record.payload) for record in records[place:]) for place in range(1, 60)]
    assert all(size >= payload for size, payload in zip(sizes, payloads, strict=True))
    assert sizes == sorted(sizes, reverse=True)
    assert journal.size() == sizes[0] > 2 * sizes[-1] > 0
    assert journal.size(after=at(60)) == 0
    journal.trim(before=at(40))
    assert journal.size() < sizes[0]
    assert journal.size(after=at(50)) == sizes[49]


def test_at_its_budget_nothing_is_taken_and_nothing_dropped(open_journal: Open) -> None:
    """Until it is trimmed."""
    journal = open_journal(bytes_max=40_000)
    records = numbered(1, 500)

    def append_all() -> None:
        for record in records:
            journal.append([record])

    with pytest.raises(TruecutError, match="TC6005") as raised:
        append_all()
    assert raised.value.fault.retry is Retry.RETRYABLE
    head = journal.head()
    assert head is not None
    assert content(journal) == records[: head.place]
    journal.trim(before=at(head.place // 2))
    assert journal.append([records[head.place]]) == at(head.place + 1)
