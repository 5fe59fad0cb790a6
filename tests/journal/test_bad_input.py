"""What nodes and coordinator are told that makes no sense: refused with what to do, and nothing happens."""

from __future__ import annotations

import json
import select
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.journal.cluster import Cluster
from tests.journal.processes import ended, run, start
from tests.journal.served import OPEN, served, served_coordinator, served_node, until
from tests.journal.world import at, content, lines, texts
from tests.patience import PATIENCE_S
from tests.ports import free_port
from truecut.errors import ExitCode, TruecutError
from truecut.journal.frame import APPEND_HEADS_BYTES_MAX, encode, parse_header, size_of
from truecut.journal.record import Record
from truecut.journal.replicated import wire
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.journal.replicated.reader import ReplicatedReader
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message, Peer

NOT_FOLDERS = [
    "",
    ".",
    "..",
    "../x",
    "/x",
    "a/b",
    ".hidden",
    "a\0b",
    "a\nb",
    "x" * 201,
    "é" * 101,
    7,
    None,
    ["x"],
]
OPTIONAL = [("beyond", -1), ("newer_than", -1), ("end", None), ("entry", None)]
NOT_COUNTS = [-1, 1 << 63, 10**40, 1.5, float("nan"), float("inf"), True, "1", None, [], {}]
HOME = asdict(Home("other", "cd" * 16, 1, 0, 1))

# Each question as it should be, and its numbers.
COORDINATOR: dict[str, Message] = {
    "heartbeat": {
        "node": "n",
        "cluster": None,
        "address": "127.0.0.1:1",
        "instance": "i",
        "full": False,
        "damaged": [],
        "abandoned": [],
    },
    "open": {"log": "other", "replicas": 2},
    "settled": {"log": "log", "token": 1},
    "segment": {"log": "log", "token": 1, "after": 0, "end": 1, "suspects": []},
    "close": {"log": "log", "token": 1, "segment": 1, "end": 1},
    "trim": {"log": "log", "token": 1, "before": 1},
    "segments": {"log": "log", "entry": 1, "newer_than": -1, "wait_s": 0.0},
}
NODE: dict[str, Message] = {
    "fence": {"home": HOME},
    "end": {"home": HOME, "end": 1},
    "copy": {"home": HOME, "source": "127.0.0.1:1", "length": 1, "sealed": True},
    "look": {"log": "log", "segment": 1, "beyond": 0, "wait_s": 0.0},
    "bulk": {"log": "log", "segment": 1, "after": 0, "upto": 3},
}
REFUSED = ("TC6045", "TC6060")


class Served:
    """A coordinator and two nodes with a log of three records."""

    def __init__(self, folder: Path, coordinator: str, nodes: list[str]) -> None:
        self.folder = folder
        self.coordinator = Peer(coordinator, OPEN)
        self.node = Peer(nodes[0], OPEN)
        status = self.coordinator.ask("coordinator.status", {})
        (self.node_id,) = (one["node"] for one in status["nodes"] if one["address"] == nodes[0])
        self.journal = ReplicatedJournal(coordinator, "log")
        self.journal.append(lines("a", "b", "c"))
        self.reader = ReplicatedReader(coordinator, "log")

    def must_be_as_before(self, files: set[str]) -> None:
        """The log, the nodes and the folders; and the log goes on."""
        assert texts(content(self.journal)) == ["a", "b", "c"]
        status = self.coordinator.ask("coordinator.status", {})
        assert [log["log"] for log in status["logs"]] == ["log"]
        assert [node["state"] for node in status["nodes"]] == ["alive", "alive"]
        assert self.files() == files

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.parent.rglob("*.log")}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served") / "inner"
    with served(folder) as (coordinator, nodes):
        found = Served(folder, coordinator, nodes)
        yield found
        found.journal.close()
        found.reader.close()


def _bad(question: Message) -> Iterator[Message]:
    """The question with one field missing, or with something else in it."""
    for key, value in question.items():
        yield {name: other for name, other in question.items() if name != key}
        for one in _instead_of(key, value):
            yield {**question, key: one}


def _instead_of(key: str, value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*_bad(value), None, [], "x", 7]
    if isinstance(value, bool):
        return [None, 0, "yes", []]
    if isinstance(value, int):
        return [one for one in NOT_COUNTS if (key, one) not in OPTIONAL]
    if isinstance(value, float):
        return [-1, float("nan"), float("inf"), "1", None, True]
    if isinstance(value, list):
        return [None, 7, {}, "x", [7], [["a"]], [["../x", 1]]]
    return NOT_FOLDERS if key == "log" else ["", "x" * 201, "a\0b", "\ud800", 7, []]


@pytest.mark.parametrize(
    ("role", "name"),
    [("coordinator", name) for name in COORDINATOR] + [("node", name) for name in NODE],
)
def test_no_field_of_any_question_is_taken_on_trust(log: Served, role: str, name: str) -> None:
    """Missing, of another kind, negative, huge, odd, or a path where a name should be: refused, with a code
    that no retry answers; and nothing has happened."""
    question = {"coordinator": COORDINATOR, "node": NODE}[role][name]
    if "home" in question:
        question = {**question, "node": log.node_id}
    files = log.files()
    peer = log.coordinator if role == "coordinator" else log.node
    count = 0
    for bad in _bad(question):
        with pytest.raises(TruecutError) as raised:
            peer.ask(f"{role}.{name}", bad)
        assert raised.value.fault.code in REFUSED, (bad, str(raised.value))
        assert raised.value.fault.fix
        count += 1
    assert count > 5
    for body in (b"", b"\xff", b"null", b"[]", b"7", b'"x"', b"{", b"[" * 100_000):
        with pytest.raises(TruecutError) as raised:
            _ask_raw(peer, f"{role}.{name}", body)
        assert raised.value.fault.code in REFUSED, body[:10]
    log.must_be_as_before(files)


def _ask_raw(peer: Peer, action: str, body: bytes) -> None:
    from pyarrow import flight

    try:
        list(peer._client.do_action(flight.Action(action, body), peer._options(5.0)))
    except flight.FlightError as error:
        raise peer.failure(error) from error


def test_no_ticket_is_taken_on_trust(log: Served) -> None:
    """Reads of what is no segment, and of everything while it is written to, are refused."""
    good: dict[str, Any] = {"log": "log", "segment": 1, "after": 0, "upto": 3}
    assert list(log.node.get(good))
    for bad in _bad(good):
        with pytest.raises(TruecutError) as raised:
            list(log.node.get(bad))
        assert raised.value.fault.code in REFUSED, (bad, str(raised.value))
    with pytest.raises(TruecutError, match="TC6062"):
        list(log.node.get({**good, "withheld": True}))
    with pytest.raises(TruecutError, match="TC6053"):
        list(log.node.get({**good, "segment": 99}))
    assert list(log.node.get({**good, "upto": 1 << 62})) == list(log.node.get(good))


def test_another_version_is_refused(log: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By coordinator and node, before anything else is looked at; and a caller without one, too."""
    for given in ([b"2"], [b"99"], [b"-1"], [b"x" * 500], [b"1", b"1"], []):
        headers = [(b"truecut-journal", version) for version in given]
        monkeypatch.setattr(wire, "headers_of", lambda _, given=headers: given)
        for peer in (log.coordinator, log.node):
            with pytest.raises(TruecutError, match="TC6044") as raised:
                peer.ask("node.look", {})
            assert raised.value.exit_code is ExitCode.UNFIT_ENVIRONMENT
        monkeypatch.undo()


def test_an_address_of_something_else_is_refused(log: Served, tmp_path: Path) -> None:
    """A node in the place of the coordinator: for writers, readers and nodes."""
    node = log.node.address
    for use in (ReplicatedJournal, lambda *a: ReplicatedReader(*a).head()):
        with pytest.raises(TruecutError, match="TC6043") as raised:
            use(node, "log")
        assert raised.value.exit_code is ExitCode.WRONG_INPUT
    with pytest.raises(TruecutError, match="TC6043"), served_node(tmp_path, node):
        pass


def test_a_stranger_cannot_end_a_segment(log: Served) -> None:
    """Nor open one, nor trim: only who holds the newest token."""
    for name in ("settled", "segment", "close", "trim"):
        for token in (0, 2, 99):
            with pytest.raises(TruecutError, match="TC6055"):
                log.coordinator.ask(f"coordinator.{name}", {**COORDINATOR[name], "token": token})
    assert texts(content(log.journal)) == ["a", "b", "c"]


def test_a_new_owner_does_not_decide_another_ones_end(tmp_path: Path) -> None:
    """The end of a segment that was given to another one is found by fencing, whatever its successor says."""
    with served(tmp_path) as (coordinator, _):
        journal = ReplicatedJournal(coordinator, "log")
        assert journal.append(lines("a", "b")) == at(2)
        peer = Peer(coordinator, OPEN)
        granted = peer.ask("coordinator.open", {"log": "log", "replicas": 2})
        peer.ask("coordinator.close", {"log": "log", "token": granted["token"], "segment": 1, "end": 0})
        reader = ReplicatedReader(coordinator, "log")
        until(lambda: reader.head() == at(2))
        assert texts(content(reader)) == ["a", "b"]
        with pytest.raises(TruecutError, match="TC6055"):
            journal.append(lines("c"))
        for one in (journal, reader, peer):
            one.close()


def test_a_log_of_the_same_name_is_another_one(log: Served) -> None:
    """Its identity decides: a node does not mix the two."""
    home = {**HOME, "log": "log"}
    with pytest.raises(TruecutError, match="TC6051"):
        log.node.ask("node.fence", {"home": home, "node": log.node_id})
    assert log.journal.append(lines("d")) == at(4)


def test_a_node_stays_with_its_coordinator(tmp_path: Path) -> None:
    """What it holds belongs to one coordinator's logs; another one refuses it, and it refuses another one."""
    with served_coordinator(tmp_path / "c1") as (_, one), served_coordinator(tmp_path / "c2") as (_, other):
        with served_node(tmp_path / "n", one):
            pass
        with pytest.raises(TruecutError, match="TC6049") as raised, served_node(tmp_path / "n", other):
            pass
        assert raised.value.exit_code is ExitCode.WRONG_INPUT
        node = Node(tmp_path / "n", OPEN)
        with pytest.raises(TruecutError, match="TC6049"):
            node.join("another one")
        node.close()


def test_a_copied_folder_is_not_a_second_node(tmp_path: Path) -> None:
    """While the first one lives. Once it is gone the copy is the node, and the first does not come back
    beside it. A node that is started anew where it was is itself, at once."""
    with served_coordinator(tmp_path / "c") as (coordinator, address):
        with served_node(tmp_path / "n", address) as (node, _):
            shutil.copytree(tmp_path / "n", tmp_path / "copy")
            with (
                pytest.raises(TruecutError, match="TC6050") as raised,
                served_node(tmp_path / "copy", address),
            ):
                pass
            assert raised.value.exit_code is ExitCode.WRONG_INPUT
            told = {**COORDINATOR["heartbeat"], "node": node.id, "cluster": node.cluster}
        where = {"address": coordinator.nodes[node.id].address}
        coordinator.heartbeat({**told, **where, "instance": "restarted"})
        coordinator.heartbeat({**told, **where, "instance": "once more"})
        with pytest.raises(TruecutError, match="TC6050"):
            coordinator.heartbeat({**told, **where, "instance": "restarted"})


def test_too_many_small_records_at_once_are_refused() -> None:
    """A frame holds so many heads; more would be written and never be read again. Two appends of the most
    fit into one, so a group does."""
    record = Record(b"")
    most = APPEND_HEADS_BYTES_MAX // record.head_size
    assert size_of([record] * most) == most * record.head_size
    with pytest.raises(AssertionError, match="by their number"):
        size_of([record] * (most + 1))
    header, data = encode([record] * (2 * most), log_id=bytes(16), first=1, epoch=1, previous_crc=0)
    assert parse_header(data) == header


# --- as processes -------------------------------------------------------------------------------------


def test_the_command_line_refuses(cluster: Cluster, tmp_path: Path) -> None:
    """Each with its exit code and what to do next; nothing hangs."""
    nobody = f"127.0.0.1:{free_port()}"
    node = f"127.0.0.1:{cluster.ports[0]}"
    away, there = ["--coordinator", nobody], ["--coordinator", cluster.address]
    (tmp_path / "other" / "c").mkdir(parents=True)
    listen = ["--listen", "127.0.0.1:0"]
    taken = ["--listen", cluster.address]
    n0, c = str(cluster.folder / "n0"), str(cluster.folder / "c")
    cases = [
        (["append", *away, "--log", "x"], 1, "TC6041"),
        (["read", *away, "--log", "x"], 1, "TC6041"),
        (["read", *there, "--log", "no-such-log"], 2, "TC6054"),
        (["read", "--data", str(tmp_path), "--log", "no-such-log"], 2, "TC6009"),
        (["append", "--log", "x"], 2, "--coordinator"),
        (["read", "--log", "x", "--data", str(tmp_path), *there], 2, "--coordinator"),
        (["append", *there, "--log", "../x"], 2, "--log"),
        (["append", "--coordinator", node, "--log", "x"], 2, "TC6043"),
        (["serve", "--data", str(tmp_path / "n"), *listen, "--coordinator", node], 2, "TC6043"),
        (["serve", "--data", n0, *listen, *there], 3, "TC6048"),
        (["coordinate", "--data", c, *listen], 3, "TC6048"),
        (["coordinate", "--data", str(tmp_path / "other"), *taken], 3, "TC6047"),
    ]
    for low in range(0, len(cases), 4):
        started = [(start(*arguments), code, wanted) for arguments, code, wanted in cases[low : low + 4]]
        for process, code, wanted in started:
            found = ended(process)
            assert found.returncode == code, found
            assert wanted in found.stderr, found
            assert "Traceback" not in found.stderr, found
            assert "absl" not in found.stderr, "what a library prints is not for users"
            assert wanted.startswith("--") or "fix: " in found.stderr


def test_a_log_waits_for_enough_nodes(tmp_path: Path) -> None:
    """With more replicas than nodes appends wait and the status says why; a node comes, and they go on."""
    cluster = Cluster(tmp_path, nodes=2)
    late = cluster.nodes.pop()
    cluster.start()
    try:
        place = ["--coordinator", cluster.address]
        writing = start("append", *place, "--log", "log", "--replicas", "2")
        assert writing.stdin is not None
        writing.stdin.write("one\ntwo\n")
        writing.stdin.flush()
        cluster.wait_for(lambda status: bool(status["logs"]))
        status = run("status", *place)
        assert status.returncode == 1
        assert "the log log wants 2 nodes, and 1 can take a segment now" in status.stdout
        assert "fix: " in status.stdout
        document = json.loads(run("status", *place, "--json").stdout)
        assert document["logs"][0]["waiting"]["code"] == "TC6040"
        assert writing.poll() is None
        assert writing.stderr is not None
        assert select.select([writing.stderr], [], [], PATIENCE_S)[0], "it tells that it waits"
        assert "waiting: TC6040" in writing.stderr.readline()
        late.start()
        written = ended(writing)
        assert (written.returncode, written.stdout) == (0, f"{at(1)}\n{at(2)}\n")
        read = run("read", *place, "--log", "log")
        assert (read.returncode, read.stdout) == (0, "one\ntwo\n")
        assert run("status", *place).returncode == 0
    finally:
        cluster.nodes.append(late)
        cluster.stop()
