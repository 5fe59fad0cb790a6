"""What only a replicated log promises: ends are told until all replicas have them, lost replicas are copied,
an owner that was replaced has no effect, and a coordinator that is down stops nobody."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.journal.cluster import Cluster
from tests.journal.processes import Follower, Writer, check
from tests.journal.served import until
from tests.journal.world import at, content, numbered
from truecut.errors import TruecutError
from truecut.journal.frame import decode
from truecut.journal.record import Record
from truecut.journal.replicated.inspection import inspect_node
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.wire import Peer
from truecut.journal.security import Security

REPLACE_AFTER = "3s"


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node that is down for three seconds is given up."""
    folder = tmp_path_factory.mktemp("fragile")
    running = Cluster(folder, coordinator_options=["--replace-after", REPLACE_AFTER]).start()
    yield running
    running.stop()


def _held(address: str, log: str, segment: int) -> list[Record]:
    """What this very node has of a segment."""
    peer = Peer(address, Security())
    try:
        frames = peer.get({"log": log, "segment": segment, "after": 0, "upto": 1 << 40})
        return [record for frame in frames for record in decode(frame)[1]]
    finally:
        peer.close()


def test_an_end_is_told_until_every_replica_has_it(fragile: Cluster) -> None:
    """Also by a coordinator that was killed in between, and to a node that was down meanwhile."""
    records = numbered(1, 20)
    journal = ReplicatedJournal(fragile.address, "ended")
    journal.append(records)
    (segment,) = fragile.segments("ended")
    victim = fragile.node_at(min(segment["nodes"].values()))
    fragile.nodes[victim].kill()
    journal.close()
    assert fragile.segments("ended")[0]["end"] == 20
    fragile.coordinator.kill()
    fragile.coordinator.start()
    fragile.wait_for(lambda status: sum(log["unsealed"] for log in status["logs"]) == 1)
    fragile.coordinator.kill()
    fragile.coordinator.start()
    fragile.nodes[victim].start()
    fragile.wait_for(lambda status: not any(log["unsealed"] for log in status["logs"]))
    for address in segment["nodes"].values():
        assert _held(address, "ended", 1) == records
        (listed,) = inspect_node(fragile.folder / f"n{fragile.node_at(address)}")[
            fragile.folder / f"n{fragile.node_at(address)}" / "logs" / "ended"
        ]
        assert (listed.state, listed.first, listed.last) == ("sealed", 1, 20)


def test_a_coordinator_that_is_down_stops_nobody(fragile: Cluster, started: Callable[[Any], Any]) -> None:
    """Appends to the open segment go on, and readers follow; nobody can open the log meanwhile."""
    place = ["--coordinator", fragile.address]
    writer = started(Writer(place, "w", log="going-on"))
    writer.wait_for(10)
    follower = started(Follower(place, log="going-on"))
    follower.wait_for(10)
    fragile.coordinator.kill()
    writer.wait_for(len(writer.acknowledged) + 200)
    follower.wait_for(len(writer.acknowledged))
    with pytest.raises(TruecutError, match="TC6041"):
        ReplicatedJournal(fragile.address, "going-on")
    writer.wait_for(len(writer.acknowledged) + 50)
    fragile.coordinator.start()
    fragile.wait_for(lambda status: all(node["state"] == "alive" for node in status["nodes"]))
    writer.process.kill()
    writer.end()
    ReplicatedJournal(fragile.address, "going-on").close()  # its end need not be waited for
    follower.wait_for(len(writer.acknowledged))
    follower.end()
    reader = ReplicatedReader(fragile.address, "going-on")
    found = check(reader, [writer])
    reader.close()
    assert follower.read == list(enumerate(found[: len(follower.read)], start=1))


def test_an_owner_that_was_replaced_has_no_effect(fragile: Cluster, started: Callable[[Any], Any]) -> None:
    """Stopped in the middle of its appends; it wakes up when another one owns the log, and what it had under
    way changes nothing."""
    place = ["--coordinator", fragile.address]
    old = started(Writer(place, "old", log="taken"))
    old.wait_for(100)
    old.process.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    new = ReplicatedJournal(fragile.address, "taken")
    before = content(new)
    assert len(before) >= len(old.acknowledged)
    last = new.append(numbered(1, 5))
    old.process.send_signal(signal.SIGCONT)
    assert old.end() == 1
    assert content(new) == [*before, *numbered(1, 5)]
    assert len(old.acknowledged) <= len(before)
    assert new.append(numbered(6, 7)) == at(last.place + 2)
    assert content(new) == [*before, *numbered(1, 7)]
    new.close()


def test_lost_replicas_are_copied_to_other_nodes(fragile: Cluster) -> None:
    """A node stays away: each of its finished segments is copied from the other replica, whole; then that one
    may go, too."""
    records = numbered(1, 60)
    journal = ReplicatedJournal(fragile.address, "copied", segment_bytes_max=3_000)
    for low in range(0, 60, 10):
        journal.append(records[low : low + 10])
    journal.close()
    fragile.wait_for(lambda status: not any(log["unsealed"] for log in status["logs"]))
    gone = fragile.nodes[0]
    address = f"127.0.0.1:{fragile.ports[0]}"
    before = fragile.segments("copied")
    lost = [one["segment"] for one in before if address in one["nodes"].values()]
    assert 0 < len(lost) < len(before)
    gone.kill()
    until(lambda: all(address not in one["nodes"].values() for one in fragile.segments("copied")))
    for one in fragile.segments("copied"):
        assert len(one["nodes"]) == 2
        for holder in one["nodes"].values():
            assert (
                _held(holder, "copied", one["segment"]) == records[one["first"] : one["first"] + one["end"]]
            )
    fragile.wait_for(lambda status: not any(log["under_replicated"] for log in status["logs"]))
    fragile.nodes[1].kill()
    reader = ReplicatedReader(fragile.address, "copied")
    assert content(reader) == records
    reader.close()
    for node in (gone, fragile.nodes[1]):
        node.start()
    fragile.wait_for(lambda status: all(node["state"] == "alive" for node in status["nodes"]))
