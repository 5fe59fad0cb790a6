"""Between the spec's segment log and the code's coordinator, node and producer.

`log_of`, `replica_of` and `producer_of` make the code's values from the spec's state, `coord_of`, `record_of`
and `prod_of` go back. `STEPS[action]` tells what the code makes of a state by the action of that name: for
every message that was sent, every node and every producer, the variables that change. What the machine
leaves to its surroundings (entries, and who is sent what it says) is done here as the spec does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from tests.specs.tlavalue import Record
from truecut.core import segment_log as core
from truecut.core.segment_log import Log, NodeId, Producer, Replica, Segment

State = dict[str, Any]  # the spec's variables
Change = dict[str, Any]  # those that a step gives a new value
UNDECIDED = UNHEARD = -1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a model allows, so that there is an end to it."""

    replicas: int
    events: int
    segments: int
    faults: int
    mistrust: bool
    trimming: bool


def bounds_of(configuration: str) -> Bounds:
    """As its model says."""
    found = dict(re.findall(r"^  (\w+) = (\d+)$", configuration, re.M))
    replicas, events, segments, faults = (
        int(found[name]) for name in ("Replicas", "Events", "Segments", "MaxFaults")
    )
    mistrust, trimming = (f"  {name} = TRUE\n" in configuration for name in ("Mistrust", "Trimming"))
    return Bounds(replicas, events, segments, faults, mistrust, trimming)


# --- values -------------------------------------------------------------------------------------------


def log_of(coord: Mapping[str, Any]) -> Log:
    """The coordinator's value."""
    trimmed = coord["trimmed"]
    return Log(tuple(_segment_of(one) for one in coord["segs"][trimmed:]), coord["token"], trimmed)


def _segment_of(segment: Mapping[str, Any]) -> Segment:
    return Segment(
        first=segment["first"],
        nodes=segment["nodes"],
        token=segment["token"],
        end=None if segment["end"] == UNDECIDED else segment["end"],
        ended=segment["ended"],
        fenced={node: length for node, length in segment["fenced"].items() if length != UNHEARD},
    )


def coord_of(log: Log, state: State) -> Change:
    """The spec's coordinator, which remembers trimmed segments as well. Whom it has asked already, only a bug
    needs to know."""
    segments = tuple(
        {
            "first": segment.first,
            "nodes": segment.nodes,
            "token": segment.token,
            "end": UNDECIDED if segment.end is None else segment.end,
            "ended": segment.ended,
            "fenced": {node: segment.fenced.get(node, UNHEARD) for node in state["node"]},
            "asked": frozenset(),
        }
        for segment in log.segments
    )
    gone = state["coord"]["segs"][: log.trimmed]
    return {"coord": {"segs": (*gone, *segments), "token": log.token, "trimmed": log.trimmed}}


def replica_of(record: Mapping[str, Any]) -> Replica:
    """A node's value for one segment that it has something of."""
    length = len(record["log"])
    return Replica(record["state"], length, record["seen"], length - record["synced"])


def at_hand(state: State, node: NodeId, segment: int) -> Replica:
    """The same, where it may have nothing."""
    record = state["node"][node][segment - 1]
    if record["state"] == "none":
        return core.absent(segment=segment, held=state["held"][node])
    return replica_of(record)


def record_of(replica: Replica, entries: tuple[Any, ...]) -> dict[str, Any]:
    """The spec's record of a replica that has the first of these entries."""
    kept, found = entries[: replica.length], "none" if replica.state == "missing" else replica.state
    return {"state": found, "log": kept, "synced": replica.synced, "seen": replica.seen}


def producer_of(known: Mapping[str, Any]) -> Producer:
    """A producer's value."""
    acked = {node: known["acked"][node] for node in known["nodes"]}
    return Producer(known["phase"], known["token"], known["seg"], known["sent"], acked, known["done"])


def prod_of(producer: Producer, name: str, state: State) -> Change:
    """The spec's producers, with this one's new value."""
    known = {
        "phase": producer.phase,
        "token": producer.token,
        "seg": producer.segment,
        "nodes": frozenset(producer.acked),
        "sent": producer.sent,
        "acked": {node: producer.acked.get(node, 0) for node in state["node"]},
        "done": producer.done,
    }
    return {"prod": {**state["prod"], name: known}}


def sending(state: State, *messages: Mapping[str, Any]) -> Change:
    """These were sent, too."""
    return {"msgs": state["msgs"] | {Record(sorted(message.items())) for message in messages}}


def sent(state: State, kind: str) -> list[dict[str, Any]]:
    """What was sent of a kind: it may be taken up again and again."""
    return _by_kind(state["msgs"]).get(kind, [])


@lru_cache(maxsize=16)  # every action of a state asks for its messages
def _by_kind(messages: frozenset[Record]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        found.setdefault(message.type, []).append(dict(message))
    return found


def alive(state: State) -> frozenset[NodeId]:
    """Whose disk is not lost."""
    lost: frozenset[NodeId] = state["dead"]
    return frozenset(state["node"]) - lost


def _believed(state: State, bounds: Bounds) -> Iterator[frozenset[NodeId]]:
    """Whom the coordinator may take to be alive: all who are, or all but one who is late."""
    yield alive(state)
    if bounds.mistrust:
        yield from (alive(state) - {late} for late in alive(state))


def sound(state: State, segment: int) -> frozenset[NodeId]:
    """Who has not said that it has lost the segment."""
    return frozenset(node for node in alive(state) if state["node"][node][segment - 1]["state"] != "damaged")


def _putting(state: State, node: NodeId, segment: int, record: dict[str, Any]) -> Change:
    """Whatever a node has it remembers to have had."""
    records = list(state["node"][node])
    records[segment - 1] = record
    reach = max(state["held"][node], segment if record["state"] != "none" else 0)
    return {"node": {**state["node"], node: tuple(records)}, "held": {**state["held"], node: reach}}


# --- the coordinator ----------------------------------------------------------------------------------


def _grant(state: State, bounds: Bounds) -> Iterator[Change]:
    log = core.grant(log_of(state["coord"]))
    away = [name for name, known in state["prod"].items() if known["phase"] == "away"]
    if len(away) == len(state["prod"]) or state["faults"] < bounds.faults:
        for name in away:
            yield coord_of(log, state) | prod_of(core.granted(token=log.token), name, state)


def _new_segment(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for name, known in state["prod"].items():
        if known["phase"] == "asking" and log.last < bounds.segments:
            for place in combinations(sorted(alive(state)), bounds.replicas):
                made = core.new_segment(log, token=known["token"], place=frozenset(place))
                if made is not None:
                    told = core.told_segment(producer_of(known), segment=made.last, nodes=place)
                    yield coord_of(made, state) | prod_of(told, name, state)


def _decide_by_producer(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for message in sent(state, "close"):
        yield coord_of(core.decide_by_producer(log, segment=message["seg"], end=message["end"]), state)


def _ask_fence(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for node in core.to_fence(log):
        yield sending(state, {"type": "fence", "seg": log.last, "to": node})


def _take_fenced(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for message in sent(state, "fenced"):
        segment, node, length = message["seg"], message["from"], message["length"]
        yield coord_of(core.take_fenced(log, segment=segment, node=node, length=length), state)


def _having_heard(log: Log, nodes: tuple[NodeId, ...]) -> Log:
    """The coordinator, when it has heard of these only: a choice of the spec is who has answered so far."""
    assert log.undecided is not None
    heard = {node: log.undecided.fenced[node] for node in nodes}
    return replace(log, segments=(*log.segments[:-1], replace(log.undecided, fenced=heard)))


def _ask_copy(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for node in log.undecided.fenced if log.undecided is not None else ():
        for trusted in _believed(state, bounds):
            believed = trusted & sound(state, log.last)
            for spare in believed:
                yield from copies_asked(_having_heard(log, (node,)), state, believed, spare=[spare])


def copies_asked(
    log: Log, state: State, believed: frozenset[NodeId], *, spare: list[NodeId]
) -> Iterator[Change]:
    """What a coordinator that knows this much sends."""
    for copy in core.to_copy(log, alive=believed, spare=spare):
        order = {"to": copy.target, "from": copy.source, "length": copy.length}
        yield sending(state, {"type": "copy", "seg": copy.segment, **order})


def _decide_by_fence(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    if log.undecided is None:
        return
    for heard in combinations(log.undecided.fenced, bounds.replicas):
        decided = core.decide_by_fence(_having_heard(log, heard), replicas=bounds.replicas)
        everything = replace(decided.segments[-1], fenced=log.undecided.fenced)
        yield coord_of(replace(decided, segments=(*log.segments[:-1], everything)), state)


def _ask_end(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for number, node in core.to_end(log):
        yield sending(state, {"type": "end", "seg": number, "to": node, "end": log[number].end})


def _take_ended(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for message in sent(state, "ended"):
        segment, node, end = message["seg"], message["from"], message["end"]
        yield coord_of(core.take_ended(log, segment=segment, node=node, end=end), state)


def _replace(state: State, bounds: Bounds) -> Iterator[Change]:
    for believed in _believed(state, bounds):
        for spare in believed:
            yield from replacements(state, believed, spare=[spare])


def replacements(state: State, believed: frozenset[NodeId], *, spare: list[NodeId]) -> Iterator[Change]:
    """Each copy of a finished segment, and the lost replica that it may stand for."""
    log = log_of(state["coord"])
    for number, _ in log.numbered():
        good = believed & sound(state, number)
        targets = [node for node in spare if node in good]
        for copy in core.to_replace(log, alive=good, spare=targets):
            if copy.segment == number:
                for gone in log[number].nodes - good:
                    placed = core.replace_node(log, segment=number, gone=gone, new=copy.target)
                    yield from _copied(state, copy, placed)


def _copied(state: State, copy: core.Copying, log: Log) -> Iterator[Change]:
    """A finished segment at another node, which is in the coordinator's log now; unless its source turns out
    to have lost it."""
    source = state["node"][copy.source][copy.segment - 1]
    if source["state"] == "sealed" or copy.length == 0:
        before = at_hand(state, copy.target, copy.segment)
        replica, _ = core.take_replacement(before, end=copy.length)
        put = _putting(state, copy.target, copy.segment, record_of(replica, source["log"]))
        yield coord_of(log, state) | put


def _repair(state: State, bounds: Bounds) -> Iterator[Change]:
    log = log_of(state["coord"])
    for number, segment in log.numbered():
        good = sound(state, number)
        for node in (segment.nodes & alive(state)) - good:
            copy = core.to_repair(log, segment=number, node=node, alive=good)
            if copy is not None:
                ended = core.take_ended(log, segment=number, node=node, end=copy.length)
                yield from _copied(state, copy, ended)


def _trim(state: State, bounds: Bounds) -> Iterator[Change]:
    if bounds.trimming:
        yield coord_of(core.trim(log_of(state["coord"]), before=len(state["read"]) + 1), state)


def _crash_coordinator(state: State, bounds: Bounds) -> Iterator[Change]:
    if state["faults"] < bounds.faults:
        yield coord_of(core.forget_fenced(log_of(state["coord"])), state)


# --- nodes --------------------------------------------------------------------------------------------


def _heard(state: State, kind: str) -> Iterator[tuple[dict[str, Any], NodeId, Replica, tuple[Any, ...]]]:
    """Each message of a kind with the living node that it is for, and what that one has."""
    for message in sent(state, kind):
        node = message["to"]
        if node not in state["dead"]:
            segment = message["seg"]
            yield message, node, at_hand(state, node, segment), state["node"][node][segment - 1]["log"]


def _take_append(state: State, bounds: Bounds) -> Iterator[Change]:
    for message, node, before, entries in _heard(state, "append"):
        segment, index = message["seg"], message["index"]
        replica, taken = core.take_append(before, index=index, count=1, known=message["known"])
        if taken == "closed":
            assert replica == before
            yield sending(state, {"type": "closed", "seg": segment})
        elif taken == "gap":
            assert replica == before
        else:
            log = (*entries, dict(message["entry"])) if taken == "appended" else entries
            acks = [_ack(node, segment, index)] if index <= replica.synced else []
            yield _putting(state, node, segment, record_of(replica, log)) | sending(state, *acks)


def _ack(node: NodeId, segment: int, index: int) -> dict[str, Any]:
    return {"type": "ack", "seg": segment, "from": node, "index": index}


def _sync(state: State, bounds: Bounds) -> Iterator[Change]:
    for node in alive(state):
        for number, record in enumerate(state["node"][node], start=1):
            if record["state"] == "open" and record["synced"] < len(record["log"]):
                replica, index = core.sync(replica_of(record))
                put = _putting(state, node, number, record_of(replica, record["log"]))
                yield put | sending(state, _ack(node, number, index))


def _take_known(state: State, bounds: Bounds) -> Iterator[Change]:
    for message, node, before, entries in _heard(state, "known"):
        replica = core.take_known(before, known=message["known"])
        yield _putting(state, node, message["seg"], record_of(replica, entries))


def _take_fence(state: State, bounds: Bounds) -> Iterator[Change]:
    for message, node, before, entries in _heard(state, "fence"):
        replica, length = core.take_fence(before)
        yield _told(state, node, message["seg"], record_of(replica, entries), "fenced", length=length)


def _take_copy(state: State, bounds: Bounds) -> Iterator[Change]:
    for message, node, before, entries in _heard(state, "copy"):
        source = state["node"][message["from"]][message["seg"] - 1]["log"]
        if message["from"] not in state["dead"] and len(source) >= message["length"]:
            replica, length = core.take_copy(before, length=message["length"])
            log = entries if replica.length == before.length else source
            yield _told(state, node, message["seg"], record_of(replica, log), "fenced", length=length)


def _take_end(state: State, bounds: Bounds) -> Iterator[Change]:
    for message, node, before, entries in _heard(state, "end"):
        replica, end = core.take_end(before, end=message["end"])
        yield _told(state, node, message["seg"], record_of(replica, entries), "ended", end=end)


def _told(
    state: State, node: NodeId, segment: int, record: dict[str, Any], kind: str, **answer: int | None
) -> Change:
    """What the node has, and what it answers unless it has nothing to say."""
    put = _putting(state, node, segment, record)
    if None in answer.values():
        return put
    return put | sending(state, {"type": kind, "seg": segment, "from": node, **answer})


def _crash_node(state: State, bounds: Bounds) -> Iterator[Change]:
    if state["faults"] < bounds.faults:
        for node in alive(state):
            for left in ("synced", "log"):
                after = tuple(_restarted(record, left) for record in state["node"][node])
                yield {"node": {**state["node"], node: after}}


def _restarted(record: dict[str, Any], left: str) -> dict[str, Any]:
    """With what was on disk, or with all that was written."""
    length = record["synced"] if left == "synced" else len(record["log"])
    return record_of(core.restarted(replica_of(record), length=length), record["log"])


def _drop(state: State, bounds: Bounds) -> Iterator[Change]:
    nothing = record_of(Replica(), ())
    trimmed = state["coord"]["trimmed"]
    for node in alive(state):
        records = (nothing,) * trimmed + state["node"][node][trimmed:]
        reach = max(state["held"][node], trimmed)
        yield {"node": {**state["node"], node: records}, "held": {**state["held"], node: reach}}


# --- producers ----------------------------------------------------------------------------------------


def _writing(state: State) -> Iterator[tuple[str, Producer]]:
    for name, known in state["prod"].items():
        if known["phase"] == "writing":
            yield name, producer_of(known)


def _write(state: State, bounds: Bounds) -> Iterator[Change]:
    for name, before in _writing(state):
        first = log_of(state["coord"])[before.segment].first
        if first + before.sent < bounds.events:
            after = core.write(before)
            entry = Record(sorted({"event": first + after.sent, "by": name}.items()))
            append = {"type": "append", "seg": after.segment, "index": after.sent, "known": after.done}
            orders = [{**append, "to": node, "entry": entry} for node in after.acked]
            yield prod_of(after, name, state) | sending(state, *orders)


def _take_ack(state: State, bounds: Bounds) -> Iterator[Change]:
    for name, known in state["prod"].items():
        before = producer_of(known)
        for message in sent(state, "ack"):
            segment, node, index = message["seg"], message["from"], message["index"]
            yield prod_of(core.take_ack(before, segment=segment, node=node, index=index), name, state)


def _publish(state: State, bounds: Bounds) -> Iterator[Change]:
    for _, producer in _writing(state):
        if producer.done:
            known = {"type": "known", "seg": producer.segment, "known": producer.done}
            yield sending(state, *({**known, "to": node} for node in producer.acked))


def _give_up(state: State, bounds: Bounds) -> Iterator[Change]:
    for name, before in _writing(state):
        told = any(message["seg"] == before.segment for message in sent(state, "closed"))
        if told or state["faults"] < bounds.faults:
            close = {"type": "close", "seg": before.segment, "end": before.done}
            yield prod_of(core.give_up(before), name, state) | sending(state, close)


def _stand_down(state: State, bounds: Bounds) -> Iterator[Change]:
    for name, known in state["prod"].items():
        yield prod_of(core.stand_down(producer_of(known), token=state["coord"]["token"]), name, state)


# --- consumers ----------------------------------------------------------------------------------------


def _consume(state: State, bounds: Bounds) -> Iterator[Change]:
    for number, segment in enumerate(state["coord"]["segs"], start=1):
        index = len(state["read"]) - segment["first"]
        for node in alive(state):
            record = state["node"][node][number - 1]
            if 0 <= index < replica_of(record).visible:
                yield {"read": (*state["read"], record["log"][index])}


STEPS: dict[str, Callable[[State, Bounds], Iterator[Change]]] = {
    "Grant": _grant,
    "NewSegment": _new_segment,
    "DecideByProducer": _decide_by_producer,
    "AskFence": _ask_fence,
    "TakeFenced": _take_fenced,
    "AskCopy": _ask_copy,
    "DecideByFence": _decide_by_fence,
    "AskEnd": _ask_end,
    "TakeEnded": _take_ended,
    "Replace": _replace,
    "Repair": _repair,
    "Trim": _trim,
    "CrashCoordinator": _crash_coordinator,
    "TakeAppend": _take_append,
    "Sync": _sync,
    "TakeKnown": _take_known,
    "TakeFence": _take_fence,
    "TakeCopy": _take_copy,
    "TakeEnd": _take_end,
    "Drop": _drop,
    "CrashNode": _crash_node,
    "Write": _write,
    "TakeAck": _take_ack,
    "Publish": _publish,
    "GiveUp": _give_up,
    "StandDown": _stand_down,
    "Consume": _consume,
}
