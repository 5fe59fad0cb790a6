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


def _fence_without_fencing(replica: Replica) -> tuple[Replica, int | None]:
    return replica, replica.length


def _fence_whatever_it_is(replica: Replica) -> tuple[Replica, int | None]:
    return replace(replica, state="fenced"), replica.length


def _decide_again(log: Log, *, segment: int, end: int) -> Log:
    segments = list(log.segments)
    segments[segment - 1] = replace(segments[segment - 1], end=end)
    return replace(log, segments=tuple(segments))


def _keep_acks(producer: Producer, *, segment: int, nodes: Any) -> Producer:
    acked = {node: producer.acked.get(node, 0) for node in nodes}
    return Producer("writing", producer.token, segment, acked=acked)


def _decide_alone(log: Log, *, replicas: int) -> Log:
    return _decide_by_fence(log, replicas=1)


IN_THE_MACHINE: dict[str, tuple[object, str, object]] = {
    "last_entry_served": (Replica, "visible", property(lambda self: self.length)),
    "unfenced_reply_counted": (core, "take_fence", _fence_without_fencing),
    "suspend_after_seal": (core, "take_fence", _fence_whatever_it_is),
    "close_decided_twice": (core, "decide_by_producer", _decide_again),
    "acks_kept": (core, "told_segment", _keep_acks),
    "decided_alone": (core, "decide_by_fence", _decide_alone),
}
IN_ITS_SURROUNDINGS = ("ack_before_fsync", "end_not_retried", "torn_tail_trusted")
ALL = (*IN_THE_MACHINE, *IN_ITS_SURROUNDINGS)


@contextmanager
def switched_on(bug: str | None) -> Iterator[frozenset[str]]:
    """The bug, for the duration of a block; yields what the simulation itself has to do wrong."""
    if bug in IN_THE_MACHINE:
        with patch.object(*IN_THE_MACHINE[bug]):
            yield frozenset()
    else:
        yield frozenset({bug} if bug else ())
