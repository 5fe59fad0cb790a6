"""The coordinator: who owns a log, where its segments are, and where each of them ends.

Decisions are those of `core/segment_log.py`, and durable before anybody hears of them. Appends and reads do
not pass through here: while it is down, the open segments are written and read all the same.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from truecut.core import segment_log as core
from truecut.core.segment_log import Log, NodeId, Segment
from truecut.errors import Fault, TruecutError
from truecut.journal.replicated import faults, fields
from truecut.journal.replicated.registry import LogEntry, Registry
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message

NODE_TIMEOUT_S = 1.5  # without a heartbeat, until a node counts as down
REPLACE_AFTER_S = 60.0  # down for so long, and its sealed segments are copied elsewhere
WAIT_S = 0.5  # of one question, for an answer that is not there yet
SEGMENTS_MAX = 1000  # in one answer
REPLICAS_MAX = 9
FORMER_MAX = 10


@dataclass(slots=True)
class KnownNode:
    """What is known of a node."""

    address: str
    instance: str = ""
    heard_at: float = -1e9
    suspected_at: float = -2e9  # by a producer that could not write to it
    full: bool = False
    damaged: frozenset[tuple[str, int]] = frozenset()
    missing: frozenset[tuple[str, int]] = frozenset()  # of those: it should have them, and has nothing
    former: tuple[str, ...] = ()  # instances that another one has followed


class Coordinator:
    """For any number of threads: every question is one step under one lock."""

    def __init__(
        self,
        registry: Registry,
        *,
        node_timeout_s: float = NODE_TIMEOUT_S,
        replace_after_s: float = REPLACE_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._node_timeout_s = node_timeout_s
        self._replace_after_s = replace_after_s
        self._clock = clock
        self._started_at = clock()
        self.changed = threading.Condition()
        self.nodes = {node: KnownNode(address) for node, address in registry.nodes().items()}
        self.logs = {entry.name: entry for entry in registry.logs()}
        self._troubles: dict[str, dict[str, Fault]] = {}  # by log and task: what the keeper cannot do

    # --- what nodes say ---

    def heartbeat(self, told: Message) -> Message:
        """A node lives. It hears which segments it need not keep."""
        node, address = fields.text(told, "node"), fields.address(told, "address")
        instance, full = fields.text(told, "instance"), fields.flag(told, "full")
        damaged, abandoned = fields.segments(told, "damaged"), fields.segments(told, "abandoned")
        if fields.optional_text(told, "cluster") not in (None, self._registry.cluster):
            raise faults.other_cluster(node)
        with self.changed:
            known = self._met(node, address, instance)
            before = known.full, known.damaged, self._is_alive(known), known.heard_at > known.suspected_at
            if "has" in told:
                known.missing = self._missing(node, frozenset(fields.segments(told, "has")))
            known.heard_at, known.full = self._clock(), full
            known.damaged = frozenset(damaged) | known.missing
            for log, segment in abandoned:
                self._abandoned(log, segment)
            if before != (known.full, known.damaged, True, True):
                self.changed.notify_all()
            trimmed = {entry.name: entry.log.trimmed for entry in self.logs.values() if entry.log.trimmed}
            unneeded = [one for one in damaged if self._is_replaced(node, *one)]
        return {"cluster": self._registry.cluster, "trimmed": trimmed, "unneeded": unneeded}

    def _is_replaced(self, node: NodeId, name: str, number: int) -> bool:
        """Whether others hold a finished segment in the place of this node."""
        entry = self.logs.get(name)
        if entry is None or not entry.log.trimmed < number <= entry.log.last:
            return False
        segment = entry.log[number]
        return segment.end is not None and node not in segment.nodes

    def _met(self, node: NodeId, address: str, instance: str) -> KnownNode:
        """A node that was started anew where it was takes its own place at once: two cannot listen there."""
        known = self.nodes.get(node)
        if known is not None and known.instance not in ("", instance):
            elsewhere = known.address != address and self._is_alive(known)
            if elsewhere or instance in known.former:
                raise faults.node_twice(node, known.address)
            known.former = (*known.former, known.instance)[-FORMER_MAX:]
        if known is None:
            self._registry.save_node(node, address)
            known = self.nodes[node] = KnownNode(address)
        elif known.address != address:
            self._registry.save_node(node, address)
            known.address = address
        known.instance = instance
        return known

    # --- what producers ask ---

    def open(self, asked: Message) -> Message:
        """Grant: a new owner, whose token is above all others. The log is made if there is none."""
        name, replicas = fields.log_name(asked), fields.number(asked, "replicas", least=1, most=REPLICAS_MAX)
        with self.changed:
            entry = self.logs.get(name)
            if entry is None:
                entry = self._save(None, LogEntry(name, uuid.uuid4().hex, replicas))
            entry = self._save(entry, replace(entry, log=core.grant(entry.log), replicas=replicas))
            return {"log_id": entry.id, "token": entry.log.token, "last": entry.log.last}

    def settled(self, asked: Message) -> Message:
        """Whether all ends are decided, so that the owner can go on behind them; or why not yet."""
        with self.changed:
            self.changed.wait_for(lambda: self._owned(asked).log.undecided is None, WAIT_S)
            entry = self._owned(asked)
            if entry.log.undecided is None:
                return {"entries": entry.log.next_first}
            return {"waiting": self._why_undecided(entry).document()}

    def segment(self, asked: Message) -> Message:
        """NewSegment: behind the one that the owner has ended; to the same question the same answer."""
        after, suspects = fields.number(asked, "after"), fields.texts(asked, "suspects")
        end = fields.optional_number(asked, "end")
        with self.changed:
            self._owned(asked)
            self._suspect(suspects)
            self.end_by_producer(asked, after, end)
            self.changed.wait_for(lambda: self._placed(asked, after) is not None, WAIT_S)
            entry = self._owned(asked)
            if (segment := self._placed(asked, after)) is None:
                return {"waiting": self._why_not_placed(entry).document()}
            return self._described(entry, entry.log.last, segment)

    def close(self, asked: Message) -> Message:
        """DecideByProducer: the owner has finished its segment."""
        number, end = fields.number(asked, "segment"), fields.number(asked, "end")
        with self.changed:
            self.end_by_producer(asked, number, end)
        return {}

    def end_by_producer(self, asked: Message, number: int, end: int | None) -> None:
        """Within the lock. An end that is told again is the one that was decided. Only of a segment that was
        given to this owner: of another one's it cannot know what is committed."""
        entry = self._owned(asked)
        if end is None or not entry.log.trimmed < number <= entry.log.last:
            return
        if entry.log[number].token == entry.log.token:
            self._step(entry, core.decide_by_producer(entry.log, segment=number, end=end))

    def trim(self, asked: Message) -> Message:
        """The owner needs nothing before this entry any more."""
        before = fields.number(asked, "before")
        with self.changed:
            entry = self._owned(asked)
            self._step(entry, core.trim(entry.log, before=before))
        return {}

    # --- what readers ask ---

    def segments(self, asked: Message) -> Message:
        """Those that hold something, from the one with an entry on; without an entry the last two. Waits for
        one that is newer than the caller knows."""
        name, number = fields.log_name(asked), fields.optional_number(asked, "entry")
        newer_than = fields.number(asked, "newer_than", least=-1)
        wait_s = fields.seconds(asked, "wait_s", most=30.0)
        with self.changed:
            self.changed.wait_for(
                lambda: max(_holding(self._entry(name).log), default=0) > newer_than,
                wait_s,
            )
            entry = self._entry(name)
            holding = _holding(entry.log)
            if number is None:
                found = sorted(holding)[-2:]
            else:
                behind = (which for which, last in holding.items() if last >= number)
                found = sorted(behind)[:SEGMENTS_MAX]
            described = [self._described(entry, which, entry.log[which]) for which in found]
            first = entry.log.segments[0].first if entry.log.segments else 0
            return {"log_id": entry.id, "first": first, "segments": described}

    def status(self, asked: Message) -> Message:
        """Everything, for people."""
        with self.changed:
            now = self._clock()
            nodes = [
                {
                    "node": node,
                    "address": known.address,
                    "state": "full" if known.full else "alive" if self._is_alive(known) else "down",
                    "heard_ms_ago": round((now - known.heard_at) * 1000) if known.instance else None,
                    "damaged": sorted(known.damaged),
                }
                for node, known in sorted(self.nodes.items())
            ]
            logs = [self._log_status(entry) for entry in self.logs.values()]
        return {"nodes": nodes, "logs": logs}

    def _log_status(self, entry: LogEntry) -> Message:
        log = entry.log
        hindered = None if (trouble := self._trouble(entry)) is None else trouble.document()
        if log.undecided is not None and log.undecided.token != log.token:
            hindered = self._why_undecided(entry).document()
        elif len(self._eligible()) < entry.replicas:
            hindered = self._why_not_placed(entry).document()
        return {
            "log": entry.name,
            "replicas": entry.replicas,
            "segments": len(log.segments),
            "trimmed": log.trimmed,
            "open": log.undecided is not None,
            "unsealed": len(core.to_end(log)),
            "under_replicated": sum(not segment.nodes <= self.present() for segment in log.segments),
            "waiting": hindered,
        }

    # --- what the keeper asks, and brings ---

    def alive(self, entry: LogEntry, number: int) -> frozenset[NodeId]:
        """Who can be asked about a segment now."""
        return frozenset(
            node
            for node, known in self.nodes.items()
            if self._is_alive(known) and (entry.name, number) not in known.damaged
        )

    def present(self) -> frozenset[NodeId]:
        """Who is not given up yet. A coordinator that has just started gives everybody time to be heard."""
        since = self._clock() - self._replace_after_s
        return frozenset(
            node for node, known in self.nodes.items() if max(known.heard_at, self._started_at) > since
        )

    def step(self, name: str, number: int, change: Callable[[Log], Log]) -> None:
        """A step of the machine for a segment that is still there."""
        with self.changed:
            entry = self.logs[name]
            if number > entry.log.trimmed:
                self._step(entry, change(entry.log))

    def repaired(self, node: NodeId, key: tuple[str, int]) -> None:
        """The node has a segment again that it had lost."""
        with self.changed:
            self.nodes[node].missing -= {key}

    def failed(self, name: str, task: str, trouble: Fault) -> None:
        """An error that nobody foresaw is in the way of a log."""
        with self.changed:
            self._troubles.setdefault(name, {})[task] = trouble

    def succeeded(self, name: str, task: str) -> None:
        """It is not in the way any more."""
        with self.changed:
            self._troubles.get(name, {}).pop(task, None)

    def wanted(self, name: str, tasks: set[str]) -> None:
        """What is to be done for a log: nothing else can be in its way."""
        with self.changed:
            found = self._troubles.get(name)
            if found:
                self._troubles[name] = {task: trouble for task, trouble in found.items() if task in tasks}

    def home(self, entry: LogEntry, number: int) -> Home:
        """How nodes call a segment."""
        segment = entry.log[number]
        return Home(entry.name, entry.id, number, segment.first, segment.token)

    # --- within the lock ---

    def _save(self, before: LogEntry | None, after: LogEntry) -> LogEntry:
        saved = self.logs[after.name] = self._registry.save_log(before, after)
        self.changed.notify_all()
        return saved

    def _step(self, entry: LogEntry, log: Log) -> None:
        """Durable first, unless nothing has changed that would have to be."""
        if log == entry.log:
            return
        if core.forget_fenced(log) == core.forget_fenced(entry.log):
            self.logs[entry.name] = replace(entry, log=log)
            self.changed.notify_all()
        else:
            self._save(entry, replace(entry, log=log))

    def _entry(self, name: str) -> LogEntry:
        found = self.logs.get(name)
        if found is None:
            raise faults.no_such_log(name)
        return found

    def _abandoned(self, name: str, number: int) -> None:
        """Grant, to nobody: the open segment's producer is gone, and readers wait for its end."""
        entry = self.logs.get(name)
        if entry is None or number != entry.log.last or entry.log.undecided is None:
            return
        if entry.log.undecided.token == entry.log.token:
            self._save(entry, replace(entry, log=core.grant(entry.log)))

    def _missing(self, node: NodeId, has: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Finished segments that the node has answered for once, and does not have when it starts."""
        return frozenset(
            (entry.name, number)
            for entry in self.logs.values()
            for number, segment in entry.log.numbered()
            if node in segment.ended and (entry.name, number) not in has
        )

    def _owned(self, asked: Message) -> LogEntry:
        entry = self._entry(fields.log_name(asked))
        if fields.number(asked, "token") != entry.log.token:
            raise faults.taken_over(entry.name)  # StandDown
        return entry

    def _placed(self, asked: Message, after: int) -> Segment | None:
        """The segment behind `after`, made now if it can be."""
        entry = self._owned(asked)
        if entry.log.last == after:
            place = self._place(entry)
            made = core.new_segment(entry.log, token=entry.log.token, place=place) if place else None
            if made is None:
                return None
            self._step(entry, made)
            entry = self.logs[entry.name]
        last = entry.log[entry.log.last]
        return last if entry.log.last > after and last.token == entry.log.token else None

    def _place(self, entry: LogEntry) -> frozenset[NodeId] | None:
        """The nodes that hold the least of this log, those that were suspected lately last."""
        load = dict.fromkeys(self._eligible(), 0)
        for segment in entry.log.segments[-SEGMENTS_MAX:]:
            for node in segment.nodes & load.keys():
                load[node] += 1
        lately = self._clock() - self._node_timeout_s * 4
        chosen = sorted(load, key=lambda node: (self.nodes[node].suspected_at > lately, load[node], node))
        return frozenset(chosen[: entry.replicas]) if len(chosen) >= entry.replicas else None

    def _eligible(self) -> list[NodeId]:
        """Alive, not full, and heard of since they were last suspected."""
        return [
            node
            for node, known in self.nodes.items()
            if self._is_alive(known) and not known.full and known.heard_at > known.suspected_at
        ]

    def _suspect(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if node in self.nodes:
                self.nodes[node].suspected_at = self._clock()

    def _is_alive(self, known: KnownNode) -> bool:
        return self._clock() - known.heard_at < self._node_timeout_s

    def _why_not_placed(self, entry: LogEntry) -> Fault:
        return _fault(faults.too_few_nodes(entry.name, wanted=entry.replicas, found=len(self._eligible())))

    def _trouble(self, entry: LogEntry) -> Fault | None:
        return next(iter(self._troubles.get(entry.name, {}).values()), None)

    def _why_undecided(self, entry: LogEntry) -> Fault:
        if (trouble := self._trouble(entry)) is not None:
            return trouble
        undecided = entry.log.undecided
        wanted = len(undecided.nodes) if undecided else entry.replicas
        found = len(self.alive(entry, entry.log.last))
        return _fault(faults.too_few_nodes(entry.name, wanted=wanted, found=found))

    def _described(self, entry: LogEntry, number: int, segment: Segment) -> Message:
        return {
            "segment": number,
            "first": segment.first,
            "token": segment.token,
            "end": segment.end,
            "nodes": {node: self.nodes[node].address for node in sorted(segment.nodes) if node in self.nodes},
        }


def _holding(log: Log) -> dict[int, float]:
    """The segments that hold something, or may, each with the last entry that it may hold."""
    return {
        number: float("inf") if segment.end is None else segment.first + segment.end
        for number, segment in log.numbered()
        if segment.end != 0
    }


def _fault(error: TruecutError) -> Fault:
    return error.fault
