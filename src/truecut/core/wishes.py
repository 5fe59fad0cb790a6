"""What users ask for, as actions of `delivery`: sinks and tables rest, tables go on, or are read again.

Promises D7: what was asked for is kept until the sink itself shows it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from truecut.core.copies import again, outrun, resumed
from truecut.core.state import Copy, Delivery


def pause(state: Delivery, *, sinks: frozenset[str]) -> Delivery:
    """Pause: exactly these sinks get no new order."""
    return state.with_sinks(
        {
            name: replace(sink, paused=name in sinks)
            for name, sink in state.sinks.items()
            if sink.paused != (name in sinks)
        }
    )


def pause_tables(state: Delivery, *, tables: frozenset[str]) -> Delivery:
    """PauseTable and UnpauseTable: exactly these tables are neither carried nor seeded, at no sink."""
    return state.with_sinks(
        {
            name: replace(sink, paused_tables=tables)
            for name, sink in state.sinks.items()
            if sink.paused_tables != tables
        }
    )


def resume_table(state: Delivery, table: str, *, asked: int, sinks: Iterable[str]) -> Delivery:
    """ResumeTable: a held table goes on from its own place, or is seeded when that cannot be read.

    `asked` names the request. Each copy takes it up once, held or not, and tells the sink so (D7): that we
    see no hold may be out of date.
    """
    return _take_up(state, table, resumed, asked=asked, sinks=sinks)


def copy_again(state: Delivery, table: str, *, asked: int, sinks: Iterable[str]) -> Delivery:
    """CopyAgain: the table is read again for these sinks, whatever they hold. A request like any other: each
    copy takes it up once, and shows it by the seed that answers it (D7)."""
    return _take_up(state, table, again, asked=asked, sinks=sinks)


def _take_up(
    state: Delivery, table: str, taken: Callable[..., Copy], *, asked: int, sinks: Iterable[str]
) -> Delivery:
    changed = {}
    for name in sinks:
        sink = state.sinks[name]
        copy = sink.copies.get(table)
        if sink.phase != "ready" or outrun(state, sink):
            continue
        if copy is not None and copy.wave is None and copy.resumed < asked:
            changed[name] = sink.with_copies(
                {table: taken(state, table, copy, sink.settings[table], asked=asked)}
            )
    return state.with_sinks(changed)
