"""Where a replica may begin: a node never makes one where it had one, or for a segment that is over; what it
had and has lost is damaged, never empty; and no node answers in another one's name."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.journal import plain_reader
from tests.journal.served import OPEN, served_coordinator, served_node, until
from tests.journal.world import at, content, lines, numbered
from truecut.errors import ExitCode, TruecutError
from truecut.journal.frame import whole
from truecut.journal.record import Record
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.replica import Append
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.stream import ReplicaStream
from truecut.journal.replicated.wire import Message, Peer

FIRST = Home("log", "ab" * 16, 1, 0, 1)
SECOND = Home("log", "ab" * 16, 2, 0, 2)
RECORDS = lines(*"abcde")


def _with_five(folder: Path) -> None:
    """A node that has acknowledged five entries of an open segment, and stopped."""
    node = Node(folder, OPEN)
    assert node.replica_for(FIRST).append([Append(1, RECORDS, known=0)]) == (5, "appended")
    node.close()


# --- one node -----------------------------------------------------------------------------------------


def test_an_open_replica_whose_files_are_gone_is_damaged(tmp_path: Path) -> None:
    """Also when its whole folder is; the node's identity knows that it had one. It tells no length, and says
    that it is damaged."""
    _with_five(tmp_path)
    shutil.rmtree(tmp_path / "logs")
    for _ in range(2):
        node = Node(tmp_path, OPEN)
        with pytest.raises(TruecutError, match="TC6066"):
            node.replica_for(FIRST)
        with pytest.raises(TruecutError, match="TC6052"):
            node.fence(FIRST)
        assert node.damaged() == [("log", 1)]
        assert node.copy(FIRST, source="127.0.0.1:1", length=0, sealed=False) is None
        with pytest.raises(TruecutError, match="TC6052"):
            node.replica_for(FIRST).append([Append(1, RECORDS, known=0)])
        with pytest.raises(TruecutError, match="TC6052"):
            node.end(FIRST, end=5)
        node.close()


def test_a_node_that_lost_its_files_says_so_whatever_it_is_asked_first(tmp_path: Path) -> None:
    """Also when that is a copy: it cannot help to decide, and another one has to take its place."""
    _with_five(tmp_path)
    shutil.rmtree(tmp_path / "logs")
    node = Node(tmp_path, OPEN)
    assert node.copy(FIRST, source="127.0.0.1:1", length=0, sealed=False) is None
    assert node.damaged() == [("log", 1)]
    node.close()


def test_a_trimmed_segment_is_not_begun_again(tmp_path: Path) -> None:
    """Its files are gone for good; whoever still wants to write to it, or to fence it, is told."""
    _with_five(tmp_path)
    node = Node(tmp_path, OPEN)
    assert node.end(FIRST, end=5) == 5
    node.drop({"log": 1})
    for _ in range(2):
        with pytest.raises(TruecutError, match="TC6066"):
            node.replica_for(FIRST)
        assert node.has() == []
        node.close()
        node = Node(tmp_path, OPEN)
    assert node.replica_for(SECOND).append([Append(1, RECORDS, known=0)]) == (5, "appended")
    node.close()


@pytest.mark.parametrize("length", [0, 3, 5])
def test_a_copy_that_has_enough_already_is_told_again(tmp_path: Path, length: int) -> None:
    """It was made of a longer replica that is gone since; the coordinator has forgotten it, asks for one of
    a shorter replica. Nothing is fetched or moved, and what it has counts: otherwise the segment's end would
    be waited for for ever."""
    _with_five(tmp_path)
    node = Node(tmp_path, OPEN)
    assert node.fence(FIRST) == 5
    for _ in range(2):
        assert node.copy(FIRST, source="127.0.0.1:1", length=length, sealed=False) == 5
        found = plain_reader.read_replica(_state(tmp_path)).values()
        assert [row[0] for row in found] == [record.payload for record in RECORDS]
        assert not list(tmp_path.rglob("quarantine"))
        node.close()
        node = Node(tmp_path, OPEN)
    node.close()


def _state(folder: Path) -> Path:
    return FIRST.file_in(folder / "logs").with_suffix(".state")


def test_a_segment_that_was_trimmed_without_this_node_is_not_begun(tmp_path: Path) -> None:
    """It was cut off while the segment was taken over, ended and trimmed."""
    node = Node(tmp_path, OPEN)
    node.drop({"log": 1})
    for _ in range(2):
        with pytest.raises(TruecutError, match="TC6066"):
            node.replica_for(FIRST)
        node.close()
        node = Node(tmp_path, OPEN)
    assert node.fence(SECOND) == 0  # behind it, nothing was ever written here
    node.close()


def test_where_a_segment_ends_with_nothing_nothing_is_missing(tmp_path: Path) -> None:
    """A node that was never asked to write it seals it all the same, also behind later ones."""
    node = Node(tmp_path, OPEN)
    node.replica_for(SECOND)
    assert node.end(FIRST, end=0) == 0
    assert node.look(("log", 1), beyond=-1, wait_s=0.0).state == "sealed"
    assert node.damaged() == []
    node.close()


def test_logs_are_remembered_apart(tmp_path: Path) -> None:
    """What a node had of one log says nothing of another."""
    node = Node(tmp_path, OPEN)
    node.replica_for(Home("other", "cd" * 16, 7, 0, 1))
    assert node.fence(FIRST) == 0
    node.close()


# --- all of it ----------------------------------------------------------------------------------------


class Sleeper:
    """A producer that was told its segment, and slept until now."""

    def __init__(self, coordinator: str) -> None:
        self._peer = Peer(coordinator, OPEN)
        granted = self._peer.ask("coordinator.open", {"log": "log", "replicas": 2})
        self._token, self._id = granted["token"], granted["log_id"]
        asked = {"log": "log", "token": self._token, "after": 0, "end": None, "suspects": []}
        self.told = self._peer.ask("coordinator.segment", asked)
        self.acknowledged: list[str] = []
        self._streams: list[ReplicaStream] = []

    def wakes_up(self, records: list[Record]) -> None:
        """And writes to all of its replicas; returns when each has answered."""
        home = Home("log", self._id, self.told["segment"], self.told["first"], self._token)
        for node, address in self.told["nodes"].items():
            over = threading.Event()
            stream = ReplicaStream(
                address,
                OPEN,
                {"home": asdict(home), "node": node},
                acknowledged=lambda _, node=node: self.acknowledged.append(node),  # type: ignore[misc]
                over=lambda _, over=over: over.set(),  # type: ignore[misc]
            )
            frame = whole(records, log_id=home.start.log_id, first=home.first + 1, epoch=self._token)
            stream.send(frame, index=1, known=0)
            until(lambda over=over, node=node: over.is_set() or node in self.acknowledged)  # type: ignore[misc]
            self._streams.append(stream)

    def close(self) -> None:
        for stream in self._streams:
            stream.let_go()
        self._peer.close()


def test_a_producer_that_wakes_up_behind_a_trim_is_acknowledged_nothing(tmp_path: Path) -> None:
    """Paused between its grant and its first append; its segment was taken over, ended and trimmed."""
    with ExitStack() as stack:
        _, coordinator = stack.enter_context(served_coordinator(tmp_path / "c"))
        nodes = [stack.enter_context(served_node(tmp_path / name, coordinator))[0] for name in ("n0", "n1")]
        sleeper = stack.enter_context(closing(Sleeper(coordinator)))
        journal = stack.enter_context(closing(ReplicatedJournal(coordinator, "log")))
        journal.append(numbered(1, 3))
        until(lambda: _trimmed(journal, nodes))
        sleeper.wakes_up(lines("lost"))
        assert sleeper.acknowledged == []
        assert content(journal) == numbered(1, 3)


def _trimmed(journal: ReplicatedJournal, nodes: list[Node]) -> bool:
    journal.trim(before=at(1))
    return all(("log", 1) not in node.has() for node in nodes)


def test_an_open_replica_that_is_lost_never_shortens_the_log(tmp_path: Path) -> None:
    """Five entries on two nodes, the producer gone; the files of one are removed, its identity stays. The end
    comes from the other one, by a copy to a third."""
    with ExitStack() as stack:
        _, coordinator = stack.enter_context(served_coordinator(tmp_path / "c"))
        running = [ExitStack(), ExitStack()]
        names = [
            one.enter_context(served_node(tmp_path / f"n{n}", coordinator))[0].id
            for n, one in enumerate(running)
        ]
        with closing(Sleeper(coordinator)) as writer:
            writer.wakes_up(RECORDS)
        assert sorted(writer.acknowledged) == sorted(names)
        running[0].close()
        shutil.rmtree(tmp_path / "n0/logs")
        stack.enter_context(running[1])
        for name in ("n0", "n2"):
            stack.enter_context(served_node(tmp_path / name, coordinator))
        journal = stack.enter_context(closing(ReplicatedJournal(coordinator, "log")))
        assert journal.append(lines("f")) == at(6)
        assert content(journal) == [*RECORDS, *lines("f")]


def test_no_node_answers_in_the_name_of_another(tmp_path: Path) -> None:
    """A node with a new folder listens where another one did: it is not asked for what that one had, and
    takes no appends that were meant for it."""
    with ExitStack() as stack:
        _, coordinator = stack.enter_context(served_coordinator(tmp_path / "c"))
        _, address = stack.enter_context(served_node(tmp_path / "n", coordinator))
        peer = Peer(address, OPEN)
        home: Message = {"home": asdict(FIRST), "node": "somebody else"}
        for action, asked in {
            "node.fence": home,
            "node.end": {**home, "end": 0},
            "node.copy": {**home, "source": "127.0.0.1:1", "length": 0, "sealed": True},
        }.items():
            with pytest.raises(TruecutError, match="TC6022") as raised:
                peer.ask(action, asked)
            assert raised.value.exit_code is ExitCode.FAILED
        told: list[str] = []
        stream = ReplicaStream(
            address, OPEN, home, acknowledged=lambda _: told.append("taken"), over=told.append
        )
        stream.send(whole(RECORDS, log_id=FIRST.start.log_id, first=1, epoch=1), index=1, known=0)
        until(lambda: told)  # that it is refused may come as the stream's end: then nobody says why
        assert "taken" not in told
        stream.let_go()
        peer.close()
