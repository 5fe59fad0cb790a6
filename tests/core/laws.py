"""What must hold in the simulation after every step, told by comparing sinks with the source."""

from __future__ import annotations

from collections.abc import Iterable

from tests.core.world import Kept, Sink, Source, Task
from truecut.core.copies import outrun
from truecut.core.delivery import Copy, Delivery, SinkState
from truecut.model.cursor import Version
from truecut.model.position import Position


class Broken(AssertionError):
    """A law does not hold."""


def content(name: str, table: str, kept: Kept, source: Source) -> None:
    """A copy is exactly its share of the source at its own place; an append table has every change once."""
    if not kept.version.edition:
        return
    at = kept.version.at.place
    if kept.mode == "append":
        expected = []
        for base, upto in [*kept.seeds, (kept.base, at)]:
            expected += source.reads(name, table, base, kept.shape)
            expected += source.log(name, table, after=base, upto=upto, shape=kept.shape)
        if kept.appended != expected:
            raise Broken("AppendExactlyOnce")
        return
    if any(len(values) > 1 for values in kept.mirror.values()):
        raise Broken("NoDuplicate")
    if kept.mirror != source.share(name, table, at, kept.shape):
        raise Broken("TransactionNeverSplit")


Before = tuple[int, Position | None, dict[str, Version]]


def before(sink: Sink) -> Before:
    """What `only_grows` compares with."""
    return sink.token, sink.position, {table: kept.version for table, kept in sink.copies.items()}


def only_grows(sink: Sink, token: int, position: Position | None, versions: dict[str, Version]) -> None:
    """Tokens, cursors, and each copy's edition and place."""
    if sink.token < token:
        raise Broken("TokenMonotonicity")
    if position is not None and (sink.position is None or sink.position < position):
        raise Broken("CursorMonotonicity")
    for table, version in versions.items():
        now = sink.copies[table].version
        if (now.edition, now.at) < (version.edition, version.at):
            raise Broken("CursorMonotonicity: of a copy")


def knowledge(name: str, known: SinkState, sink: Sink, source: Source) -> None:
    """What a runner believes durable is durable; what it has read exists, and was nothing to the copy."""
    if known.phase != "ready":
        if known.copies or known.cursor is not None:
            raise Broken("FlushStateConsistency: knows what it has not asked for")
        return
    if not 0 < known.token <= sink.token:
        raise Broken("FlushStateConsistency: writes before the fence was raised")
    for table, copy in known.copies.items():
        _belief(name, table, copy, sink, source)


def _belief(name: str, table: str, copy: Copy, sink: Sink, source: Source) -> None:
    durable, actual = copy.durable, sink.version(table)
    if durable is None:
        return
    if actual is None or (durable.edition, durable.at) > (actual.edition, actual.at):
        raise Broken("BufferPositionBound: believes durable what is not")
    if copy.at is None:
        return
    if not durable.at.place <= copy.at.place <= source.head:
        raise Broken("BufferPositionBound")
    streaming = copy.status == "streaming"
    if streaming and source.log(name, table, after=durable.at.place, upto=copy.at.place):
        raise Broken("BufferPositionBound: skipped what was for this copy")


def caught_up(state: Delivery, known: SinkState) -> None:
    """Who is taken to have caught up has what was looked at. Places here grow from one source to the next, so
    that a wrong generation does not hide what is lacking."""
    if state.head is None or outrun(state, known):
        return
    for copy in known.copies.values():
        if copy.at is not None and copy.at >= state.head and copy.at.place < state.head.place:
            raise Broken("CaughtUpIsTrue")


def one_order(runner: str, name: str, known: SinkState, sink: Sink, network: Iterable[Task]) -> None:
    """D3: of this epoch, at most the order of the wave that a copy is in can still change it."""
    alive: dict[str, int] = {}
    for task in network:
        mine = (task.runner, task.sink, task.epoch) == (runner, name, known.epoch)
        if mine and task.order is not None and task.token == sink.token:
            tables = task.order.tables
            if all(sink.version(table) == one.expected for table, one in tables.items()):
                for table in tables:
                    alive[table] = alive.get(table, 0) + 1
    for table, count in alive.items():
        copy = known.copies.get(table)
        if count > (copy is not None and copy.wave is not None):
            raise Broken("FlushStateConsistency: an order of this epoch is still alive")
