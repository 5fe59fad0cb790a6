"""Flipped, cut and missing bytes in the files of a node and of the coordinator: refused, reported, or
repaired from the other replicas; never served as good, never taken for an end."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journal import plain_reader
from tests.journal.cluster import Cluster
from tests.journal.processes import Writer, check, run
from tests.journal.served import served, until
from tests.journal.world import content, lines, numbered
from tests.patience import PATIENCE_S
from truecut.core.segment_log import Log, Segment
from truecut.errors import ExitCode, TruecutError
from truecut.journal import disk
from truecut.journal.frame import decode
from truecut.journal.record import Record
from truecut.journal.replicated.inspection import inspect_node
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.registry import LogEntry, Registry
from truecut.journal.replicated.replica import Append, StoredReplica
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Peer
from truecut.journal.security import Security
from truecut.journal.segment import PAGE_BYTES, read_mark

SEALED = Home("log", "ab" * 16, 1, 0, 7)
OPEN = Home("log", "ab" * 16, 2, 6, 8)
RECORDS = {SEALED: lines(*"abcdef"), OPEN: lines(*"ghijkl")}
Hurt = Callable[[bytes, int], bytes]

FLIPPED: Hurt = lambda data, at: data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]  # noqa: E731
CUT: Hurt = lambda data, at: data[:at]  # noqa: E731
MISSING: Hurt = lambda data, at: data[:at] + data[at + 1 :]  # noqa: E731


@pytest.fixture
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here crashes, and thousands of folders are opened."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path, without_syncs: None) -> Path:
    """A node that was stopped with one sealed and one open replica, of three frames each."""
    node = Node(tmp_path / "node", Security())
    for home, records in RECORDS.items():
        replica = node.replica_for(home)
        for low in range(0, 6, 2):
            replica.append([Append(low + 1, records[low : low + 2], known=low)])
        replica.settle()
    assert node.end(SEALED, end=6) == 6
    node.join("the cluster")
    node.close()
    return tmp_path / "node"


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]


def _offsets(data: bytes) -> Iterator[int]:
    """All of them, but of a page's empty rest only some."""
    return (at for at in range(len(data)) if any(data[max(0, at - 8) : at + 8]) or at % 64 == 0)


def _cases(folder: Path, hurt: Hurt) -> Iterator[str]:
    """The folder with one file hurt, again and again."""
    originals = {path: path.read_bytes() for path in _files(folder)}
    for path, data in originals.items():
        for at in _offsets(data):
            path.write_bytes(hurt(data, at))
            yield f"{path.name} at {at}"
            for other, before in originals.items():
                other.write_bytes(before)


def _served(node: Node, home: Home) -> list[Record] | None:
    """All that it would give to another node, and count for; None when it says that it is damaged."""
    try:
        length = 6 if home is SEALED else node.fence(home)
        look = node.look((home.log, home.segment), beyond=-1, wait_s=0.0)
        assert (look.length, length) == (6, 6)
        frames = node.read((home.log, home.segment), after=0, upto=6, withheld=True)
        return [record for frame in frames for record in decode(memoryview(frame))[1]]
    except TruecutError as error:
        _must_be(error, "TC6052", ExitCode.FAILED)
        assert (home.log, home.segment) in node.damaged()
        return None


def _must_be(error: TruecutError, code: str, exit_code: ExitCode = ExitCode.VERIFICATION_FAILED) -> None:
    assert (error.fault.code, error.exit_code) == (code, exit_code)


@pytest.mark.parametrize("hurt", [FLIPPED, CUT, MISSING], ids=["flipped", "cut", "missing"])
def test_a_hurt_byte_is_never_served(folder: Path, hurt: Hurt) -> None:
    """At every offset of every file of a node: it gives all of its records as they were written, and tells
    its whole length, or says that it is damaged; also once it is started again. The inspection agrees."""
    seen = {"refused": 0, "damaged": 0, "harmless": 0}
    for case in _cases(folder, hurt):
        inspected = _inspected(folder)
        try:
            node = Node(folder, Security())
        except TruecutError as error:
            _must_be(error, "TC6063")
            assert inspected, case
            seen["refused"] += 1
            continue
        served = {home: _served(node, home) for home in RECORDS}
        node.close()
        for home, records in served.items():
            assert records in (None, RECORDS[home]), case
        assert inspected == (None in served.values()), case
        seen["damaged" if inspected else "harmless"] += 1
    assert min(seen.values()) > 0, seen


def _inspected(folder: Path) -> bool:
    """Whether damage is found by looking."""
    try:
        return any(one.damage for found in inspect_node(folder).values() for one in found)
    except TruecutError as error:
        _must_be(error, "TC6063")
        return True


def test_a_missing_file_is_damage(folder: Path) -> None:
    """A replica that has lost its state is not an empty one, which could be fenced at nothing."""
    for path in _files(folder):
        data = path.read_bytes()
        path.unlink()
        try:
            node = Node(folder, Security())
        except TruecutError as error:
            _must_be(error, "TC6063")
            assert path.name == "node.json"
        else:
            known = node.damaged()
            assert bool(known) == (path.suffix in (".log", ".state")), path.name
            assert _inspected(folder) == bool(known)
            for home in RECORDS:
                assert _served(node, home) in (None, RECORDS[home])
            node.close()
        path.write_bytes(data)
        for state in folder.rglob("*.state"):
            document = json.loads(state.read_bytes())
            document["damage"] = None  # what the node has written down of the file that was away
            _write_state(state, document)


def test_versions_from_the_future_are_refused(folder: Path) -> None:
    """In a node's identity and in a replica's state: the node does not start, and touches nothing."""
    for path in (folder / "node.json", folder / "logs/log/00000002.state"):
        original = path.read_bytes()
        _write_state(path, {**json.loads(original), "format": 99})
        before = {one: one.read_bytes() for one in _files(folder)}
        with pytest.raises(TruecutError, match="TC6007") as raised:
            Node(folder, Security())
        assert raised.value.exit_code is ExitCode.UNFIT_ENVIRONMENT
        assert before == {one: one.read_bytes() for one in _files(folder)}
        path.write_bytes(original)
    segment = folder / "logs/log/00000002.log"
    segment.write_bytes(segment.read_bytes().replace(b"TCJSEG1\n", b"TCJSEG9\n"))
    node = Node(folder, Security())
    assert _served(node, OPEN) is None
    assert _served(node, SEALED) == RECORDS[SEALED]
    node.close()


def _write_state(path: Path, document: dict[str, object]) -> None:
    document.pop("crc")
    document["crc"] = zlib.crc32(json.dumps(document, sort_keys=True).encode())
    path.write_text(json.dumps(document))


# --- disks that are full, and faults of ours ----------------------------------------------------------


def test_a_node_whose_disk_is_full_leaves_nothing_open(tmp_path: Path) -> None:
    """However often a replica is asked for; it is made when there is room."""
    node = Node(tmp_path / "node", Security())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    node.replica_for(SEALED)
    files = len(os.listdir("/proc/self/fd"))
    for room in (0, 100, 4_095, 4_096):  # for less than a page, or for a page
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            for _ in range(20):
                assert _refused(node, OPEN) == (None if room == 4_096 else "TC6010")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(os.listdir("/proc/self/fd")) <= files + 2  # of the replica that was made in the end
    assert node.replica_for(OPEN).append([Append(1, RECORDS[OPEN], known=0)]) == (6, "appended")
    assert node.fence(OPEN) == 6
    node.close()
    rows = plain_reader.read_replica(tmp_path / "node/logs/log/00000002.state")
    assert [row[0].decode() for row in rows.values()] == list("ghijkl")


def test_a_state_that_has_no_room_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_syncs: None
) -> None:
    """The segment's file was made, and the disk is full for what says so."""
    node = Node(tmp_path / "node", Security())
    files = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", _no_room)
        for _ in range(20):
            assert _refused(node, OPEN) == "TC6010"
    assert len(os.listdir("/proc/self/fd")) <= files
    assert node.replica_for(OPEN).look().state == "open"
    node.close()


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _refused(node: Node, home: Home) -> str | None:
    try:
        node.replica_for(home)
    except TruecutError as error:
        return error.fault.code
    return None


def test_a_fault_in_the_producers_thread_fails_every_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait and those that come; nobody waits for ever."""
    with served(tmp_path) as (coordinator, _):
        journal = ReplicatedJournal(coordinator, "log", answer_timeout_s=30.0)
        monkeypatch.setattr(ReplicatedJournal, "_ask_for_segment", _fault)
        answer = journal.submit(lines("a"))
        with pytest.raises(TruecutError, match=r"TC6012.*TypeError"):
            answer.result(timeout=PATIENCE_S)
        with pytest.raises(TruecutError, match="TC6012"):
            journal.append(lines("b"))
        journal.close()


def test_a_fault_in_a_nodes_thread_ends_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producer hears of it, and goes on with what is written once."""
    really = StoredReplica.append
    faults = iter([_fault])
    monkeypatch.setattr(StoredReplica, "append", lambda replica, group: next(faults, really)(replica, group))
    with served(tmp_path, nodes=3) as (coordinator, _):
        journal = ReplicatedJournal(coordinator, "log", answer_timeout_s=30.0)
        for text in "abc":
            journal.submit(lines(text)).result(timeout=PATIENCE_S)
        assert content(journal) == lines(*"abc")
        journal.close()


def _fault(*_: object) -> Any:
    raise TypeError("unforeseen")


# --- the coordinator ----------------------------------------------------------------------------------


Registered = tuple[str, dict[str, str], list[LogEntry]]


def _registered(folder: Path) -> Registered:
    registry = Registry(folder)
    try:
        return registry.cluster, registry.nodes(), registry.logs()
    finally:
        registry.close()


@pytest.fixture
def registered(tmp_path: Path) -> Path:
    """Two nodes and a log of three segments, one of them undecided."""
    folder = tmp_path / "c"
    registry = Registry(folder)
    nodes = frozenset({"one", "two"})
    for name in sorted(nodes):
        registry.save_node(name, f"127.0.0.1:70{len(name)}0")
    ended = [Segment(0, nodes, 1, 10, nodes), Segment(10, nodes, 1, 5, frozenset({"one"}))]
    entry = registry.save_log(None, LogEntry("log", "ab" * 16, 2))
    entry = registry.save_log(entry, LogEntry("log", "ab" * 16, 2, Log(tuple(ended), 1), entry.version))
    last = Log((*ended, Segment(15, nodes, 2)), 2)
    registry.save_log(entry, LogEntry("log", "ab" * 16, 2, last, entry.version))
    registry.close()
    return folder


@pytest.mark.parametrize("hurt", [FLIPPED, CUT], ids=["flipped", "cut"])
def test_a_hurt_registry_is_refused_or_the_same(registered: Path, hurt: Hurt) -> None:
    """At every offset of every file of the coordinator: exit 4, or exactly what was saved."""
    expected = _registered(registered)
    refused = same = 0
    assert [path.name for path in _files(registered) if path.stat().st_size] == ["coordinator.db"]
    for case in _cases(registered, hurt):
        before = (registered / "coordinator.db").read_bytes()
        try:
            assert _registered(registered) == expected, case
            same += 1
        except TruecutError as error:
            _must_be(error, "TC6058")
            assert (registered / "coordinator.db").read_bytes() == before, case
            refused += 1
    assert refused > 100
    assert same > 100 or hurt is CUT


def test_a_registry_that_is_gone_is_not_begun_anew(registered: Path) -> None:
    """Its nodes would belong to nobody."""
    (registered / "coordinator.db").unlink()
    with pytest.raises(TruecutError, match="TC6058"):
        Registry(registered)


def test_a_registry_from_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a version that does not know its format."""
    from truecut.journal.replicated import registry

    with monkeypatch.context() as patch:
        patch.setattr(registry, "FORMAT", 99)
        Registry(tmp_path).close()
    with pytest.raises(TruecutError, match="TC6007") as raised:
        Registry(tmp_path)
    assert raised.value.exit_code is ExitCode.UNFIT_ENVIRONMENT


# --- all of it, as processes --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("damaged")).start()
    yield running
    running.stop()


def _no_damage(status: dict[str, object]) -> bool:
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    return all(node["state"] == "alive" and not node["damaged"] for node in nodes)


def test_damaged_replicas_are_repaired_from_the_others(cluster: Cluster) -> None:
    """A reader gets everything meanwhile; what was damaged is kept aside; the inspection finds it before, and
    nothing afterwards. Repairing by hand is refused: the peers do it."""
    records = numbered(1, 300)
    journal = ReplicatedJournal(cluster.address, "sealed", segment_bytes_max=3_000)
    for low in range(0, 300, 10):
        journal.append(records[low : low + 10])
    journal.close()
    cluster.wait_for(lambda status: not any(log["unsealed"] for log in status["logs"]))
    node, folder = cluster.nodes[0], cluster.folder / "n0"
    good = {path.name: path.read_bytes() for path in (folder / "logs/sealed").glob("*.log")}
    assert node.end() == 0
    states = sorted((folder / "logs/sealed").glob("*.state"))
    assert len(states) >= 5
    damaged = [state.with_suffix(".log") for state in states[:5]]
    _rewrite(damaged[0], lambda data: FLIPPED(data, len(data) - 1))
    _rewrite(damaged[1], lambda data: CUT(data, PAGE_BYTES + 10))
    damaged[2].unlink()
    states[3].write_bytes(b"{}")
    states[4].unlink()
    found = run("inspect", str(folder), "--json")
    assert found.returncode == 4
    (listed,) = json.loads(found.stdout)["logs"]
    assert [one["file"] for one in listed["segments"] if one["damage"]] == [path.name for path in damaged]
    assert run("inspect", str(folder), "--repair").returncode == 2
    node.start()
    reader = ReplicatedReader(cluster.address, "sealed")
    assert content(reader) == records
    until(node.listens)  # the others were enough until now
    _make_it_read(f"127.0.0.1:{cluster.ports[0]}", "sealed", damaged, set(records))
    aside, kept = folder / "logs/sealed/quarantine", [one.name for one in damaged if one != damaged[2]]
    # What the node has found is told with its next sign of life: "no damage" may be of before.
    until(lambda: aside.is_dir() and sorted(path.name for path in aside.iterdir()) == kept)
    cluster.wait_for(_no_damage)
    assert content(reader) == records
    reader.close()
    assert sorted(path.name for path in aside.iterdir()) == kept
    looked = run("inspect", str(folder))
    assert looked.returncode == 0, looked
    assert "sealed" in looked.stdout
    assert "DAMAGED" not in looked.stdout
    assert {path.name for path in (folder / "logs/sealed").glob("*.log")} == good.keys()


def _make_it_read(node: str, log: str, damaged: list[Path], good: set[Record]) -> None:
    """Everything that it has: it finds its damage, unless it is repaired already."""
    peer = Peer(node, Security())
    for path in damaged:
        try:
            for frame in peer.get({"log": log, "segment": int(path.stem), "after": 0, "upto": 1 << 40}):
                assert set(decode(frame)[1]) <= good
        except TruecutError as error:
            _must_be(error, "TC6052", ExitCode.FAILED)
    peer.close()


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_a_damaged_open_replica_never_shortens_the_log(
    cluster: Cluster, started: Callable[[Any], Any]
) -> None:
    """Its producer is dead, and it has lost its last records: the end comes from the good replica, copied."""
    place = ["--coordinator", cluster.address]
    writer = started(Writer(place, "old"))
    writer.wait_for(200)
    number, addresses = _open_segment(cluster)
    victim = cluster.node_at(addresses[0])
    writer.process.send_signal(signal.SIGSTOP)
    cluster.nodes[victim].kill()
    writer.process.kill()
    writer.end()
    path = cluster.folder / f"n{victim}/logs/log/{number:08d}.log"
    _, _, written = read_mark(path)  # what follows is a write that the kill cut short
    _rewrite(path, lambda data: FLIPPED(data, written - 1))
    cluster.nodes[victim].start()
    next_writer = started(Writer(place, "new"))
    next_writer.wait_for(50)
    next_writer.process.kill()
    next_writer.end()
    cluster.wait_for(lambda status: _no_damage(status) and not any(log["open"] for log in status["logs"]))
    reader = ReplicatedReader(cluster.address, "log")
    found = check(reader, [writer, next_writer])
    reader.close()
    assert len(found) >= len(writer.acknowledged) + len(next_writer.acknowledged)
    assert (path.parent / "quarantine" / path.name).exists()


def _open_segment(cluster: Cluster) -> tuple[int, list[str]]:
    segment = cluster.segments()[-1]
    assert segment["end"] is None
    return segment["segment"], list(segment["nodes"].values())
