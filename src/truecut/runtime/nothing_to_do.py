"""Whether a run would find everything in its place: asked before Spark starts.

Promises: nothing is written, but for what a captured source's log has gained meanwhile, which goes into the
journal as a run would put it there: the log of a server moves on also when nothing happens to its tables.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.core.delivery import Delivery, SinkState
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.capture_report import captured
from truecut.runtime.dry_run import Outlook, head_of, look_ahead, nothing_lacks
from truecut.sources.registry import survey_source

SMALL = 16 << 20  # bytes of a server's log: more of it is captured while Spark starts
PATIENCE_S = 10.0


def nothing_to_do(
    pipeline: Pipeline, outlook: Outlook, target: Position | None, stop: threading.Event, *, owner: str
) -> Outlook | None:
    """Where everything stands, if all of it is where it shall be (`target` None: the head as it was seen)."""
    if target is not None or not SOURCES[pipeline.source.type].captured:
        return outlook if nothing_lacks(outlook, target) else None
    goal, ours = head_of(outlook.seen), _nothing_came(pipeline, outlook, outlook.seen.head)
    if ours and goal > outlook.seen.head:
        if goal.place - outlook.seen.head.place > SMALL or captured(pipeline).state != "stopped":
            return None
        _capture(pipeline, stop, owner)
        outlook = look_ahead(pipeline)
        ours = _nothing_came(pipeline, outlook, goal)
    return replace(outlook, state=_at(outlook.state, outlook.seen.head)) if ours else None


def _nothing_came(pipeline: Pipeline, outlook: Outlook, goal: Position) -> bool:
    """Whether nothing that is captured is for any copy that stands before the goal."""
    survey = survey_source(pipeline.source, generation=outlook.seen.head.generation)

    def lacks(table: str, at: Position) -> bool:
        found = survey.outstanding(TableName.parse(table), after=at, seen=outlook.seen)
        return at.generation != goal.generation or found.transactions > 0

    return nothing_lacks(outlook, goal, lacks)


def _capture(pipeline: Pipeline, stop: threading.Event, owner: str) -> None:
    """Everything that is there now; given up when it takes long, as where another has begun to capture."""
    from truecut.runtime.capture_start import capture

    patience = threading.Timer(PATIENCE_S, stop.set)
    patience.daemon = True
    patience.start()
    try:
        capture(pipeline, owner=owner, stop=stop, once=True)
    finally:
        patience.cancel()


def _at(state: Delivery, goal: Position) -> Delivery:
    """The same, read up to there: nothing lay between."""
    return state.with_sinks({name: _read_upto(sink, goal) for name, sink in state.sinks.items()})


def _read_upto(sink: SinkState, goal: Position) -> SinkState:
    copies = {
        table: replace(copy, at=max(copy.at, goal)) if copy.at is not None else copy
        for table, copy in sink.copies.items()
    }
    return replace(sink, copies=copies)
