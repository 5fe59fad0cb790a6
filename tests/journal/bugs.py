"""The spec's bugs, put into the code: each must be caught by the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from truecut.core import segment_log as core
from truecut.core.segment_log import Log, Producer, Replica

_decide_by_fence = core.decide_by_fence
_take_append, _take_fence, _take_copy = core.take_append, core.take_fence, core.take_copy


def _shown(replica: Replica) -> int:
    return replica.length if replica.state == "fenced" else min(replica.seen, replica.length)


def _fence_without_fencing(replica: Replica) -> tuple[Replica, int | None]:
    return (replica, replica.length) if replica.state != "damaged" else (replica, None)


def _fence_whatever_it_is(replica: Replica) -> tuple[Replica, int | None]:
    return replace(replica, state="fenced"), replica.length


def _fence_unsynced(replica: Replica) -> tuple[Replica, int | None]:
    fenced, length = _take_fence(replica)
    return replace(fenced, unsynced=0 if length is None else replica.unsynced), length


def _never_there(replica: Replica) -> Replica:
    return Replica() if replica.state == "missing" else replica


def _append_anew(replica: Replica, **append: int) -> tuple[Replica, core.Taken]:
    return _take_append(_never_there(replica), **append)


def _fence_nothing(replica: Replica) -> tuple[Replica, int | None]:
    return _take_fence(_never_there(replica))


def _copy_anew(replica: Replica, *, length: int) -> tuple[Replica, int | None]:
    return _take_copy(_never_there(replica), length=length)


def _decide_again(log: Log, *, segment: int, end: int) -> Log:
    if segment <= log.trimmed:
        return log
    segments = list(log.segments)
    place = segment - 1 - log.trimmed
    segments[place] = replace(segments[place], end=end)
    return replace(log, segments=tuple(segments))


def _keep_acks(producer: Producer, *, segment: int, nodes: Any) -> Producer:
    acked = {node: producer.acked.get(node, 0) for node in nodes}
    return Producer("writing", producer.token, segment, acked=acked)


def _decide_alone(log: Log, *, replicas: int) -> Log:
    return _decide_by_fence(log, replicas=1)


IN_THE_MACHINE: dict[str, tuple[object, str, object]] = {
    "last_entry_served": (Replica, "visible", property(lambda self: self.length)),
    "fenced_served": (Replica, "visible", property(lambda self: _shown(self))),
    "unfenced_reply_counted": (core, "take_fence", _fence_without_fencing),
    "suspend_after_seal": (core, "take_fence", _fence_whatever_it_is),
    "told_before_fsync": (core, "take_fence", _fence_unsynced),
    "missing_is_empty": (core, "take_fence", _fence_nothing),
    "begun_anew": (core, "take_append", _append_anew),
    "copied_anew": (core, "take_copy", _copy_anew),
    "close_decided_twice": (core, "decide_by_producer", _decide_again),
    "acks_kept": (core, "told_segment", _keep_acks),
    "decided_alone": (core, "decide_by_fence", _decide_alone),
}
IN_ITS_SURROUNDINGS = (
    "ack_before_fsync",
    "end_not_retried",
    "torn_tail_trusted",
    "trimmed_forgotten",
    "half_copy_counted",
    "replaced_before_copied",
)
ALL = (*IN_THE_MACHINE, *IN_ITS_SURROUNDINGS)


@contextmanager
def switched_on(bug: str | None) -> Iterator[frozenset[str]]:
    """The bug, for the duration of a block; yields what the simulation itself has to do wrong."""
    if bug in IN_THE_MACHINE:
        with patch.object(*IN_THE_MACHINE[bug]):
            yield frozenset()
    else:
        yield frozenset({bug} if bug else ())
