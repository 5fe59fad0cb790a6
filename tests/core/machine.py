"""A delivery machine in few words: sinks that stand somewhere, waves that commit or pass them by."""

from __future__ import annotations

from collections.abc import Mapping

from truecut.core import delivery
from truecut.core.delivery import (
    CopySettings,
    Delivery,
    Effect,
    Recover,
    RunWave,
    SinkOrder,
    SinkState,
    Wave,
)
from truecut.core.state import Lane
from truecut.errors import Fault, Retry
from truecut.model.cursor import CopyState, Cursor, Hold, Version
from truecut.model.order import Receipt
from truecut.model.position import Position
from truecut.model.table import Column, Mode

T = "main.t"
U = "main.u"
COLUMNS = (Column(1, "id", "BIGINT"),)
NEVER = 1 << 40
FAULT = Fault("TC4099", "it failed", "None needed.", Retry.RETRYABLE)


def at(place: int, generation: int = 1) -> Position:
    return Position(generation, place)


def copy(
    place: int,
    *,
    edition: int = 1,
    hold: Hold | None = None,
    resumed: int = 0,
    mode: Mode = "mirror",
    source: str = "one",
) -> CopyState:
    """A copy as a sink remembers it."""
    return CopyState(
        mode, T, COLUMNS, hold=hold, at=at(place), edition=edition, resumed=resumed, source_identity=source
    )


def cursor(place: int | None, **copies: CopyState) -> Cursor:
    """A sink's cursor: table T at this place, or these tables."""
    found = {f"main.{name}": copy for name, copy in copies.items()}
    if place is not None and not found:
        found = {T: copy(place)}
    return Cursor(None if place is None else at(place), 1, found)


def owned(places: Mapping[str, int | None], *, head: int, oldest: int = 0, mode: Mode = "mirror") -> Delivery:
    """A runner that owns sinks which stand at these places, with one table."""
    cursors = {n: cursor(None) if p is None else cursor(p, t=copy(p, mode=mode)) for n, p in places.items()}
    return recovered(cursors, {T: CopySettings(mode)}, head=head, oldest=oldest)


def recovered(
    cursors: Mapping[str, Cursor],
    settings: Mapping[str, CopySettings],
    *,
    head: int,
    oldest: int = 0,
    token: int = 1,
) -> Delivery:
    """A runner that has taken over sinks which told these cursors."""
    sinks = {name: SinkState(settings) for name in cursors}
    state = delivery.observe(Delivery(sinks), identity="one", oldest=at(oldest), head=at(head))
    state = delivery.acquire(state, dict.fromkeys(cursors, token))
    return told(state, cursors)


def told(state: Delivery, cursors: Mapping[str, Cursor], *, lane: Lane = "punctual") -> Delivery:
    """Recovery of whoever is due, as the sinks answer it."""
    state, effects = delivery.start_recovery(state, now_ms=NEVER, lane=lane)
    assert effects
    while effects:
        (effect,) = effects
        assert isinstance(effect, Recover)
        receipts = [Receipt(n, epoch, "applied", cursor=cursors[n]) for n, (epoch, _) in effect.sinks.items()]
        state, _ = delivery.recovered(state, receipts, now_ms=0)
        state, effects = delivery.start_recovery(state, now_ms=NEVER, lane=lane)
    return state


def two_tables(t: CopyState | None, u: CopyState | None, *, head: int, oldest: int = 0) -> Delivery:
    """One sink `a` with tables T and U, mirrors unless the copies say otherwise."""
    copies = {name: known for name, known in (("t", t), ("u", u)) if known is not None}
    places = [known.at.place for known in copies.values()]
    modes = {T: t.mode if t else "mirror", U: u.mode if u else "mirror"}
    settings = {table: CopySettings(mode) for table, mode in modes.items()}
    return recovered({"a": cursor(max(places, default=None), **copies)}, settings, head=head, oldest=oldest)


def wave_of(effects: list[Effect]) -> Wave:
    (effect,) = effects
    assert isinstance(effect, RunWave)
    return effect.wave


def commit(state: Delivery, wave: Wave, *, upto: int | None = None) -> Delivery:
    """All sinks of the wave have committed it."""
    end = wave.upto_max if upto is None else at(upto)
    receipts = [
        Receipt(name, order.epoch, "applied", cursor=committed(state, name, order, end))
        for name, order in wave.sinks.items()
    ]
    return delivery.wave_done(state, wave.id, upto=end, receipts=receipts, now_ms=0)[0]


def committed(state: Delivery, name: str, order: SinkOrder, end: Position) -> Cursor:
    """What the sink tells: the copies of the order where it leaves them, the others as they were."""
    sink = state.sinks[name]
    before = {
        table: left(sink.settings[table], known.durable)
        for table, known in sink.copies.items()
        if known.durable is not None
    }
    after = {}
    for table, one in order.tables.items():
        place = one.at if one.kind in ("persist", "hold") and one.at is not None else end
        hold = None if one.hold is None else one.hold.code
        after[table] = left(sink.settings[table], Version(one.edition, place, hold, one.resumed))
    place = max([end, *([] if sink.cursor is None else [sink.cursor])])
    return Cursor(place, sink.token, {**before, **after})


def left(wanted: CopySettings, version: Version) -> CopyState:
    return CopyState(
        wanted.mode,
        T,
        COLUMNS,
        fingerprint=wanted.fingerprint,
        at=version.at,
        edition=version.edition,
        hold=None if version.hold is None else Hold(version.hold, "it stopped"),
        resumed=version.resumed,
        source_identity="one",
    )


def passed_by(state: Delivery, wave: Wave, *, upto: int | None = None) -> Delivery:
    """Nothing in the window was for any of its sinks."""
    end = wave.upto_max if upto is None else at(upto)
    return delivery.wave_done(state, wave.id, upto=end, receipts=[], now_ms=0)[0]
