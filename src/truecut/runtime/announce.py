"""What must not happen in silence: sinks taken over, lost or in trouble, seeds, holds, copies read
again, tables that cannot be read.

Read off the machine's states where that is possible, so that none is missed. One line for each table or
fault, however many sinks; nothing for each wave, but at `debug`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from truecut.config.kinds import SourceWords
from truecut.core.state import Copy, Delivery, SinkState, Wave
from truecut.errors import Fault, Retry
from truecut.events import named, tell, tell_fault
from truecut.model.cursor import Cursor
from truecut.model.order import Receipt
from truecut.runtime.revision import Revision
from truecut.sources.contract import Window

_log = logging.getLogger(__name__)


# --- steps of the machine -----------------------------------------------------------------------------


def step(before: Delivery, after: Delivery, words: SourceWords) -> None:
    """One step of the machine. `words` are those of its source."""
    for number in after.waves.keys() - before.waves.keys():
        _begun(after.waves[number])
    if before.sinks is after.sinks:
        return
    changed = {
        name: (before.sinks[name], sink)
        for name, sink in after.sinks.items()
        if before.sinks.get(name, sink) is not sink
    }
    _taken_over(after, [name for name, (old, new) in changed.items() if _became_ours(old, new)])
    _failed({name: new.fault for name, (old, new) in changed.items() if new.failures > old.failures})
    _works_again([name for name, (old, new) in changed.items() if old.failures and not new.failures])
    lost = _where(changed, lambda was, now: _is_unseeded(was, now) and not _is_asked_for(was, now))
    _read_again(lost, words)
    _as_asked(_where(changed, lambda was, now: _is_unseeded(was, now) and _is_asked_for(was, now)))
    _held(after, _where(changed, lambda was, now: _status(was) != "held" and now.status == "held"))
    _goes_on(_where(changed, lambda was, now: _status(was) == "held" and now.status != "held"))
    _unread(after, _where(changed, lambda was, now: was is not None and not was.fault and bool(now.fault)))


def _status(copy: Copy | None) -> str:
    return "" if copy is None else copy.status


def _is_unseeded(was: Copy | None, now: Copy) -> bool:
    return _status(was) == "streaming" and now.status == "unseeded"


def _is_asked_for(was: Copy | None, now: Copy) -> bool:
    return was is not None and was.resumed != now.resumed


def _where(
    changed: Mapping[str, tuple[SinkState, SinkState]], holds: Callable[[Copy | None, Copy], bool]
) -> dict[str, list[str]]:
    """Table → the sinks whose copy has become so."""
    found: dict[str, list[str]] = {}
    for name, (old, new) in changed.items():
        for table, copy in new.copies.items() if old.copies is not new.copies else ():
            if holds(old.copies.get(table), copy):
                found.setdefault(table, []).append(name)
    return found


def _became_ours(old: SinkState, new: SinkState) -> bool:
    return old.phase == "recovering" and new.phase == "ready"


def _taken_over(state: Delivery, sinks: list[str]) -> None:
    places = {state.sinks[name].cursor for name in sinks}
    for place in sorted(places, key=str):
        here = [name for name in sinks if state.sinks[name].cursor == place]
        where = "new, to be seeded" if place is None else f"at {place}"
        tell(_log, logging.INFO, f"took over {named(here)}: {where}", sinks=here, position=place)


def _failed(faults: Mapping[str, Fault | None]) -> None:
    for code, (fault, sinks) in _by_code(faults).items():
        again = "tried again" if fault.retry is Retry.RETRYABLE else "tried again every minute or two"
        message = f"{fault.message}; {named(sinks)} {'is' if len(sinks) == 1 else 'are'} {again}"
        tell(_log, logging.WARNING, message, code=code, sinks=sinks)


def _by_code(faults: Mapping[str, Fault | None]) -> dict[str, tuple[Fault, list[str]]]:
    found: dict[str, tuple[Fault, list[str]]] = {}
    for name, fault in faults.items():
        if fault is not None:
            found.setdefault(fault.code, (fault, []))[1].append(name)
    return found


def _works_again(sinks: list[str]) -> None:
    if sinks:
        tell(_log, logging.INFO, f"{named(sinks)} work{'s' * (len(sinks) == 1)} again", sinks=sinks)


def _held(state: Delivery, held: Mapping[str, list[str]]) -> None:
    for table, sinks in sorted(held.items()):
        holds = {name: hold for name in sinks if (hold := state.sinks[name].copies[table].hold) is not None}
        for code in sorted({hold.code for hold in holds.values()}):
            here = [name for name, hold in holds.items() if hold.code == code]
            message = f"{table} is held at {named(here)}: {holds[here[0]].message}"
            place = state.sinks[here[0]].copies[table].at
            tell(_log, logging.WARNING, message, code=code, sinks=here, table=table, position=place)


def _goes_on(freed: Mapping[str, list[str]]) -> None:
    for table, sinks in sorted(freed.items()):
        tell(_log, logging.INFO, f"{table} goes on at {named(sinks)}", sinks=sinks, table=table)


def _unread(state: Delivery, unread: Mapping[str, list[str]]) -> None:
    for table, sinks in sorted(unread.items()):
        if (fault := state.sinks[sinks[0]].copies[table].fault) is not None:
            message = f"{table} cannot be read now: {fault.message}. {fault.fix}"
            tell(_log, logging.WARNING, message, code=fault.code, sinks=sinks, table=table)


# --- seeds and waves ----------------------------------------------------------------------------------


def _begun(wave: Wave) -> None:
    level = logging.INFO if wave.kind == "seed" else logging.DEBUG
    for table in wave.tables:
        message = f"{_NOUNS[wave.kind]} of {table} for {named(wave.sinks)} begun"
        tell(_log, level, message, sinks=wave.sinks, table=table, position=wave.upto_max)


def wave_done(wave: Wave, window: Window, receipts: Iterable[Receipt]) -> None:
    """A wave came back: what it wrote, and tables whose columns have changed."""
    answers = list(receipts)
    level = logging.INFO if wave.kind == "seed" else logging.DEBUG
    for table in wave.tables:
        done = [r for r in answers if table in r.counts and r.outcome in ("applied", "already")]
        rows = sum(r.counts[table].puts + r.counts[table].deletes for r in done)
        sinks = [receipt.sink for receipt in done]
        if sinks or wave.kind == "seed":
            whom = f"for {named(sinks)}" if sinks else "for nobody"
            message = f"{_NOUNS[wave.kind]} of {table} ended: {rows:,} rows {whom}"
            tell(_log, level, message, sinks=sinks, table=table, position=window.upto)
    for name in sorted(map(str, window.altered - window.alike)):
        message = f"the columns of {name} have changed at the source"
        tell(_log, logging.INFO, message, sinks=wave.sinks, table=name, position=window.upto)


_NOUNS = {"seed": "seed", "changes": "wave", "persist": "wave"}


# --- leases, source and store -------------------------------------------------------------------------


def lost(sinks: Collection[str], why: str) -> None:
    """These sinks are no longer ours."""
    tell(_log, logging.WARNING, f"no longer ours: {named(sinks)}; {why}", sinks=sinks)


def revised(revision: Revision) -> None:
    """The pipeline file has changed while we run."""
    if revision.added:
        message = f"taken up from the changed file: {named(revision.added)}"
        tell(_log, logging.INFO, message, sinks=revision.added)
    if revision.removed:
        message = f"retired, as the file no longer names them: {named(revision.removed)}; their data stays"
        tell(_log, logging.WARNING, message, sinks=revision.removed)
    if revision.restart:
        tell(_log, logging.WARNING, f"restart to apply: {', '.join(revision.restart)} changed in the file")


def file_unusable(fault: Fault) -> None:
    """The pipeline file has changed into something that cannot be run."""
    tell_fault(_log, fault)


def source_is(before: Fault | None, after: Fault | None) -> None:
    """The source answers, or could not be read: said once, and again when something else is wrong."""
    _changed("the source", before, after)


def store_is(before: Fault | None, after: Fault | None) -> None:
    """The control store answers, or does not."""
    _changed("the control store", before, after)


def _changed(who: str, before: Fault | None, after: Fault | None) -> None:
    if after is None and before is not None:
        tell(_log, logging.WARNING, f"{who} answers again")
    elif after is not None and (before is None or before.code != after.code):
        tell_fault(_log, after)


# --- copies that are read again -----------------------------------------------------------------------


def recovered(state: Delivery, receipts: Iterable[Receipt], words: SourceWords) -> None:
    """Sinks have told their cursors: copies that stand there whole are to be seeded all the same."""
    lost: dict[str, list[str]] = {}
    for receipt in receipts:
        sink = state.sinks[receipt.sink]
        for table, copy in sink.copies.items():
            whole = receipt.cursor is not None and _is_whole(
                receipt.cursor, table, sink.settings[table].fingerprint
            )
            if whole and receipt.epoch == sink.epoch and copy.status == "unseeded":
                lost.setdefault(table, []).append(receipt.sink)
    _read_again(lost, words)


def _is_whole(cursor: Cursor, table: str, fingerprint: str) -> bool:
    """Of another shape, it was to be replaced: then somebody has asked for it."""
    copy = cursor.copies.get(table)
    whole = copy is not None and bool(copy.columns) and copy.hold is None
    return whole and copy is not None and copy.fingerprint == fingerprint


def _read_again(lost: Mapping[str, list[str]], words: SourceWords) -> None:
    for table, sinks in sorted(lost.items()):
        tell_fault(_log, _gap(table, sinks, words), sinks=sinks, table=table)


def _as_asked(again: Mapping[str, list[str]]) -> None:
    for table, sinks in sorted(again.items()):
        message = f"{table} is read again for {named(sinks)}, as was asked"
        tell(_log, logging.INFO, message, sinks=sinks, table=table)


def _gap(table: str, sinks: list[str], words: SourceWords) -> Fault:
    return Fault(
        "TC3042",
        f"{table} is read again as a whole for {named(sinks)}: the source no longer has its history",
        f"None needed. To prevent it, {words.keep}, or say `on_gap: stop`.",
        Retry.RETRYABLE,
    )
