"""Killed at each durable step, in a process of its own; then recovered and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks import crashing
from tests.sinks.conftest import KINDS, MakeLake
from tests.sinks.world import (
    applied,
    changes,
    cursor_of,
    order,
    packets,
    position,
    read,
    rows,
    seed,
    sink,
    tenant,
)
from truecut.failpoint import KILLED, NAMES
from truecut.model.change import DELETE, INSERT, READ, UPDATE
from truecut.sinks.contract import Packet
from truecut.testing.orders import repair

SEED = [(READ, 4, 1, "a"), (READ, 4, 2, "b")]
WINDOW = [(UPDATE, 5, 1, "a1"), (DELETE, 5, 2, "b"), (INSERT, 5, 3, "c")]
BEFORE, AFTER = [(1, "a"), (2, "b")], [(1, "a1"), (3, "c")]
# Each point of the sink, and whether the order has committed when the process dies there.
POINTS = {
    "after_takeover": False,
    "before_sink_transaction": False,
    "after_sink_data": False,
    "before_sink_commit": False,
    "after_sink_commit": True,
}


def test_every_failpoint_of_the_sink_is_here() -> None:
    """No crash point of the sink goes untested."""
    assert {name for name in NAMES if "sink" in name or "takeover" in name} == set(POINTS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_all_or_nothing(make_lake: MakeLake, tmp_path: Path, kind: str, point: str) -> None:
    """Killed at a durable step, the sink holds the whole order with its cursor, or nothing of it; the next
    owner carries it out or finds it there, and the content is the same."""
    address = make_lake(kind)
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed(), log=seed("append")), packets(t=SEED, log=SEED)))
    wanted = order(4, 5, token=2, t=changes(), log=changes("append"))
    found = [Packet("main.t", rows(WINDOW)), Packet("main.log", rows(WINDOW))]
    hits = tmp_path / "hits"
    hits.mkdir()
    armed = {"TRUECUT_FAILPOINT": point, "TRUECUT_FAILPOINT_HITS": str(hits)}
    died = crashing.exit_code(armed, sink(address), wanted, found)
    assert (died, [hit.name for hit in hits.iterdir()]) == (KILLED, [point])
    committed = POINTS[point]
    assert read(address, "t") == (AFTER if committed else BEFORE)
    assert cursor_of(address) == (str(position(5 if committed else 4)), 2)

    cursor = applied(sink(address).recover(epoch=2, token=3)).cursor
    assert cursor is not None
    assert cursor.position == position(5 if committed else 4)
    again = sink(address).apply(order(4, 5, token=3, t=changes(), log=changes("append")), iter(found))
    assert again.outcome == ("already" if committed else "applied")
    assert read(address, "t") == AFTER
    assert len(read(address, "log")) == len(SEED) + len(WINDOW)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_a_copy_as_it_was_or_repaired(make_lake: MakeLake, tmp_path: Path, point: str) -> None:
    """Killed at a durable step of a repair: never a part of it; the same order has one effect."""
    address = make_lake("sqlite")
    applied(sink(address).recover(epoch=1, token=1))
    applied(sink(address).apply(order(None, 4, t=seed()), packets(t=SEED)))
    tenant(
        address, "UPDATE lake.main.t SET value = 'mine' WHERE id = 1", "DELETE FROM lake.main.t WHERE id = 2"
    )
    found = [Packet("main.t", rows([(DELETE, 4, 1, "?"), (INSERT, 4, 1, "a"), (INSERT, 4, 2, "b")]))]
    hits = tmp_path / "hits"
    hits.mkdir()
    armed = {"TRUECUT_FAILPOINT": point, "TRUECUT_FAILPOINT_HITS": str(hits)}
    wanted = order(4, 4, token=2, t=repair())
    assert crashing.exit_code(armed, sink(address), wanted, found) == KILLED
    committed = POINTS[point]
    assert read(address, "t") == ([(1, "a"), (2, "b")] if committed else [(1, "mine")])
    applied(sink(address).recover(epoch=2, token=3))
    again = sink(address).apply(order(4, 4, token=3, t=repair()), iter(found))
    assert again.outcome == ("failed" if committed else "applied")  # it does not fit any more
    assert (read(address, "t"), cursor_of(address)) == ([(1, "a"), (2, "b")], (str(position(4)), 3))
