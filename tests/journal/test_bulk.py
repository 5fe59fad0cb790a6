"""Frames in bulk: all of a range in order, or a prefix and an error; to whom the node gave a ticket, once."""

from __future__ import annotations

import secrets
import socket
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.journal.certificates import Authority
from tests.journal.cluster import Cluster
from tests.journal.served import ANYWHERE, served, served_coordinator, served_node, until
from tests.patience import PATIENCE_S
from truecut.config.secret import Secret
from truecut.errors import TruecutError
from truecut.journal.frame import whole
from truecut.journal.record import Damaged, Record
from truecut.journal.replicated import bulk as bulk_server
from truecut.journal.replicated import node_server
from truecut.journal.replicated.bulk import SECRET_BYTES, BulkServer, Pieces, fetch
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.node_server import batch_of
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import BULK_ENTRIES_MIN, ReplicatedReader
from truecut.journal.replicated.replica import Append
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message, Peer
from truecut.journal.scan import Piece, Run
from truecut.journal.security import Security
from truecut.journal.segment import PAGE_BYTES
from truecut.listen_address import Address

HOME = Home("log", "ab" * 16, 1, 40, 7)
BELONGS: Message = {"log_id": HOME.log_id, "epoch": HOME.token}
HOST = "127.0.0.1"
LARGE_BYTES = 256 << 10
LARGE = 256  # 64 MiB: far more than sockets hold


def _records(count: int, sizes: tuple[int, ...]) -> list[Record]:
    chance = Random(count)
    return [Record(chance.randbytes(sizes[n % len(sizes)]), part=n) for n in range(count)]


@pytest.fixture
def bulk() -> Iterator[BulkServer]:
    server = BulkServer(ANYWHERE)
    yield server
    server.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", Security())
    yield node
    node.close()


def _written(node: Node, frames: list[list[Record]], *, known: int) -> list[Record]:
    """A segment of these frames, of which so many entries are committed."""
    replica, length = node.replica_for(HOME), 0
    for records in frames:
        replica.append([Append(length + 1, records, known=0)])
        length += len(records)
    replica.know(known)
    return [record for records in frames for record in records]


def _promise(bulk: BulkServer, node: Node, *, after: int, upto: int) -> Message:
    home, pieces = node.pieces(("log", 1), after=after, upto=upto)
    assert home == HOME
    return {**BELONGS, **bulk.promise(pieces)}


def _entries(frames: Any) -> list[tuple[int, Record]]:
    return [one for header, records in frames for one in enumerate(records, start=header.first)]


def test_every_range_is_whole_and_in_order(bulk: BulkServer, node: Node) -> None:
    """Whichever frames it begins and ends in. What is not committed is not sent; the first frame may reach
    back before the range."""
    sizes = [[0, 1], [2000, 5, 70_000], [9], [300_000, 0, 0, 12], [1_200_000, 1_200_000], [3, 4, 5]]
    chance = Random(1)
    frames = [[Record(chance.randbytes(size), part=n) for n, size in enumerate(one)] for one in sizes]
    records = _written(node, frames, known=14)
    for after in range(16):
        for upto in range(after, 17):
            found = _entries(fetch(HOST, _promise(bulk, node, after=after, upto=upto)))
            expected = [(HOME.first + n, records[n - 1]) for n in range(after + 1, min(upto, 14) + 1)]
            begun = next((n for n, entry in enumerate(found) if entry[0] > HOME.first + after), 0)
            assert found[begun:] == expected, (after, upto)
            assert all(record == records[place - HOME.first - 1] for place, record in found[:begun])


class _Cable:
    """To a port, for one connection: it breaks behind so many bytes, quietly or with a reset."""

    def __init__(self, port: int, bytes_max: int, *, reset: bool = False) -> None:
        self._port, self._left, self._reset = port, bytes_max, reset
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._carry, daemon=True).start()

    def _carry(self) -> None:
        with (
            self._listening,
            self._listening.accept()[0] as one,
            socket.create_connection((HOST, self._port)) as other,
            suppress(OSError),
        ):
            other.sendall(one.recv(SECRET_BYTES, socket.MSG_WAITALL))
            while self._left and (data := other.recv(min(self._left, 1 << 16))):
                one.sendall(data)
                self._left -= len(data)
            if self._reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_cable_that_breaks_anywhere_leaves_a_prefix(bulk: BulkServer, node: Node) -> None:
    """Every record that came is the right one. A cable that breaks within a frame is an error."""
    records = _written(node, [_records(3, (40, 30, 700)), _records(2, (5,)), _records(1, (90,))], known=6)
    whole = [(HOME.first + n, record) for n, record in enumerate(records, start=1)]
    seen = set()
    for bytes_max in range(0, 1600, 7):
        told = _promise(bulk, node, after=0, upto=6)
        cable = _Cable(bulk.port, bytes_max)
        found: list[tuple[int, Record]] = []
        try:
            for header, some in fetch(HOST, {**told, "port": cable.port}):
                for place, record in enumerate(some, start=header.first):
                    found.append((place, record))
        except (OSError, Damaged):
            pass
        else:
            assert len(found) in (3, 5, 6)
        assert found == whole[: len(found)]
        seen.add(len(found))
    assert seen == {0, 1, 2, 3, 4, 5, 6}


def _hurt(told: Message, **changed: Any) -> Message:
    return {**told, **changed}


def test_only_what_was_asked_for_is_believed(bulk: BulkServer, node: Node) -> None:
    """Frames of another log or writer are refused, and so is whoever does not know the proof."""
    _written(node, [_records(4, (40,))], known=4)
    for changed in (
        {"log_id": "cd" * 16},
        {"epoch": HOME.token + 1},
        {"proof": secrets.token_hex(SECRET_BYTES)},
    ):
        with pytest.raises(Damaged):
            _entries(fetch(HOST, _hurt(_promise(bulk, node, after=0, upto=4), **changed)))


def test_frames_that_do_not_follow_each_other_are_refused(bulk: BulkServer) -> None:
    """A node that leaves one out, sends one twice, or begins anew: what came before is right, and no more."""
    one, two, three = (
        whole([Record(bytes(n))], log_id=HOME.start.log_id, first=HOME.start.first + n, epoch=HOME.token)
        for n in range(3)
    )
    for sent in ([one, three], [one, one], [two, one]):
        found = fetch(HOST, {**BELONGS, **bulk.promise(partial(iter, sent))})
        assert len(list(next(found)[1])) == 1
        with pytest.raises(Damaged):
            next(found)
    assert len(_entries(fetch(HOST, {**BELONGS, **bulk.promise(partial(iter, [one, two, three]))}))) == 3


def test_a_ticket_is_good_once_and_nothing_else_is(bulk: BulkServer, node: Node) -> None:
    """Who shows another one, or shows it again, hears nothing at all."""
    _written(node, [_records(4, (40,))], known=4)
    told = _promise(bulk, node, after=0, upto=4)
    assert len(_entries(fetch(HOST, told))) == 4
    for shown in (
        bytes.fromhex(told["ticket"]),
        secrets.token_bytes(SECRET_BYTES),
        b"GET / HTTP/1.1\r\n" * 2,
    ):
        with socket.create_connection((HOST, bulk.port), PATIENCE_S) as stranger:
            stranger.sendall(shown)
            assert stranger.recv(1) == b""


def test_a_ticket_that_is_shown_too_late_is_good_for_nothing(
    bulk: BulkServer, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says for how long it is good."""
    _written(node, [_records(4, (40,))], known=4)
    monkeypatch.setattr(bulk_server, "TICKET_S", 0.0)
    with pytest.raises((Damaged, OSError)):
        _entries(fetch(HOST, _promise(bulk, node, after=0, upto=4)))


def test_a_slow_reader_is_waited_for_within_bounds(bulk: BulkServer, node: Node) -> None:
    """While it takes its time the node does not read ahead, others are served, and in the end it has
    everything; a reader never holds more than a few records."""
    records = _written(node, [_records(8, (LARGE_BYTES,)) for _ in range(LARGE // 8)], known=LARGE)
    sent: list[Piece] = []

    def counted() -> Iterator[Piece]:
        for piece in node.pieces(("log", 1), after=0, upto=LARGE)[1]():
            sent.append(piece)
            yield piece

    slow = fetch(HOST, {**BELONGS, **bulk.promise(counted)})
    header, first = next(slow)
    assert next(iter(first)) == records[0]
    tracemalloc.start()
    place = 0
    for quick_header, some in fetch(HOST, _promise(bulk, node, after=0, upto=LARGE)):
        for place, record in enumerate(some, start=quick_header.first - HOME.first):
            assert record == records[place - 1]
    assert place == LARGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * LARGE_BYTES, "of 64 MiB"
    assert sum(piece.size for piece in sent if isinstance(piece, Run)) < LARGE * LARGE_BYTES // 2
    rest = [*first, *(record for _, some in slow for record in some)]
    assert rest == records[1:]
    assert header.first == HOME.first + 1


def test_a_reader_that_takes_nothing_any_more_makes_room(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """It has shown its ticket and holds the only place there is; the next one gets it, and everything."""
    monkeypatch.setattr(bulk_server, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(bulk_server, "UNTAKEN_S", 0.5)
    records = _written(node, [_records(8, (LARGE_BYTES,)) for _ in range(LARGE // 8)], known=LARGE)
    bulk = BulkServer(ANYWHERE)

    def read() -> list[Record] | None:
        with suppress(OSError, Damaged):  # no place yet
            found = fetch(HOST, _promise(bulk, node, after=0, upto=LARGE))
            return [record for _, some in found for record in some]
        return None

    try:
        stopped = fetch(HOST, _promise(bulk, node, after=0, upto=LARGE))
        next(stopped)
        until(lambda: (found := read()) is not None and found == records)
    finally:
        bulk.close()


@pytest.fixture
def no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read is read in bulk."""

    def get(*_: Any, **__: Any) -> Iterator[memoryview]:
        raise AssertionError("frames were asked for by call")

    monkeypatch.setattr(Peer, "get", get)


def _append(coordinator: str, records: list[Record], security: Security | None = None) -> None:
    with closing(ReplicatedJournal(coordinator, "log", security=security)) as journal:
        for low in range(0, len(records), 8):
            journal.append(records[low : low + 8])


def _read(coordinator: str, count: int, security: Security | None = None) -> list[Record]:
    with closing(ReplicatedReader(coordinator, "log", security=security)) as reader:
        until(lambda: (head := reader.head()) is not None and head.place == count)
        found = list(reader.read(after=None))
    assert [position.place for position, _ in found] == list(range(1, count + 1))
    return [record for _, record in found]


def test_readers_fetch_much_in_bulk(tmp_path: Path, no_calls: None) -> None:
    """Every record, in order, and no frame by a call; with a token as without."""
    records = _records(4 * BULK_ENTRIES_MIN, (10, 0, 100_000))
    for name, security in (("open", Security()), ("token", Security(Secret("open-sesame-4711")))):
        with served(tmp_path / name, security=security) as (coordinator, _):
            _append(coordinator, records, security)
            assert _read(coordinator, len(records), security) == records


def test_a_ticket_is_given_to_those_alone_who_may_read(tmp_path: Path) -> None:
    """Who does not know the token gets none."""
    security = Security(Secret("open-sesame-4711"))
    with served(tmp_path, security=security) as (coordinator, nodes):
        _append(coordinator, _records(2, (10,)), security)
        asked = {"log": "log", "segment": 1, "after": 0, "upto": 2}
        for address in nodes:
            for known, answered in ((security, True), (Security(), False), (Security(Secret("no")), False)):
                with closing(Peer(address, known)) as peer:
                    if answered:
                        assert peer.ask("node.bulk", asked)["port"]
                        continue
                    with pytest.raises(TruecutError, match="TC6042"):
                        peer.ask("node.bulk", asked)


def test_encrypted_wires_carry_everything_themselves(tmp_path: Path) -> None:
    """With TLS there is no plain port, and what is read is the same."""
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority", "ours")
    member = authority.sign("member")
    security = Security(
        authority=authority.own.certificate.read_bytes(),
        certificate=member.certificate.read_bytes(),
        key=Secret(member.key.read_text()),
    )
    records = _records(2 * BULK_ENTRIES_MIN, (10, 50_000))
    with served(tmp_path, security=security) as (coordinator, nodes):
        _append(coordinator, records, security)
        for address in nodes:
            with closing(Peer(address, security)) as peer, pytest.raises(TruecutError, match="TC6043"):
                peer.ask("node.bulk", {"log": "log", "segment": 1, "after": 0, "upto": 1})
        assert _read(coordinator, len(records), security) == records


def test_a_port_that_cannot_be_reached_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a firewall, say: everything is read by calls."""
    made: list[BulkServer] = []

    class Remembered(BulkServer):
        def __init__(self, listen: Address) -> None:
            super().__init__(listen)
            made.append(self)

    monkeypatch.setattr(node_server, "BulkServer", Remembered)
    records = _records(2 * BULK_ENTRIES_MIN, (10, 50_000))
    with served(tmp_path) as (coordinator, _):
        _append(coordinator, records)
        assert len(made) == 2
        for server in made:
            server.close()
        assert _read(coordinator, len(records)) == records


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("bytes_max", [0, 20, SECRET_BYTES, 50_000, 700_001])
def test_a_connection_that_breaks_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int, reset: bool
) -> None:
    """The rest is read by a call: every record, once and in order. Also where it breaks between two frames,
    which looks like an end (here before the first)."""

    class Cut(BulkServer):
        def promise(self, pieces: Pieces) -> Message:
            told = super().promise(pieces)
            return {**told, "port": _Cable(self.port, bytes_max, reset=reset).port}

    monkeypatch.setattr(node_server, "BulkServer", Cut)
    records = _records(2 * BULK_ENTRIES_MIN, (10, 100_000))
    with served(tmp_path) as (coordinator, _):
        _append(coordinator, records)
        assert _read(coordinator, len(records)) == records


def test_damage_that_a_reader_finds_is_known_to_the_node(tmp_path: Path) -> None:
    """A hurt payload is never shown, the other replica is read, and the node says what it has."""
    records = _records(2 * BULK_ENTRIES_MIN, (1000,))
    with (
        served_coordinator(tmp_path / "c") as (_, coordinator),
        served_node(tmp_path / "n0", coordinator) as (one, _),
        served_node(tmp_path / "n1", coordinator) as (other, _),
    ):
        _append(coordinator, records)
        with closing(Peer(coordinator, Security())) as peer:
            asked = {"log": "log", "entry": 1, "newer_than": -1, "wait_s": 0}
            (segment,) = peer.ask("coordinator.segments", asked)["segments"]
        read_first = list(segment["nodes"])[segment["segment"] % 2]
        hurt = one if one.id == read_first else other
        (path,) = hurt.folder.rglob("*1.log")
        data = bytearray(path.read_bytes())
        at = data.index(records[20].payload, PAGE_BYTES)
        data[at + 500] ^= 1
        path.write_bytes(data)
        assert _read(coordinator, len(records)) == records
        until(lambda: hurt.damaged() or path.read_bytes() != data)  # or repaired already


def test_a_node_that_dies_meanwhile_is_replaced_by_another(tmp_path: Path) -> None:
    """Whichever of the two it is, everything is read, once and in order."""
    records = _records(LARGE // 2, (LARGE_BYTES,))
    cluster = Cluster(tmp_path, nodes=2).start()
    try:
        _append(cluster.address, records)
        for dying in cluster.nodes:
            with closing(ReplicatedReader(cluster.address, "log")) as reader:
                until(lambda: (head := reader.head()) is not None and head.place == len(records))
                reading = reader.read(after=None)
                found = [next(reading) for _ in range(10)]
                dying.kill()
                found += reading
            assert [position.place for position, _ in found] == list(range(1, len(records) + 1))
            assert [record for _, record in found] == records
            cluster.wait_for(lambda status: sum(node["state"] == "alive" for node in status["nodes"]) == 1)
            dying.start()
            cluster.wait_for(lambda status: sum(node["state"] == "alive" for node in status["nodes"]) == 2)
    finally:
        cluster.stop()


def test_frames_become_a_batch_without_pandas() -> None:
    """Which takes seconds, and much memory, of each node that has it installed."""
    assert batch_of([b"a", b"", b"bc"]).column(0).to_pylist() == [b"a", b"", b"bc"]
    assert batch_of([b"abc"]).column(0).to_pylist() == [b"abc"]
    program = (
        "import sys; from truecut.journal.replicated.node_server import batch_of; "
        "batch_of([b'a', b'bc']); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
