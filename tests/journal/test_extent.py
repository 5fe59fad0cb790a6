"""Extents: whole transactions within a limit, found without payloads."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.journal.conftest import Open
from tests.journal.world import at, numbered
from truecut.journal.extent import estimate_bytes, extent
from truecut.journal.local import LocalJournal
from truecut.journal.record import Record
from truecut.model.position import Position


def test_heads_are_the_records_without_their_payloads(open_journal: Open) -> None:
    """The same places and heads as `read`, in every range, with the length of each payload."""
    journal = open_journal()
    records = numbered(1, 40)
    for low in range(0, 40, 3):
        journal.append(records[low : low + 3])
    for after, upto in [(0, 40), (0, 1), (7, 8), (8, 31), (40, 40), (39, 1000)]:
        found = list(journal.heads(after=at(after), upto=at(upto)))
        expected = records[after:upto]
        assert [one.position.place for one in found] == list(range(after + 1, after + 1 + len(expected)))
        assert [one.head.payload_bytes for one in found] == [len(one.payload) for one in expected]


def transaction(*sizes: int, rows: int = 1) -> list[Record]:
    """A transaction of as many records as there are sizes."""
    last = len(sizes) - 1
    return [Record(b"x" * size, part=n, last=n == last, rows=rows) for n, size in enumerate(sizes)]


def test_an_unfinished_transaction_is_not_offered(open_journal: Open) -> None:
    """Until its last record is there; then it comes whole, also when it is larger than the limit."""
    journal = open_journal()
    assert extent(journal, after=None) is None
    journal.append([*transaction(1), *transaction(9, 9, 9)[:2]])
    for limit in (None, 1, 1000):
        assert extent(journal, after=None, bytes_max=limit) == at(1)
        assert extent(journal, after=at(1), bytes_max=limit) is None
    journal.append(transaction(9, 9, 9)[2:])
    assert extent(journal, after=None, bytes_max=20) == at(1)
    assert extent(journal, after=at(1), bytes_max=20) == at(4)
    assert extent(journal, after=None) == at(4)
    assert extent(journal, after=at(4)) is None


def test_a_transaction_that_a_dead_writer_began_and_the_next_began_again(open_journal: Open) -> None:
    """What was begun twice is offered with its end, not in between."""
    journal = open_journal()
    journal.append([*transaction(1), *transaction(1, 1, 1)[:2], *transaction(1, 1, 1)[:2]])
    assert extent(journal, after=None) == at(1)
    assert extent(journal, after=at(1)) is None
    journal.append(transaction(1, 1, 1)[2:])
    assert extent(journal, after=at(1)) == at(6)


def test_a_limit_may_be_in_rows(open_journal: Open) -> None:
    """As the records' heads count them."""
    journal = open_journal()
    journal.append([record for rows in (3, 4, 5) for record in transaction(1, rows=rows)])
    ends = [extent(journal, after=None, rows_max=rows) for rows in (1, 3, 6, 7, 11, 12, 99)]
    assert ends == [at(1), at(1), at(1), at(2), at(2), at(3), at(3)]


@given(
    sizes=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=12),
    cut=st.integers(0, 3),
    rows_max=st.none() | st.integers(1, 12),
    bytes_max=st.none() | st.integers(1, 120),
)
@hypothesis_settings(max_examples=60)
def test_extents_are_what_a_plain_loop_gives(
    sizes: list[list[int]], cut: int, rows_max: int | None, bytes_max: int | None
) -> None:
    """From every end to the next, until nothing whole is left."""
    transactions = [transaction(*one) for one in sizes]
    records = [record for one in transactions for record in one]
    cut = min(cut, len(transactions[-1]) - 1) if transactions else 0
    whole = transactions[:-1] if cut else transactions
    with TemporaryDirectory() as folder:
        journal = LocalJournal(Path(folder), segment_bytes_max=4_200)
        for answer in [journal.submit([record]) for record in records[: len(records) - cut]]:
            answer.result()
        found, after = [], None
        while (end := extent(journal, after=after, rows_max=rows_max, bytes_max=bytes_max)) is not None:
            found.append(end.place)
            after = end
        journal.close()
    assert found == _plain(whole, rows_max, bytes_max)


def _plain(transactions: list[list[Record]], rows_max: int | None, bytes_max: int | None) -> list[int]:
    ends: list[int] = []
    place = rows = size = 0
    for n, one in enumerate(transactions):
        rows, size = rows + len(one), size + sum(len(record.payload) for record in one)
        over = (rows_max is not None and rows > rows_max) or (bytes_max is not None and size > bytes_max)
        if over and n and place != (ends[-1] if ends else 0):
            ends.append(place)
            rows, size = len(one), sum(len(record.payload) for record in one)
        place += len(one)
    return [*ends, place] if place else []


def test_the_estimate_is_exact_for_few_records_and_near_for_many(open_journal: Open) -> None:
    """Work is divided by it."""
    journal = open_journal()
    records = numbered(1, 300)
    for low in range(0, 300, 50):
        journal.append(records[low : low + 50])
    true = sum(len(record.payload) for record in records)
    assert estimate_bytes(journal, after=2, upto=at(9)) == sum(len(one.payload) for one in records[2:9])
    assert true / 2 < estimate_bytes(journal, after=0, upto=Position(1, 300)) < true * 2
