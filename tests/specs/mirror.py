"""Between the spec's runner and the code's machine: one sink, one mirrored table.

`concrete` makes the machine's value from the spec's state, `abstract` goes back. Position n of the spec
is place n of generation 1; Unseeded (-1) is None. A wave of the spec is wave 1 of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from truecut.core import delivery
from truecut.core.copies import GAP_CODE
from truecut.core.delivery import Copy, CopySettings, Delivery, SinkOrder, SinkState, Wave
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Column

SINK = "a"
TABLE = "main.t"
SOURCE = "the source"
FAULT = Fault("TC4099", "no answer", "None needed.", Retry.RETRYABLE)
KINDS = {"changes": "changes", "replace": "seed", "persist": "persist"}
SPEC_KINDS = {code: spec for spec, code in KINDS.items()}

Known = dict[str, Any]  # the spec's record of one sink at one runner


def place(number: int) -> Position | None:
    """A position of the spec, in the code."""
    return None if number < 0 else Position(1, number)


def number(position: Position | None) -> int:
    """A position of the code, in the spec."""
    return -1 if position is None else position.place


def concrete(runner: dict[str, Any], *, mode: str = "mirror") -> Delivery:
    """The machine's value for a runner of the spec."""
    known = runner["sinks"][SINK]
    settings = {TABLE: CopySettings("append" if mode == "append" else "mirror")}
    sink = SinkState(
        settings,
        phase=known["phase"],
        token=known["token"],
        epoch=known["epoch"],
        cursor=place(known["cursor"]),
        position=place(known["position"]),
        copies=_copies(known),
        wave=1 if known["phase"] == "applying" else None,
    )
    state = Delivery({SINK: sink}, SOURCE, place(runner["oldest"]), place(runner["head"]), next_wave=2)
    return replace(state, waves={1: _wave(sink, known)}) if known["phase"] == "applying" else state


def _copies(known: Known) -> dict[str, Copy]:
    if known["copy"] == "none":
        return {}
    at = place(known["position"])
    if known["copy"] == "streaming":
        return {TABLE: Copy("streaming", at)}
    if known["copy"] == "unseeded":
        return {TABLE: Copy("unseeded")}
    assert at is not None
    return {TABLE: Copy("held", at, Hold(at, GAP_CODE, "a gap"))}


def _wave(sink: SinkState, known: Known) -> Wave:
    kind = KINDS[known["wave"]["kind"]]
    upto = place(known["wave"]["upto"])
    assert upto is not None
    after = None if kind == "seed" else sink.position
    tables = {} if kind == "persist" else {TABLE: after}
    orders = {SINK: SinkOrder(sink.epoch, sink.token, sink.cursor)}
    return Wave(1, kind, orders, tables, after, upto, identity=SOURCE)  # type: ignore[arg-type]


def abstract(state: Delivery) -> dict[str, Any]:
    """The spec's runner for a machine's value."""
    sink = state.sinks[SINK]
    wave = None if sink.wave is None else state.waves[sink.wave]
    copy = sink.copies.get(TABLE)
    known = {
        "phase": sink.phase,
        "token": sink.token,
        "epoch": sink.epoch,
        "cursor": number(sink.cursor),
        "position": number(sink.position),
        "copy": "none" if copy is None else copy.status,
        "wave": {
            "kind": "none" if wave is None else SPEC_KINDS[wave.kind],
            "upto": -1 if wave is None else wave.upto_max.place,
        },
    }
    return {"oldest": number(state.oldest), "head": number(state.head), "sinks": {SINK: known}}


def cursor_at(at: int, token: int) -> Cursor:
    """What the sink tells when it stands there."""
    copies = {} if at < 0 else {TABLE: CopyState("mirror", "t", (Column(1, "id", "BIGINT"),))}
    return Cursor(place(at), token, SOURCE, copies)


def answered(state: Delivery, *, wave: int, epoch: int, upto: int, token: int) -> Delivery:
    """WaveCommit: an order's answer arrives."""
    receipt = Receipt(SINK, epoch, "applied", cursor=cursor_at(upto, token))
    end = place(upto)
    assert end is not None
    return delivery.wave_done(state, wave, upto=end, receipts=[receipt], now_ms=0)[0]


def _receipt_less(state: Delivery) -> Delivery:
    return delivery.wave_done(state, 1, upto=state.waves[1].upto_max, receipts=[], now_ms=0)[0]


def _with_outcome(state: Delivery, outcome: Any) -> Delivery:
    receipt = Receipt(SINK, state.sinks[SINK].epoch, outcome, fault=FAULT)
    return delivery.wave_done(state, 1, upto=state.waves[1].upto_max, receipts=[receipt], now_ms=0)[0]


def _recovery_fails(state: Delivery) -> Delivery:
    sink = state.sinks[SINK]
    effect = delivery.Recover({SINK: (sink.epoch, sink.token)})
    return delivery.recovery_failed(state, effect, FAULT, now_ms=0)[0]


# Runner actions that need nothing but the runner's own state. Backoff is policy: it is over by now.
STEPS: dict[str, Callable[[Delivery], Delivery]] = {
    "Lose": lambda state: delivery.lose(state, [SINK]),
    "StartRecovery": lambda state: delivery.start_recovery(state, now_ms=1 << 40)[0],
    "RecoveryFail": _recovery_fails,
    "StartWave": lambda state: delivery.start_wave(state)[0],
    "StartSeed": lambda state: delivery.start_seed(state)[0],
    "PersistIdle": lambda state: delivery.persist_idle(state, [SINK])[0],
    "WaveFail": lambda state: _with_outcome(state, "late"),
    "WaveAbort": lambda state: _with_outcome(state, "aborted"),
    "Advance": _receipt_less,
    "LostHistory": lambda state: delivery.lost_history(state, [SINK], [TABLE]),
}
