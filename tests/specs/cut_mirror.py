"""Between the spec's backfill and the code's.

`backfill_of` makes the code's value from the spec's state, `abstract` goes back. `STEPS[action]` tells what
the code makes of a state by the action of that name: for every unit and every end of a wave, the variables
that change. What the source does (locks, snapshots, rows that are read) is done here as the spec does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from truecut.core import cut, splice, visibility
from truecut.core.cut import Backfill, Evidence, Log, Opened, Range, Slot, Unit
from truecut.core.splice import ABSENT, MISSING, Event, Row
from truecut.core.visibility import Snapshot
from truecut.model.position import Position

State = dict[str, Any]
Change = dict[str, Any]
OTHERS = {9}
UNTOLD = {-2: MISSING, -3: ABSENT}
NO_ROW = {"a": 0, "b": 0}
NONE = {"phase": "none"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the model allows."""

    high: int
    workers: int
    faults: int
    editions: int
    splits: tuple[int, ...]


def bounds_of(configuration: str) -> Bounds:
    """As its model says; all walked ones have three keys."""
    found = {name: int(value) for name, value in re.findall(r"^  (\w+) = (\d+)$", configuration, re.M)}
    splits = (3,) if "  Splits <- AtThree\n" in configuration else ()
    return Bounds(4, found["Workers"], found["MaxFaults"], found["MaxEditions"], splits)


# --- values -------------------------------------------------------------------------------------------


def at(place: int) -> Position:
    """A place of the log."""
    return Position(1, place)


def snapshot_of(snap: Any) -> Snapshot:
    return Snapshot(min({snap["xmax"], *snap["xip"]}), snap["xmax"], frozenset(snap["xip"]))


def _snap(snapshot: Snapshot) -> dict[str, Any]:
    return {"xmax": snapshot.xmax, "xip": snapshot.xip}


def function(value: Any) -> dict[Any, Any]:
    """TLC writes a function of 1..n as a sequence."""
    return dict(enumerate(value, start=1)) if isinstance(value, tuple) else value


def rows_of(rows: Any) -> dict[Any, Row]:
    found = {key: (row["a"], UNTOLD.get(row["b"], row["b"])) for key, row in function(rows).items()}
    return {key: row for key, row in found.items() if row[0]}


def _rows(rows: dict[Any, Row], keys: Any) -> dict[int, Any]:
    return {k: {"a": rows[k][0], "b": rows[k][1]} if k in rows else NO_ROW for k in keys}


def backfill_of(state: State, bounds: Bounds) -> Backfill:
    sink, ledger, work = state["sink"], state["ledger"], state["work"]
    units = []
    for low, high in sorted(ledger):
        u = (low, high)
        record, opened = ledger[u], work[u]
        evidence = None if record == NONE else _evidence(record)
        reader = None if opened == NONE else Opened(snapshot_of(opened["snap"]), at(opened["end"]))
        floor = at(sink["floor"][u]) if sink["floor"][u] else None
        units.append(Unit(_range(u, bounds), floor, reader, evidence, u in sink["applied"]))
    slot = Slot(at(state["slot"]["at"]), snapshot_of(state["slot"]["seen"]), writers(state))
    return Backfill(slot, tuple(units), at(sink["cursor"]), sink["edition"])


def _evidence(record: Any) -> Evidence:
    rows = rows_of(record["rows"])
    return Evidence(snapshot_of(record["snap"]), at(record["lo"]), at(record["hi"]), len(rows), "")


def _range(u: tuple[int, int], bounds: Bounds) -> Range:
    return Range(u[0] or None, None if u[1] == bounds.high else u[1])


def abstract(backfill: Backfill, state: State, bounds: Bounds, rows: dict[int, Any] | None = None) -> Change:
    """The spec's variables, as the code has them now. Rows of records are the source's answer."""
    units = {(u.range.low or 0, u.range.high or bounds.high): u for u in backfill.units}
    sink = {
        "cursor": backfill.cursor.place,
        "applied": frozenset(u for u, unit in units.items() if unit.applied),
        "floor": {u: unit.floor.place if unit.floor else 0 for u, unit in units.items()},
        "edition": backfill.edition,
        "rows": rows or function(state["sink"]["rows"]),
    }
    work = {u: _work(unit) for u, unit in units.items()}
    ledger = {u: _record(unit) for u, unit in units.items()}
    return {"sink": sink, "work": work, "ledger": ledger}


def _work(unit: Unit) -> dict[str, Any]:
    if unit.opened is None:
        return NONE
    return {"phase": "open", "snap": _snap(unit.opened.snapshot), "end": unit.opened.end.place}


def _record(unit: Unit) -> dict[str, Any]:
    told = unit.evidence
    if told is None:
        return NONE
    return {"phase": "recorded", "snap": _snap(told.snapshot), "lo": told.lo.place, "hi": told.hi.place}


def compared(state: State) -> Change:
    """What of a state of the spec the code has a word in."""
    sink = {name: value for name, value in state["sink"].items() if name != "times"}
    ledger = {u: {k: v for k, v in r.items() if k != "rows"} for u, r in state["ledger"].items()}
    return {
        "sink": {**sink, "rows": function(sink["rows"])},
        "work": dict(state["work"]),
        "ledger": ledger,
    }


# --- the source ---------------------------------------------------------------------------------------


def commits(state: State) -> list[tuple[Position, int]]:
    """The log as capture tells it: where each commit is, and whose."""
    written = enumerate(state["wal"], start=1)
    top = {t: ids[0] for t, ids in function(state["xids"]).items()}
    found = [(at(i), top[e["t"]]) for i, e in written if e["kind"] == "commit"]
    return [one for one in found if one[0] > at(state["slot"]["at"])]


def log(state: State) -> Log:
    """From where the slot is."""
    return Log(at(state["slot"]["at"]), commits(state))


def is_sent(state: State, number: int) -> bool:
    """Whether the log has a row: what was written to a table before it was published it has not."""
    published = state["published"]
    return state["wal"][number - 1]["key"] in OTHERS or (published != NONE and number > published["at"])


def writers(state: State) -> frozenset[int]:
    """Who has written what is not sent."""
    rows = [(n, e["t"]) for n, e in enumerate(state["wal"], start=1) if e["kind"] != "commit"]
    return frozenset(function(state["xids"])[t][0] for n, t in rows if not is_sent(state, n))


def rolled_back(state: State, t: int) -> set[int]:
    done = function(state["txns"])[t][: function(state["pc"])[t]]
    return {op["sub"] for op in done if op["op"] == "back"}


def events(state: State, t: int) -> list[Any]:
    back = rolled_back(state, t)
    return [e for e in state["wal"] if e["t"] == t and e["kind"] != "commit" and e["sub"] not in back]


def running(state: State) -> list[int]:
    return [t for t, done in function(state["pc"]).items() if done and t not in state["ended"]]


def snapshot(state: State) -> Snapshot:
    """As the source would tell it now."""
    xids = function(state["xids"])
    xmax = 1 + max([0, *(x for t in state["ended"] for x in xids[t].values())])
    xip = frozenset(xids[t][0] for t in running(state) if 0 < xids[t][0] < xmax)
    return Snapshot(min({xmax, *xip}), xmax, xip)


def lockable(state: State) -> bool:
    """Whether no TRUNCATE is under way."""
    return not any(e["kind"] == "truncate" for t in running(state) for e in events(state, t))


# --- steps --------------------------------------------------------------------------------------------


def _open_unit(state: State, bounds: Bounds) -> Iterator[Change]:
    backfill = backfill_of(state, bounds)
    published = state["published"] != NONE
    if published and lockable(state) and cut.to_open(backfill, workers=bounds.workers):
        for index in cut.to_open(backfill, workers=99):
            opened = cut.open_unit(
                backfill, index, snapshot=snapshot(state), end=at(len(state["wal"])), log=log(state)
            )
            yield abstract(opened, state, bounds)


def _record_unit(state: State, bounds: Bounds) -> Iterator[Change]:
    backfill = backfill_of(state, bounds)
    for index, unit in enumerate(backfill.units):
        if unit.opened is not None:
            recorded = cut.record_unit(backfill, index, rows=0, digest="", log=log(state))
            yield abstract(recorded, state, bounds)


def _split(state: State, bounds: Bounds) -> Iterator[Change]:
    backfill = backfill_of(state, bounds)
    for index, (low, high) in enumerate(sorted(state["ledger"])):
        for key in bounds.splits:
            if low < key < high:
                yield abstract(cut.split(backfill, index, at=key), state, bounds)


def _wave(state: State, bounds: Bounds) -> Iterator[Change]:
    backfill = backfill_of(state, bounds)
    ends = {backfill.cursor, *(place for place, _ in commits(state) if place >= backfill.cursor)}
    for upto in ends:
        ready = sorted(cut.ready(backfill, upto=upto))
        subsets = chain.from_iterable(combinations(ready, n) for n in range(len(ready) + 1))
        for units in subsets:
            if units or upto > backfill.cursor:
                yield _applied(state, bounds, backfill, upto, units)


def _applied(
    state: State, bounds: Bounds, backfill: Backfill, upto: Position, units: tuple[int, ...]
) -> Change:
    """One commit, with the rows that the code's splice leaves."""
    plan = sorted(state["ledger"])
    splices = cut.splices(backfill, units)
    rows = rows_of(state["sink"]["rows"])
    for index in units:
        rows |= rows_of(state["ledger"][plan[index]]["rows"])
    for place, t, e in _log(state, upto):
        rows = _taken(state, plan, splices, backfill, rows, place, t, e)
    torn = [index for index, u in enumerate(plan) if _is_torn(u, rows)]
    left = {key: row for key, row in rows.items() if not any(_in(key, plan[index]) for index in torn)}
    done = cut.wave(backfill, upto=upto, units=units, torn=torn)
    return abstract(done, state, bounds, _rows(left, function(state["sink"]["rows"])))


def _log(state: State, upto: Position) -> Iterator[tuple[Position, int, Any]]:
    for i, entry in enumerate(state["wal"], start=1):
        if entry["kind"] == "commit" and state["slot"]["at"] < i <= upto.place:
            back = rolled_back(state, entry["t"])
            for n, e in enumerate(state["wal"], start=1):
                own = e["t"] == entry["t"] and e["kind"] != "commit" and e["sub"] not in back
                if own and is_sent(state, n):
                    yield at(i), entry["t"], e


def _taken(
    state: State, plan: Any, splices: Any, backfill: Backfill, rows: Any, place: Position, t: int, e: Any
) -> dict[Any, Row]:
    xids = function(state["xids"])[t]
    xid = visibility.top_level(e["xid"], dict.fromkeys(xids.values(), xids[0]))

    def takes(key: Any) -> bool:
        if key in OTHERS:
            return place > backfill.cursor
        spliced = next((splices[index] for index, u in enumerate(plan) if _in(key, u)), None)
        return spliced is not None and bool(spliced.keeps(at=place, xid=xid))

    event = Event(e["kind"], e["key"], e["to"], (e["a"], UNTOLD.get(e["b"], e["b"])))
    mine = {key: row for key, row in rows.items() if (key in OTHERS) == (e["key"] in OTHERS)}
    return {**{key: row for key, row in rows.items() if key not in mine}, **splice.taken(mine, event, takes)}


def _in(key: Any, u: tuple[int, int]) -> bool:
    return bool(u[0] <= key < u[1])


def _is_torn(u: tuple[int, int], rows: dict[Any, Row]) -> bool:
    return any(_in(key, u) and splice.incomplete(row) for key, row in rows.items())


def _repeat(state: State, bounds: Bounds) -> Iterator[Change]:
    backfill = backfill_of(state, bounds)
    if backfill.streaming and backfill.edition < bounds.editions:
        rows = {k: row if k in OTHERS else NO_ROW for k, row in function(state["sink"]["rows"]).items()}
        yield abstract(cut.repeat(backfill), state, bounds, rows)


def _forget(state: State, bounds: Bounds) -> Iterator[Change]:
    if state["faults"] < bounds.faults:
        yield abstract(cut.forget(backfill_of(state, bounds)), state, bounds)


STEPS: dict[str, Callable[[State, Bounds], Iterator[Change]]] = {
    "OpenUnit": _open_unit,
    "RecordUnit": _record_unit,
    "Split": _split,
    "Wave": _wave,
    "Repeat": _repeat,
    "Forget": _forget,
}
