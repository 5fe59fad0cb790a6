"""What journals, nodes and a coordinator do on a disk, one life each, and what must be so after a crash."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.journal import plain_reader
from tests.journal.forgetful_disk import Recording
from tests.journal.served import until
from tests.journal.sqlite_disk import sqlite_recorded
from tests.journal.world import at, lines
from truecut.core import segment_log as core
from truecut.core.segment_log import Log, Segment
from truecut.errors import TruecutError
from truecut.journal import inspection, local
from truecut.journal.frame import whole
from truecut.journal.local import LocalJournal
from truecut.journal.replicated import node_server
from truecut.journal.replicated.copying import Copy
from truecut.journal.replicated.node import Node
from truecut.journal.replicated.registry import LogEntry, Registry
from truecut.journal.replicated.replica import Append
from truecut.journal.replicated.state_file import Home
from truecut.journal.security import Security

TEXTS = [f"record {n} " + "x" * 60 for n in range(1, 10)]
LONG_S = 3_600.0

# --- a log in a folder --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A local journal: appends, segments that roll, a trim, a second writer."""

    def live(self, folder: Path, recording: Recording) -> None:
        journal = self._open(folder)
        for text in TEXTS[:3]:
            self._append(journal, text, recording)
        recording.tell(("trimmed", 3))
        journal.trim(before=at(3))
        journal.close()
        journal = self._open(folder)
        self._append(journal, TEXTS[3], recording)
        journal.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        journal = self._open(folder)
        head = journal.head()
        recording.tell(("there", head.place if head else 0))
        journal.close()

    def check(self, folder: Path, told: list[Any]) -> None:
        """Everything that was told is there, what is there was submitted, and it goes on behind that."""
        journal = self._open(folder)
        journal.append(lines("next"))
        journal.close()
        found = {number: row[0].decode() for number, row in plain_reader.read(folder / "data/log").items()}
        *before, last = sorted(found)
        trimmed = max((place for what, place in told if what == "trimmed"), default=1)
        there = max((place for what, place in told if what == "there"), default=0)
        assert before == list(range(min(before, default=1), last))
        assert min(before, default=1) <= trimmed
        assert there < last
        assert [found[number] for number in before] == [TEXTS[number - 1] for number in before]
        assert found[last] == "next"

    @staticmethod
    def _open(folder: Path) -> LocalJournal:
        return LocalJournal(folder / "data/log", segment_bytes_max=4_300)

    @staticmethod
    def _append(journal: LocalJournal, text: str, recording: Recording) -> None:
        answer = journal.submit(lines(text))
        answer.add_done_callback(lambda done: recording.tell(("there", done.result().place)))
        answer.result()


@dataclass(frozen=True)
class Quiet:
    """A local journal that has gone quiet. What it has committed is known to be so: a flipped byte in its
    last record is damage, and not the torn end of a write."""

    def live(self, folder: Path, recording: Recording) -> None:
        journal = LocalJournal(folder / "log")
        journal.append(lines(TEXTS[0]))
        until(lambda: "mark" in recording.synced)
        recording.tell("quiet")
        journal.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        LocalJournal(folder / "log").close()

    def check(self, folder: Path, told: list[Any]) -> None:
        if told:
            _flip_last_byte(max((folder / "log").glob("*.log"), key=lambda path: path.stat().st_size))
            assert [one for one in inspection.inspect(folder / "log") if one.damage]


@dataclass(frozen=True)
class Closed(Quiet):
    """The same of one that was closed before it had been quiet for long."""

    def live(self, folder: Path, recording: Recording) -> None:
        with patch.object(local, "MARK_DELAY_S", LONG_S):
            journal = LocalJournal(folder / "log")
            journal.append(lines(TEXTS[0]))
            journal.close()
        recording.tell("closed")


@dataclass(frozen=True)
class Repaired:
    """A local journal with a damaged segment, which is cut off and kept."""

    def live(self, folder: Path, recording: Recording) -> None:
        log = folder / "log"
        journal = LocalJournal(log, segment_bytes_max=4_100)
        for text in TEXTS[:3]:
            journal.append(lines(text))
        journal.close()
        damaged = min(log.glob("*.log"))
        _hurt(recording, damaged)
        recording.tell(damaged.name)
        inspection.repair(log)
        recording.tell("repaired")

    def live_again(self, folder: Path, recording: Recording) -> None:
        if (folder / "log/manifest.json").exists():
            inspection.repair(folder / "log")

    def check(self, folder: Path, told: list[Any]) -> None:
        """Whoever was told of the repair finds the damaged file, and a log that can be read around it."""
        if "repaired" in told:
            kept = folder / "log/quarantine" / told[0]
            assert kept.exists()
            assert kept.read_bytes().endswith(b"?")
            assert not [one for one in inspection.inspect(folder / "log") if one.damage]
            assert sorted(plain_reader.read(folder / "log")) == [2, 3]


@dataclass(frozen=True)
class Dropped:
    """A local journal with a few segments that is removed."""

    def live(self, folder: Path, recording: Recording) -> None:
        log = folder / "log"
        journal = LocalJournal(log, segment_bytes_max=4_100)
        for text in TEXTS[:2]:
            journal.append(lines(text))
        journal.close()
        recording.tell("there")
        local.remove_log(log)
        recording.tell("dropped")

    def live_again(self, folder: Path, recording: Recording) -> None:
        local.remove_log(folder / "log")

    def check(self, folder: Path, told: list[Any]) -> None:
        """All of it is there, or nothing: never a log that lacks some. Once it was told so, it stays away;
        and another one may be begun in its place."""
        log = folder / "log"
        if (log / "manifest.json").exists():
            assert "dropped" not in told
            if "there" in told:
                assert _texts_in(log) == TEXTS[:2]
        elif told:
            journal = LocalJournal(log)
            journal.append(lines("another"))
            journal.close()
            assert _texts_in(log) == ["another"]


def _texts_in(log: Path) -> list[str] | None:
    """None where a file of it is gone."""
    try:
        return [row[0].decode() for row in plain_reader.read(log).values()]
    except FileNotFoundError:
        return None


# --- a node -------------------------------------------------------------------------------------------

ID = "ab" * 16
HOMES = ENDED, FENCED, COPIED, NEVER = (
    Home("log", ID, 1, 0, 7),
    Home("log", ID, 2, 4, 8),
    Home("copied", "cd" * 16, 1, 0, 9),
    Home("never", "ef" * 16, 1, 0, 9),
)


@dataclass(frozen=True)
class Appended:
    """A node: replicas that are made, appended to, fenced and ended."""

    def live(self, folder: Path, recording: Recording) -> None:
        tell = recording.tell
        node = Node(folder / "data/node", Security())
        tell(("identity", node.id, None))
        node.join("cluster")
        tell(("identity", node.id, "cluster"))
        for home in (ENDED, FENCED):
            replica = node.replica_for(home)
            for low in (0, 2):
                replica.append([Append(low + 1, _records(home)[low : low + 2], known=0)])
                tell(("has", home, low + 2))
        tell(("fenced", FENCED, node.fence(FENCED)))
        tell(("ended", ENDED, node.end(ENDED, end=3)))
        node.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        node = Node(folder / "data/node", Security())
        recording.tell(("identity", node.id, node.cluster))
        for home in HOMES:
            if (home.log, home.segment) in node.has():
                length = node.fence(home)
                if length is None:
                    ended = node.look((home.log, home.segment), beyond=-1, wait_s=0).length
                    recording.tell(("ended", home, ended))
                else:
                    recording.tell(("fenced", home, length))
        node.close()

    def check(self, folder: Path, told: list[Any]) -> None:
        """It is the same node, nothing of it is damaged, and what it has told of a replica is so."""
        node = Node(folder / "data/node", Security())
        assert node.damaged() == []
        for what, *rest in told:
            if what == "identity":
                assert node.id == rest[0]
                assert rest[1] in (None, node.cluster)
            else:
                self._check_replica(node, what, *rest)
        for home in HOMES:
            if (home.log, home.segment) in node.has():
                length = node.fence(home)  # whereupon its state says how far it goes
                state = home.file_in(node.folder / "logs").with_suffix(".state")
                found = [row[0] for row in plain_reader.read_replica(state).values()]
                assert found == [record.payload for record in _records(home)][: len(found)]
                assert length in (None, len(found))
        node.close()

    @staticmethod
    def _check_replica(node: Node, what: str, home: Home, length: int) -> None:
        look = node.look((home.log, home.segment), beyond=-1, wait_s=0)
        states = {"has": ("open", "fenced", "sealed"), "fenced": ("fenced", "sealed"), "ended": ("sealed",)}
        assert look.state in states[what]
        if what != "has":
            assert look.length == length or look.state == "sealed"
        elif look.state != "sealed":
            assert look.length >= length


@dataclass(frozen=True)
class Copied(Appended):
    """A node: a replica that is fenced before anything was written, and one that is copied."""

    def live(self, folder: Path, recording: Recording) -> None:
        node = Node(folder / "data/node", Security())
        recording.tell(("fenced", NEVER, node.fence(NEVER)))
        _copy(node, COPIED, core.Replica("fenced", 4))
        recording.tell(("fenced", COPIED, 4))
        node.close()


@dataclass(frozen=True)
class QuietNode:
    """A node whose replica has gone quiet: a flipped byte in its last record is damage."""

    def live(self, folder: Path, recording: Recording) -> None:
        node = Node(folder / "node", Security())
        appends = _appends(node)
        until(lambda: "mark" in recording.synced)
        recording.tell("quiet")
        appends.end()
        node.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        Node(folder / "node", Security()).close()

    def check(self, folder: Path, told: list[Any]) -> None:
        if told:
            _flip_last_byte(FENCED.file_in(folder / "node/logs"))
            node = Node(folder / "node", Security())
            assert node.damaged() == [("log", 2)]
            node.close()


@dataclass(frozen=True)
class LeftNode(QuietNode):
    """The same where the producer has gone before it had been quiet for long."""

    def live(self, folder: Path, recording: Recording) -> None:
        node = Node(folder / "node", Security())
        with patch.object(node_server, "SETTLE_S", LONG_S):
            _appends(node).end()
        recording.tell("left")
        node.close()


class _Unheard:
    """A producer that listens to no answer."""

    def write(self, answer: object) -> None: ...


def _appends(node: Node) -> node_server._Committing:
    """A stream that has brought some records."""
    appends = node_server._Committing(node, node.replica_for(FENCED), _Unheard())
    appends.start()
    appends.take(Append(1, _records(FENCED), known=0), 1)
    return appends


@dataclass(frozen=True)
class Mended:
    """A node whose damaged replica gives way to a copy: the damaged one is kept."""

    def live(self, folder: Path, recording: Recording) -> None:
        node = Node(folder / "node", Security())
        replica = node.replica_for(ENDED)
        replica.append([Append(1, _records(ENDED), known=4)])
        node.end(ENDED, end=4)
        _hurt(recording, ENDED.file_in(folder / "node/logs"))
        recording.tell("hurt")
        _copy(node, ENDED, core.Replica("sealed", 4, 4))
        recording.tell("mended")
        node.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        Node(folder / "node", Security()).close()

    def check(self, folder: Path, told: list[Any]) -> None:
        """Not one crash takes the damaged file away; once it was told so, the copy is in its place."""
        Node(folder / "node", Security()).close()
        place = ENDED.file_in(folder / "node/logs")
        files = [path for path in (place, place.parent / "quarantine" / place.name) if path.exists()]
        if "hurt" in told:
            assert any(path.read_bytes().endswith(b"?") for path in files)
        if "mended" in told:
            rows = plain_reader.read_replica(place.with_suffix(".state")).values()
            assert [row[0] for row in rows] == [record.payload for record in _records(ENDED)]


# --- the coordinator ----------------------------------------------------------------------------------

NODES = frozenset({"one"})
SEGMENTS = (Segment(0, NODES, 1, 10, NODES), Segment(10, NODES, 2))


@dataclass(frozen=True)
class Registered:
    """The coordinator's registry: nodes and a log that are saved one after the other."""

    def live(self, folder: Path, recording: Recording) -> None:
        with sqlite_recorded(recording):
            registry = Registry(folder / "c")
            recording.tell(("made", registry.cluster))
            for node in sorted(NODES):
                registry.save_node(node, "127.0.0.1:7001")
                recording.tell(("saved", node))
            entry = None
            for count in range(2):
                version = entry.version if entry else 0
                entry = registry.save_log(
                    entry, LogEntry("log", ID, 2, Log(SEGMENTS[:count], count), version)
                )
                recording.tell(("saved", count))
            registry.close()

    def live_again(self, folder: Path, recording: Recording) -> None:
        with sqlite_recorded(recording):
            registry = Registry(folder / "c")
            recording.tell(("made", registry.cluster))
            registry.close()

    def check(self, folder: Path, told: list[Any]) -> None:
        """All that was saved, or one thing more, as a whole; and its loss is noticed."""
        assert not told or (folder / "c").exists()
        if told and told[-1][0] == "made":
            shutil.copytree(folder / "c", folder / "lost")
            (folder / "lost/coordinator.db").unlink()
            assert _refusal(folder / "lost") == "TC6058"
        registry = Registry(folder / "c")
        assert {what for how, what in told if how == "made"} <= {registry.cluster}
        saved = [*sorted(registry.nodes()), *(n for one in registry.logs() for n in range(one.log.token + 1))]
        expected = [what for how, what in told if how == "saved"]
        assert expected in (saved, saved[:-1])
        for one in registry.logs():
            assert one.log.segments == SEGMENTS[: one.log.token]
        registry.close()


def _refusal(folder: Path) -> str | None:
    try:
        Registry(folder).close()
    except TruecutError as error:
        return error.fault.code
    return None


def _copy(node: Node, home: Home, replica: core.Replica) -> None:
    copy = Copy(home, node.folder / "logs")
    frame = whole(_records(home), log_id=home.start.log_id, first=home.first + 1, epoch=home.token)
    copy.take(memoryview(frame))
    copy.finish(replica)
    copy.close()


def _records(home: Home) -> list[Any]:
    return lines(*(f"{home.log} {home.segment} {n} " + "y" * 40 for n in range(4)))


def _hurt(recording: Recording, path: Path) -> None:
    """The disk itself has changed its last byte: nobody has to sync that."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    file = recording.file_at(path)
    recording.written(file, len(data) - 1, b"?")
    recording.done(file, "hurt")


def _flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
