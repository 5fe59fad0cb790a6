"""Garbage on the ports of a live node and coordinator: they survive, stay small, and the log is as it was.

What a node cannot know: whether what a producer calls committed (`known`) is on the other replicas. A client
that is let in and lies about it can make entries readable that this node has on disk and others lack; never
more than are there, and never any that another producer's segment does not have. Tokens and certificates keep
such clients out.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.journal.cluster import Cluster
from tests.journal.world import at, content, lines, numbered
from tests.patience import PATIENCE_S
from truecut.errors import TruecutError
from truecut.journal.frame import whole
from truecut.journal.record import PAYLOAD_BYTES_MAX, Record
from truecut.journal.replicated.node_server import ANSWER, SENT
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import FRAMES, Peer, headers_of
from truecut.journal.security import Security

SEED = 20_261
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
GROWTH_BYTES_MAX = 200 << 20
RECORDS = numbered(1, 40)
HUGE = (1 << 64) - 1


class Target:
    """One coordinator, two nodes, and a log whose content is known."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, nodes=2).start()
        self.journal = ReplicatedJournal(self.cluster.address, "log", answer_timeout_s=30.0)
        self.journal.append(RECORDS)
        segments = Peer(self.cluster.address, Security()).ask(
            "coordinator.segments", {"log": "log", "entry": 1, "newer_than": -1, "wait_s": 0}
        )
        (open_one,) = segments["segments"]
        self.home = Home("log", segments["log_id"], 1, 0, open_one["token"])
        self.node = f"127.0.0.1:{self.cluster.ports[0]}"
        status = self.cluster.status()
        (self.node_id,) = (one["node"] for one in status["nodes"] if one["address"] == self.node)
        self.ports = [self.cluster.ports[0], int(self.cluster.address.rpartition(":")[2])]
        self.processes = [
            psutil.Process(process.running.pid)
            for process in (*self.cluster.nodes, self.cluster.coordinator)
            if process.running is not None
        ]
        self._small = [process.memory_info().rss for process in self.processes]

    def must_be_well(self, expected: list[Record]) -> None:
        """All alive and small; the log as it was, for its writer and for a new reader; and it goes on."""
        assert all(process.is_running() for process in self.processes)
        grown = [
            process.memory_info().rss - before
            for process, before in zip(self.processes, self._small, strict=True)
        ]
        assert max(grown) < GROWTH_BYTES_MAX, grown
        assert content(self.journal) == expected
        reader = ReplicatedReader(self.cluster.address, "log")
        assert content(reader, upto=at(len(expected))) == expected
        reader.close()
        assert not [node for node in self.cluster.status()["nodes"] if node["damaged"]]
        assert "Traceback" not in self.cluster.said()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    found = Target(tmp_path_factory.mktemp("target"))
    yield found
    found.journal.close()
    found.cluster.stop()


def _garbage(rng: random.Random) -> bytes:
    """Bytes for a port: noise, half a greeting, frames that promise much more than follows."""
    noise = rng.randbytes(rng.randrange(1, 2_000))
    declared = struct.pack(">I", rng.randrange(1 << 20, 1 << 24))[1:]
    kind = bytes([rng.randrange(12), rng.randrange(256)])
    huge = declared + kind + struct.pack(">I", rng.randrange(1 << 31))
    return rng.choice(
        [
            noise,
            PREFACE[: rng.randrange(1, len(PREFACE))],
            PREFACE + noise,
            PREFACE + SETTINGS + huge + noise,
            PREFACE + SETTINGS * rng.randrange(1, 500),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01" + noise,
        ]
    )


def test_garbage_bytes(target: Target) -> None:
    """Two hundred connections that speak something else, some of them left open."""
    rng = random.Random(SEED)
    left_open = []
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", rng.choice(target.ports)), timeout=PATIENCE_S)
        with suppress(OSError):
            connection.sendall(_garbage(rng))
        if rng.random() < 0.2:
            left_open.append(connection)
        else:
            connection.close()
    target.must_be_well(RECORDS)
    for connection in left_open:
        connection.close()


def _mutated(rng: random.Random, data: bytes) -> bytes:
    """A few bytes are others, missing or more."""
    mutant = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(mutant) + 1)
        mutant[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(mutant)


def _options() -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=10.0, headers=headers_of(Security()))


def test_garbage_questions(target: Target) -> None:
    """Three hundred actions and tickets that were good once."""
    rng = random.Random(SEED + 1)
    home = asdict(target.home)
    actions: list[tuple[str, dict[str, Any]]] = [
        ("node.look", {"log": "log", "segment": 1, "beyond": 0, "wait_s": 0.0}),
        (
            "node.copy",
            {"home": home, "node": target.node_id, "source": target.node, "length": 3, "sealed": False},
        ),
        ("coordinator.segments", {"log": "log", "entry": 1, "newer_than": -1, "wait_s": 0}),
        ("coordinator.close", {"log": "log", "token": 999, "segment": 1, "end": 1}),
        ("coordinator.segment", {"log": "log", "token": 999, "after": 1, "end": 0, "suspects": ["x"]}),
    ]
    ticket = json.dumps({"log": "log", "segment": 1, "after": 0, "upto": 9}).encode()
    clients = [flight.FlightClient(f"grpc://{one}") for one in (target.node, target.cluster.address)]
    for _ in range(300):
        client = rng.choice(clients)
        name, question = rng.choice(actions)
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            if rng.random() < 0.3:
                client.do_get(flight.Ticket(_mutated(rng, ticket)), _options()).read_all()
            else:
                body = _mutated(rng, json.dumps(question).encode())
                list(client.do_action(flight.Action(name, body), _options()))
    with suppress(flight.FlightError, pa.ArrowException):
        clients[0].get_flight_info(flight.FlightDescriptor.for_path("x"), _options())
    with suppress(flight.FlightError, pa.ArrowException):
        list(clients[1].list_flights(b"\xff", _options()))
    target.must_be_well(RECORDS)


def _put(
    target: Target, command: bytes, schema: pa.Schema, batches: list[tuple[pa.RecordBatch | None, bytes]]
) -> list[tuple[int, int]]:
    """Send this to the node as a producer would; its answers."""
    client = flight.FlightClient(f"grpc://{target.node}")
    answers = []
    with suppress(flight.FlightError, pa.ArrowException, OSError, StopIteration):
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), schema, _options())
        for batch, metadata in batches:
            if batch is None:
                writer.write_metadata(pa.py_buffer(metadata))
            else:
                writer.write_with_metadata(batch, pa.py_buffer(metadata))
        writer.done_writing()
        while (answer := reader.read()) is not None:
            answers.append(ANSWER.unpack(answer.to_pybytes()))
        writer.close()
    client.close()
    return answers


def _command(target: Target) -> bytes:
    return json.dumps({"home": asdict(target.home), "node": target.node_id}).encode()


def _batch(*frames: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(frames, pa.large_binary())], schema=FRAMES)


def test_appends_that_are_none(target: Target) -> None:
    """Flipped bits, other columns, no frame, several, none of this segment, gaps, records that are too large:
    not one is acknowledged, and nothing of it is in the log."""
    rng = random.Random(SEED + 2)
    good = _frame(target.home, lines("never", "acknowledged"), first=41)
    behind = SENT.pack(41, 0)
    two = pa.schema([("frame", pa.large_binary()), ("more", pa.int64())])
    numbers = pa.schema([("frame", pa.int64())])
    text = pa.schema([("frame", pa.string())])
    large = pa.record_batch([pa.array([good], pa.large_binary()), pa.array([1])], schema=two)
    cases: list[tuple[pa.Schema, list[tuple[pa.RecordBatch | None, bytes]]]] = [
        (two, [(large, behind)]),
        (numbers, [(pa.record_batch([pa.array([7])], schema=numbers), behind)]),
        (text, [(pa.record_batch([pa.array(["x"])], schema=text), behind)]),
        (FRAMES, [(_batch(None), behind)]),
        (FRAMES, [(_batch(), behind)]),
        (FRAMES, [(_batch(good, good), behind)]),
        (FRAMES, [(_batch(b""), behind)]),
        (FRAMES, [(None, behind)]),
        (FRAMES, [(_batch(good), b"")]),
        (FRAMES, [(_batch(good), behind + b"x")]),
        (FRAMES, [(_batch(good), SENT.pack(0, 0))]),
        (FRAMES, [(_batch(good), SENT.pack(HUGE, 0))]),
        (FRAMES, [(_batch(good), SENT.pack(42, 0))]),
        (FRAMES, [(_batch(_frame(replace(target.home, token=999), lines("x"), first=41)), behind)]),
        (FRAMES, [(_batch(_frame(replace(target.home, log_id="ab" * 16), lines("x"), first=41)), behind)]),
        (FRAMES, [(_batch(_frame(target.home, lines("x"), first=99)), SENT.pack(99, 0))]),
        (FRAMES, [(_batch(_oversized(target.home)), behind)]),
    ]
    for schema, batches in cases:
        assert not [last for _, last in _put(target, _command(target), schema, batches) if last]
    for _ in range(100):
        mutant = _mutated(rng, good)
        if mutant != good:
            assert not _put(target, _command(target), FRAMES, [(_batch(mutant), behind)])
    for _ in range(100):
        command = _mutated(rng, _command(target))
        if command != _command(target):
            _put(target, command, FRAMES, [(_batch(_mutated(rng, good)), behind)])
    target.must_be_well(RECORDS)


def _frame(home: Home, records: list[Record], *, first: int) -> bytes:
    return whole(records, log_id=home.start.log_id, first=first, epoch=home.token)


def _oversized(home: Home) -> bytes:
    """A frame, right in itself, with a record that is too large."""
    from truecut.journal import record

    before = record.PAYLOAD_BYTES_MAX
    record.PAYLOAD_BYTES_MAX = 1 << 40
    try:
        return _frame(home, [Record(bytes(PAYLOAD_BYTES_MAX + 1))], first=41)
    finally:
        record.PAYLOAD_BYTES_MAX = before


def test_known_is_never_more_than_there_is(target: Target) -> None:
    """Whatever is called committed, a node shows no more than it has; and nobody reads beyond it."""
    for known in (HUGE, 41, 1 << 40):
        _put(target, _command(target), FRAMES, [(None, SENT.pack(0, known))])
    peer = Peer(target.node, Security())
    look = peer.ask("node.look", {"log": "log", "segment": 1, "beyond": 0, "wait_s": 0.0})
    assert (look["length"], look["visible"]) == (40, 40)
    peer.close()
    target.must_be_well(RECORDS)


def test_the_log_goes_on_afterwards(target: Target) -> None:
    """In the same segment: nothing of all that has ended it. What is repeated is known already."""
    home, frame = _command(target), _frame(target.home, RECORDS[:2], first=1)
    assert _put(target, home, FRAMES, [(_batch(frame), SENT.pack(1, 0))]) == [(0, 2)]
    assert target.journal.append(lines("next")) == at(41)
    target.must_be_well([*RECORDS, *lines("next")])
    assert target.cluster.status()["logs"][0]["segments"] == 1


def test_calls_that_are_not_offered(target: Target) -> None:
    """Are refused, by name."""
    for address, action in ((target.node, "coordinator.open"), (target.cluster.address, "node.fence")):
        peer = Peer(address, Security())
        with pytest.raises(TruecutError, match="TC6043"):
            peer.ask(action, {})
        peer.close()
