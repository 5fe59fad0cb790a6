"""A node that is sent what it has already, in part: each entry is there once, at its own place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from truecut.journal.frame import decode
from truecut.journal.record import Record
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.replica import Append, StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.security import Security

HOME = Home("log", "ab" * 16, 1, 40, 7)
ENTRIES = [Record(bytes([65 + n]) * 3) for n in range(6)]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[StoredReplica]:
    node = Node(tmp_path / "node", Security())
    yield node.replica_for(HOME)
    node.close()


def append(first: int, last: int) -> Append:
    return Append(first, ENTRIES[first - 1 : last], known=last)


def entries(replica: StoredReplica) -> list[tuple[int, bytes]]:
    found = []
    for data in replica.read(after=0, upto=len(ENTRIES)):
        header, records = decode(memoryview(data))
        found += [(place, one.payload) for place, one in enumerate(records, start=header.first - HOME.first)]
    return found


@pytest.mark.parametrize(
    "group",
    [
        pytest.param([append(1, 2)], id="all of it"),
        pytest.param([append(2, 4)], id="its beginning"),
        pytest.param([append(1, 4)], id="more before and behind"),
        pytest.param([append(1, 2), append(2, 3), append(3, 5)], id="one by the other"),
    ],
)
def test_what_is_there_already_is_not_written_again(replica: StoredReplica, group: list[Append]) -> None:
    """Not one entry is doubled, and none behind it is moved."""
    replica.append([append(1, 2)])
    last = max(one.index + len(one.records) - 1 for one in group)
    assert replica.append(group)[0] == last
    assert entries(replica) == [(n, one.payload) for n, one in enumerate(ENTRIES[:last], start=1)]


def test_what_does_not_follow_is_not_written(replica: StoredReplica) -> None:
    """Behind a gap nothing is taken, not even what comes with it and would follow."""
    assert replica.append([append(1, 2), append(4, 5), append(3, 3)]) == (2, "gap")
    assert entries(replica) == [(1, ENTRIES[0].payload), (2, ENTRIES[1].payload)]
