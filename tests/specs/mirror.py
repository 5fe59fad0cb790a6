"""Between the spec's runner and the code's machine: one sink with its tables.

`concrete` makes the machine's value from the spec's state, `abstract` goes back, `orders_of` tells an effect
as the spec's order. Position n of the spec is place n, of generation 1 or, from `REPLACED_AT` on, of
generation 2; Unseeded (-1) is None, or, for a copy that had to stop before it was ever seeded, place 0. The
wave in the spec's slot for changes is wave 1 of the code, the one in the slot for seeds is wave 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from truecut.core.copies import GAP_CODE
from truecut.core.delivery import Copy, CopyOrder, CopySettings, Delivery, Effect, SinkOrder, SinkState, Wave
from truecut.core.state import Recover, RunWave
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold, Version
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Column, Mode

SINK = "a"
RUNNER = "r1"
SOURCES = {1: "the source", 2: "its successor"}
REPLACED_AT = 3  # in the walk of a source that is replaced; the other histories end before it
FAULT = Fault("TC4099", "no answer", "None needed.", Retry.RETRYABLE)
KINDS = {"changes": "changes", "replace": "seed", "persist": "persist"}
SPEC_KINDS = {code: spec for spec, code in KINDS.items()}
WAVES = {"changes": 1, "seed": 2}
CODES = {"gap": GAP_CODE, "fault": "TC3099"}
HOLDS = {code: name for name, code in CODES.items()}
NO_WAVE = {"kind": "none", "tables": frozenset(), "after": -1, "upto": -1}

State = Mapping[str, Any]  # the spec's variables
Known = Mapping[str, Any]  # the spec's record of one sink at one runner


def at(number: int) -> Position:
    """A position of the spec that is there, in the code."""
    return Position(generation(number), max(0, number))


def generation(number: int) -> int:
    """As the spec's GenOf, which is its SrcOf, too."""
    return 2 if number >= REPLACED_AT else 1


def version(known: Mapping[str, Any]) -> Version | None:
    """A version of the spec, in the code."""
    if known["at"] < 0 and known["hold"] == "none":
        return None
    return Version(known["edition"], at(known["at"]), CODES.get(known["hold"]), known["resumed"])


def spec_version(known: Version | None, *, shape: bool) -> dict[str, Any]:
    """A version of the code, in the spec."""
    if known is None:
        return {"at": -1, "edition": 0, "hold": "none", "resumed": 0, "shape": False}
    return {
        "at": known.at.place if known.edition else -1,
        "edition": known.edition,
        "hold": "none" if known.hold is None else HOLDS[known.hold],
        "resumed": known.resumed,
        "shape": shape and known.edition > 0,
    }


# --- from the spec to the code ------------------------------------------------------------------------


def fingerprint(shape: bool) -> str:
    return "the new settings" if shape else "the old settings"


def concrete(state: State, mode: Mode = "mirror") -> Delivery:
    """The machine's value for the spec's runner."""
    runner = state["run"][RUNNER]
    known = runner["sinks"][SINK]
    wishes = state["wishes"]
    settings = {
        table: CopySettings(mode, fingerprint=fingerprint(table in wishes["accepted"]), accept=True)
        for table in known["copies"]
    }
    copies = {} if known["phase"] != "ready" else {t: _copy(known, t, wishes) for t in known["copies"]}
    sink = SinkState(
        settings,
        phase=known["phase"],
        token=known["token"],
        epoch=known["epoch"],
        copies=copies,
        paused_tables=frozenset(wishes["paused"]),
    )
    oldest, head = at(runner["oldest"]), at(runner["head"])
    machine = Delivery({SINK: sink}, SOURCES[runner["src"]], oldest, head, next_wave=3)
    waves = {WAVES[slot]: _wave(sink, slot, wave) for slot, wave in known["waves"].items() if wave != NO_WAVE}
    return replace(machine, waves=waves)


def _copy(known: Known, table: str, wishes: Mapping[str, Any]) -> Copy:
    copy = known["copies"][table]
    durable = copy["durable"]
    slots = [slot for slot, wave in known["waves"].items() if table in wave["tables"]]
    seeding = copy["status"] == "unseeded"
    return Copy(
        copy["status"],
        None if seeding and copy["at"] < 0 else at(copy["at"]),
        durable["edition"],
        hold=None if copy["hold"] == "none" else Hold(CODES[copy["hold"]], "it stopped"),
        resumed=copy["resumed"],
        source_identity=SOURCES[generation(durable["at"])] if version(durable) is not None else "",
        durable=version(durable),
        wave=WAVES[slots[0]] if slots else None,
        shaped=durable["at"] < 0 or durable["shape"] == (table in wishes["accepted"]),
    )


def _wave(sink: SinkState, slot: str, wave: Mapping[str, Any]) -> Wave:
    upto = at(wave["upto"])
    tables = {table: _order(wave["kind"], sink.copies[table]) for table in sorted(wave["tables"])}
    return Wave(
        WAVES[slot],
        KINDS[wave["kind"]],  # type: ignore[arg-type]
        {SINK: SinkOrder(sink.epoch, sink.token, tables)},
        () if wave["kind"] == "persist" else tuple(tables),
        at(wave["after"]) if wave["kind"] == "changes" else None,
        upto,
        identity=SOURCES[generation(wave["upto"])],
    )


def _order(kind: str, copy: Copy) -> CopyOrder:
    if kind == "replace":
        return CopyOrder("replace", copy.durable, None, copy.edition + 1, copy.resumed)
    held = "changes" if kind == "changes" else "persist" if copy.hold is None else "hold"
    return CopyOrder(held, copy.durable, copy.at, copy.edition, copy.resumed, copy.hold)  # type: ignore[arg-type]


def cursor(versions: Mapping[str, Mapping[str, Any]], token: int) -> Cursor:
    """What the sink tells when its copies have these versions."""
    copies = {table: _copy_state(known) for table, known in versions.items() if version(known) is not None}
    return Cursor(max((copy.at for copy in copies.values()), default=None), token, copies)


def _copy_state(known: Mapping[str, Any]) -> CopyState:
    return CopyState(
        "mirror",
        "t",
        (Column(1, "id", "BIGINT"),) if known["edition"] else (),
        hold=None if known["hold"] == "none" else Hold(CODES[known["hold"]], "it stopped"),
        fingerprint=fingerprint(known["shape"]),
        at=at(known["at"]),
        edition=known["edition"],
        resumed=known["resumed"],
        source_identity=SOURCES[generation(known["at"])],
    )


def answer(state: State, order: Any) -> Receipt:
    """An order's answer: the copies that it names as it left them, the others as they are by now."""
    versions = {table: copy["v"] for table, copy in state["sink"][SINK]["copies"].items()}
    for table, one in dict(order.tables).items():
        stopped = {**dict(one.expected), "hold": "fault", "resumed": dict(one.leaves)["resumed"]}
        versions[table] = stopped if table in order.stopped else dict(one.leaves)
    return Receipt(SINK, order.epoch, "applied", cursor=cursor(versions, order.token))


# --- from the code to the spec ------------------------------------------------------------------------


def abstract(machine: Delivery, state: State) -> dict[str, Any]:
    """The spec's runner for a machine's value."""
    sink = machine.sinks[SINK]
    accepted = state["wishes"]["accepted"]
    known = {
        "phase": sink.phase,
        "token": sink.token,
        "epoch": sink.epoch,
        "copies": {table: _spec_copy(sink, table, table in accepted) for table in sink.settings},
        "waves": {
            slot: _spec_wave(machine, sink, seeding=slot == "seed")
            for slot in state["run"][RUNNER]["sinks"][SINK]["waves"]
        },
    }
    assert machine.oldest is not None
    assert machine.head is not None
    source = next(number for number, name in SOURCES.items() if name == machine.identity)
    look = {"src": source, "oldest": machine.oldest.place, "head": machine.head.place}
    return {**look, "sinks": {SINK: known}}


def _spec_copy(sink: SinkState, table: str, accepted: bool) -> dict[str, Any]:
    copy = sink.copies.get(table)
    if copy is None:
        durable = spec_version(None, shape=False)
        return {"status": "none", "at": -1, "hold": "none", "resumed": 0, "durable": durable}
    assert copy.edition == (0 if copy.durable is None else copy.durable.edition)
    return {
        "status": copy.status,
        "at": copy.at.place if copy.at is not None and copy.edition else -1,
        "hold": "none" if copy.hold is None else HOLDS[copy.hold.code],
        "resumed": copy.resumed,
        "durable": spec_version(copy.durable, shape=accepted if copy.shaped else not accepted),
    }


def _spec_wave(machine: Delivery, sink: SinkState, *, seeding: bool) -> dict[str, Any]:
    """The wave in a slot: of changes, or of a seed. Two of a kind for one sink are told as one, wrongly."""
    numbers = {copy.wave for copy in sink.copies.values() if copy.wave is not None}
    waves = [machine.waves[number] for number in numbers if (machine.waves[number].kind == "seed") == seeding]
    if not waves:
        return NO_WAVE
    tables = frozenset(t for t, copy in sink.copies.items() for wave in waves if copy.wave == wave.id)
    upto = waves[0].upto_max.place
    after = waves[0].after
    return {
        "kind": SPEC_KINDS[waves[0].kind],
        "tables": tables,
        "after": upto if after is None else after.place,
        "upto": upto,
    }


def orders_of(effects: list[Effect], state: State) -> list[dict[str, Any]]:
    """What the effects ask of the sink, in the spec's words."""
    asked = []
    for effect in effects:
        if isinstance(effect, Recover):
            asked += [_takeover(epoch, token) for epoch, token in effect.sinks.values()]
        elif isinstance(effect, RunWave):
            asked.append(_spec_order(effect.wave, state))
    return asked


def _takeover(epoch: int, token: int) -> dict[str, Any]:
    return {"kind": "takeover", "epoch": epoch, "token": token}


def _spec_order(wave: Wave, state: State) -> dict[str, Any]:
    order = wave.sinks[SINK]
    copies = state["run"][RUNNER]["sinks"][SINK]["copies"]
    accepted = state["wishes"]["accepted"]
    tables = {}
    for table, one in order.tables.items():
        shape = copies[table]["durable"]["shape"]
        left = Version(one.edition, one.at if _is_told(one) else wave.upto_max, None, one.resumed)  # type: ignore[arg-type]
        left = replace(left, hold=None if one.hold is None else one.hold.code)
        tables[table] = {
            "expected": spec_version(one.expected, shape=shape),
            "leaves": spec_version(left, shape=table in accepted if one.kind == "replace" else shape),
        }
    return {
        "kind": SPEC_KINDS[wave.kind],
        "epoch": order.epoch,
        "token": order.token,
        "after": wave.upto_max.place if wave.after is None else wave.after.place,
        "upto": wave.upto_max.place,
        "tables": tables,
    }


def _is_told(one: CopyOrder) -> bool:
    return one.kind in ("persist", "hold")
