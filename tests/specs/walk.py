"""The walk: from every state of TLC's graph of a small model, by every action, the pure machine.

Both ways: whatever the machine does is a step of the spec, with the order that the spec sends; whatever step
the spec allows is one that the machine can take. And what is still on its way from before a reset changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from tests.specs import mirror
from tests.specs.mirror import RUNNER, SINK, State
from tests.specs.tlavalue import Graph, Record, plain
from truecut.core import delivery
from truecut.core.delivery import Delivery, Effect, SinkOrder, Wave
from truecut.model.order import Receipt
from truecut.model.table import Mode

NEVER = 1 << 40  # backoff is policy: it is over by now
ENVIRONMENT = {"SrcCommit", "Expire", "LeaseOut", "SinkTakeover", "SinkCommit", "Crash", "Accept"}
REPLACING = {"ObserveLate", "StoreLost", "Heard"}  # only where the source is replaced
LATE = {"src": 1, "oldest": 0, "head": mirror.REPLACED_AT - 1}
MISNUMBERED = {**LATE, "src": 2}
REQUESTS = {"AskResume", "AskAgain", "Answer"}  # of users, in files: runtime/requests.py
STARTS = ("StartRecovery", "StartWave", "StartSeed", "PersistIdle", "ResumeTable", "CopyAgain")

STALE = "an answer of epoch"  # in place of an action: one that comes late
Step = tuple[Delivery, list[Effect]]


@dataclass(frozen=True, slots=True)
class Walked:
    """How often each action was seen, and where the code went elsewhere."""

    seen: Counter[str]
    wrong: list[str]


def walk(
    graph: Graph, *, mode: Mode = "mirror", resting: bool = False, wrong_max: int = 3, only: str | None = None
) -> Walked:
    """Every state, every action, or `only` this one. `resting`: tables of this model may rest, so that others
    go without them."""
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for source, by_action in _steps(graph).items():
        before = graph.states[source]
        for action, targets in by_action.items():
            seen[action] += len(targets)
        allowed: dict[str, list[State]] = {
            action: [graph.states[target] for target in ts] for action, ts in by_action.items()
        }
        for problem in _problems(before, mode, allowed, only, resting=resting):
            wrong.append(problem)
            if len(wrong) >= wrong_max:
                return Walked(seen, wrong)
    return Walked(seen, wrong)


def _steps(graph: Graph) -> dict[str, dict[str, list[str]]]:
    steps: dict[str, dict[str, list[str]]] = {name: {} for name in graph.states}
    for source, action, target in graph.edges:
        steps[source].setdefault(action, []).append(target)
    return steps


def _problems(
    before: State, mode: Mode, allowed: dict[str, list[State]], only: str | None, *, resting: bool
) -> Iterator[str]:
    elsewhere = ENVIRONMENT | REQUESTS | {"StoreLost", "Heard"}  # the last: runtime/generations.py
    tried = {*allowed, *STARTS} - elsewhere
    for action in sorted(tried if only is None else tried & {only}):
        try:
            yield from _action(before, mode, action, allowed.get(action, []), resting=resting)
        except (AssertionError, KeyError, IndexError) as error:
            yield f"{action}: {type(error).__name__} {error}"
    if only in (None, STALE):
        yield from _stale(before, mode)


def _action(before: State, mode: Mode, action: str, targets: list[State], *, resting: bool) -> Iterator[str]:
    """What the machine does is allowed; what is allowed, the machine can do."""
    machine = mirror.concrete(before, mode)
    steps = _machine_steps(machine, before, action, targets, resting=resting)
    went = [step for step in steps if step != (machine, [])]
    told = [(mirror.abstract(after, before), mirror.orders_of(effects, before)) for after, effects in went]
    wanted = [(after["run"][RUNNER], _sent(before, after)) for after in targets]
    if action in ("PauseTable", "UnpauseTable"):
        if any(mirror.concrete(after, mode) not in [step[0] for step in went] for after in targets):
            yield f"{action}: not obeyed"
        return
    for run, orders in told:
        if not any(run == wished and _same(orders, sent) for wished, sent in wanted):
            yield f"{action} is not the spec's: {before['run']} -> {run} with {orders}"
    for wished, sent in wanted:
        if not any(_ends_early(run, orders, wished, sent) for run, orders in told):
            yield f"{action} is not taken: {before['run']} -> {wished} with {sent}"


def _sent(before: State, after: State) -> list[dict[str, Any]]:
    """The orders that the step sends."""
    fields = ("kind", "epoch", "token", "after", "upto", "tables")
    new = [plain(order) for order in after["net"] - before["net"] if not order.answered]
    return [{name: order[name] for name in fields if name in order} for order in new]


def _same(orders: list[dict[str, Any]], sent: list[dict[str, Any]]) -> bool:
    """The machine asks for the order; the spec does not send it where nothing could be read or was there."""
    return orders == sent or (not sent and all(order["kind"] in ("changes", "replace") for order in orders))


def _ends_early(run: State, orders: list[dict[str, Any]], wished: State, sent: list[dict[str, Any]]) -> bool:
    """A window may end before what was asked for: the spec's end must lie within the code's bound."""
    end = wished["sinks"][SINK]["waves"]["changes"]["upto"]
    wave = run["sinks"][SINK]["waves"]["changes"]
    if orders and orders[0]["kind"] == "changes" and wave["after"] < end <= wave["upto"]:
        run = {**run, "sinks": {SINK: _with_end(run["sinks"][SINK], end)}}
        orders = [{**orders[0], "upto": end, "tables": _ending(orders[0]["tables"], end)}]
    return run == wished and _same(orders, sent)


def _with_end(known: dict[str, Any], end: int) -> dict[str, Any]:
    waves = known["waves"]
    return {**known, "waves": {**waves, "changes": {**waves["changes"], "upto": end}}}


def _ending(tables: dict[str, Any], end: int) -> dict[str, Any]:
    return {t: {**one, "leaves": {**one["leaves"], "at": end}} for t, one in tables.items()}


# --- what the machine does ----------------------------------------------------------------------------


def _machine_steps(
    machine: Delivery, before: State, action: str, targets: list[State], *, resting: bool
) -> list[Step]:
    """All that the code can do by this action from this state: one step for each choice, turn or answer."""
    if action == "Acquire":
        tokens = {after["lease"][SINK]["token"] for after in targets}
        return [(delivery.acquire(machine, {SINK: token}), []) for token in tokens]
    if action in ("PauseTable", "UnpauseTable"):
        paused = [frozenset(after["wishes"]["paused"]) for after in targets]
        return [(delivery.pause_tables(machine, tables=tables), []) for tables in paused]
    if action == "WaveAbort":
        return _aborted(machine, targets)
    if action in ("StartWave", "StartSeed"):
        start = _started if action == "StartWave" else _seeded
        return start(machine, _subsets(machine.sinks[SINK].copies) if resting else [()])
    return STEPS[action](machine, before)


def _mine(before: State) -> list[Record]:
    epoch = before["run"][RUNNER]["sinks"][SINK]["epoch"]
    return [o for o in before["net"] if o.run == RUNNER and o.answered and o.epoch == epoch]


def _observe(machine: Delivery, before: State) -> list[Step]:
    known = any(copy["v"]["at"] >= 0 for copy in before["sink"][SINK]["copies"].values())
    source = mirror.generation(before["head"])
    if source == 2 and not before["numbered"] and known:
        return [_looked(machine, MISNUMBERED)]
    return [_looked(machine, {"src": source, "oldest": before["oldest"], "head": before["head"]})]


def _looked(machine: Delivery, look: State) -> Step:
    oldest, head = mirror.at(look["oldest"]), mirror.at(look["head"])
    identity = mirror.SOURCES[look["src"]]
    return delivery.observe(machine, identity=identity, oldest=oldest, head=head), []


def _recovered(machine: Delivery, before: State) -> list[Step]:
    return [_told(machine, o) for o in _mine(before) if o.kind == "takeover"]


def _told(machine: Delivery, o: Record) -> Step:
    cursor = mirror.cursor(plain(o.told), o.token)
    return delivery.recovered(machine, [Receipt(SINK, o.epoch, "applied", cursor=cursor)], now_ms=0)


def _committed(machine: Delivery, before: State) -> list[Step]:
    return [_answered(machine, before, o, _number(o)) for o in _mine(before) if o.kind != "takeover"]


def _number(o: Record) -> int:
    return mirror.WAVES["seed" if o.kind == "replace" else "changes"]


def _answered(machine: Delivery, before: State, o: Record, number: int) -> Step:
    receipts = [mirror.answer(before, o)]
    return delivery.wave_done(machine, number, upto=mirror.at(o.upto), receipts=receipts, now_ms=0)


def _ends(outcome: str) -> Callable[[Delivery, State], list[Step]]:
    def end(machine: Delivery, _: State) -> list[Step]:
        receipt = Receipt(SINK, machine.sinks[SINK].epoch, outcome, fault=mirror.FAULT)  # type: ignore[arg-type]
        return [
            delivery.wave_done(machine, number, upto=wave.upto_max, receipts=[receipt], now_ms=0)
            for number, wave in machine.waves.items()
        ]

    return end


def _failed(machine: Delivery, before: State) -> list[Step]:
    broken = [delivery.wave_failed(machine, number, mirror.FAULT, now_ms=0) for number in machine.waves]
    return _ends("late")(machine, before) + broken


def _aborted(machine: Delivery, targets: list[State]) -> list[Step]:
    """Where the window of a wave could not be read, which is for the spec to say: whichever tables were the
    reason."""
    ended = {number for number in machine.waves for after in targets if _is_over(after, number)}
    return [
        _unread(machine, number, tables)
        for number in ended
        for tables in _subsets(machine.waves[number].tables)
    ]


def _is_over(after: State, number: int) -> bool:
    waves = after["run"][RUNNER]["sinks"][SINK]["waves"]
    return bool(waves[next(slot for slot, n in mirror.WAVES.items() if n == number)] == mirror.NO_WAVE)


def _unread(machine: Delivery, number: int, tables: Iterable[str]) -> Step:
    unread = dict.fromkeys(tables, mirror.FAULT)
    receipt = Receipt(SINK, machine.sinks[SINK].epoch, "aborted", unread=unread)
    upto = machine.waves[number].upto_max
    return delivery.wave_done(machine, number, upto=upto, receipts=[receipt], now_ms=0)


def _subsets(tables: Iterable[str]) -> list[tuple[str, ...]]:
    every = sorted(tables)
    return [some for n in range(len(every) + 1) for some in combinations(every, n)]


def _advanced(machine: Delivery, _: State) -> list[Step]:
    return [delivery.wave_done(machine, 1, upto=machine.waves[1].upto_max, receipts=[], now_ms=0)]


def _recovery_fails(machine: Delivery, _: State) -> list[Step]:
    sink = machine.sinks[SINK]
    effect = delivery.Recover({SINK: (sink.epoch, sink.token)})
    return [delivery.recovery_failed(machine, effect, mirror.FAULT, now_ms=0)]


def _started(machine: Delivery, resting: list[tuple[str, ...]]) -> list[Step]:
    """By turns, whoever rests."""
    steps = [
        delivery.start_wave(_at_rest(replace(machine, turn=turn), tables), now_ms=NEVER)
        for turn in (0, 1)
        for tables in resting
    ]
    return [(_rested(replace(after, turn=0)), effects) for after, effects in steps]


def _seeded(machine: Delivery, resting: list[tuple[str, ...]]) -> list[Step]:
    steps = [delivery.start_seed(_at_rest(machine, tables), now_ms=NEVER) for tables in resting]
    return [(_rested(after), effects) for after, effects in steps]


def _at_rest(machine: Delivery, tables: Iterable[str]) -> Delivery:
    sink = machine.sinks[SINK]
    copies = {t: replace(c, retry_at_ms=NEVER + 1) for t, c in sink.copies.items() if t in tables}
    return machine.with_sinks({SINK: sink.with_copies(copies)})


def _rested(machine: Delivery) -> Delivery:
    sink = machine.sinks[SINK]
    return machine.with_sinks(
        {SINK: sink.with_copies({t: replace(c, retry_at_ms=0) for t, c in sink.copies.items()})}
    )


def _lost(machine: Delivery, _: State) -> list[Step]:
    return [
        (delivery.lost_history(machine, [SINK], {table: mirror.FAULT}, at=copy.at, now_ms=0), [])
        for table, copy in machine.sinks[SINK].copies.items()
    ]


def _resumed(machine: Delivery, before: State) -> list[Step]:
    wishes = before["wishes"]
    return [
        (delivery.resume_table(machine, table, asked=number, sinks=[SINK]), [])
        for table, number in wishes["asked"][SINK].items()
        if number and not wishes["again"][SINK][table]
    ]


def _copied_again(machine: Delivery, before: State) -> list[Step]:
    wishes = before["wishes"]
    return [
        (delivery.copy_again(machine, table, asked=wishes["asked"][SINK][table], sinks=[SINK]), [])
        for table, edition in wishes["again"][SINK].items()
        if edition
    ]


STEPS: dict[str, Callable[[Delivery, State], list[Step]]] = {
    "Observe": _observe,
    "ObserveLate": lambda machine, _: [_looked(machine, LATE)],
    "Lose": lambda machine, _: [(delivery.lose(machine, [SINK]), [])],
    "StartRecovery": lambda machine, _: [delivery.start_recovery(machine, now_ms=NEVER)],
    "Recovered": _recovered,
    "RecoveryFail": _recovery_fails,
    "PersistIdle": lambda machine, _: [delivery.persist_idle(machine, [SINK])],
    "WaveCommit": _committed,
    "WaveFail": _failed,
    "Advance": _advanced,
    "LostHistory": _lost,
    "ResumeTable": _resumed,
    "CopyAgain": _copied_again,
}
_STARTED = {"Acquire", "PauseTable", "UnpauseTable", "StartWave", "StartSeed", "WaveAbort"}
RUNNER_ACTIONS = {*_STARTED, *STEPS} - REPLACING


def _stale(before: State, mode: Mode) -> Iterator[str]:
    """D4: whatever is still in the network from before a reset leaves the machine as it is."""
    machine = mirror.concrete(before, mode)
    epoch = machine.sinks[SINK].epoch
    for o in before["net"]:
        if o.run == RUNNER and o.epoch < epoch:
            after = _told(machine, o)[0] if o.kind == "takeover" else _late(machine, before, o)
            if after.sinks != machine.sinks:
                yield f"{STALE} {o.epoch} was heard: {before['run']}"


def _late(machine: Delivery, before: State, o: Record) -> Delivery:
    """The answer comes under its old number, and under that of a wave that is out now."""
    order = SinkOrder(o.epoch, o.token, dict.fromkeys(dict(o.tables)))  # type: ignore[arg-type]
    old = Wave(99, "changes", {SINK: order}, (), None, mirror.at(o.upto))
    return _answered(replace(machine, waves={**machine.waves, 99: old}), before, o, 99)[0]
