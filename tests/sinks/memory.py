"""A sink in memory that keeps the contract, and faults that break it: what the laws are tried on.

It knows nothing of lakes. Each fault is one line that a sink of somebody's might have.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from truecut.errors import Fault, Retry
from truecut.model.change import (
    DELETE,
    INSERT,
    OP,
    OP_NAMES,
    PLACE,
    SEQ,
    TRANSACTION,
    TRUNCATE,
    UNCHANGED,
    UPDATE,
)
from truecut.model.cursor import CopyState, Cursor, Hold
from truecut.model.order import Counts, Order, Receipt, Rejected, TableOrder
from truecut.model.position import Position
from truecut.sinks.contract import Capabilities, Packet, Sink
from truecut.sinks.parts import KeySpan, Landing, Part, StagedPlace, StagedTable

Row = dict[str, Any]
ELSEWHERE = Fault("TC4012", "it stands elsewhere", "None needed.", Retry.RETRYABLE)
UNFIT = Fault("TC3023", "its keys are not as the repair says", "Verify again.")
NULL_KEY, REPEATED_KEY = Hold("TC3021", "a key has no value"), Hold("TC3020", "a key occurs twice")
CONTRADICTION = Hold("TC3023", "its keys are not as the changes say")
UNTOLD = Hold("TC3038", "nobody knows some of its values")
NEVER = "no sink of this kind takes this"
LENIENT = ("contradictions pass", "first wins")  # faults that must not be told by a contradiction
MISSING = object()  # in place of a value that nobody has told yet
Values = dict[str, Any]


class _Unrepaired(Exception):
    """The rows are not as a repair says: nothing of it has an effect."""


@dataclass
class Store:
    """What is durable."""

    cursor: Cursor | None = None
    mirrors: dict[str, dict[int, Values]] = field(default_factory=dict)
    logs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    places: dict[str, pa.Table] = field(default_factory=dict)  # what tasks have staged
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class MemoryStaged:
    """Rows by table, and the tables that have to stop."""

    rows: dict[str, list[Row]]
    stops: dict[str, Hold]
    rejected: tuple[Rejected, ...] = ()

    def close(self) -> None:
        """Nothing is kept elsewhere."""


@dataclass(frozen=True)
class MemorySink(Sink[MemoryStaged]):
    """One handle of a store."""

    capabilities: ClassVar[Capabilities] = Capabilities(stages_apart=True)
    store: Store
    fault: str = ""  # what is wrong with it

    def recover(self, *, epoch: int, token: int) -> Receipt:
        with self.store.lock:
            new = Position(1, 0) if self.fault == "a new sink has a place" else None
            cursor = self.store.cursor or Cursor(new, token)
            if cursor.token > token and self.fault != "takeover by anybody":
                return _fenced(epoch, cursor.token)
            self.store.cursor = replace(cursor, token=token)
            return Receipt("acme", epoch, "applied", cursor=self.store.cursor)

    def stage(self, order: Order, packets: Iterator[Packet]) -> MemoryStaged:
        rows: dict[str, list[Row]] = {}
        stops: dict[str, Hold] = {}
        rejected: list[Rejected] = []
        for packet in packets:
            if packet.fault is not None:
                stops[packet.table] = Hold(packet.fault.code, packet.fault.message)
            elif packet.rows is not None:
                found = packet.rows.to_pylist()
                taken = [row for row in found if NEVER not in row.values()]
                rows.setdefault(packet.table, []).extend(taken)
                refused = [row for row in found if row not in taken and self.fault != "rejected in silence"]
                rejected += [_rejected(order, packet.table, row) for row in refused]
        staged = MemoryStaged(rows, stops, tuple(rejected))
        if self.fault == "staging writes":
            self.commit(order, staged)
        return staged

    def landing(self, order: Order) -> Landing | None:
        return Landing()

    def stage_part(self, order: Order, landing: Landing, packets: Iterator[Packet], *, piece: int) -> Part:
        tables: dict[str, StagedTable] = {}
        for packet in packets:
            assert packet.rows is not None
            name, count = uuid.uuid4().hex, packet.rows.num_rows
            self.store.places[name] = packet.rows
            tables[packet.table] = StagedTable((StagedPlace(name, count, 0, KeySpan(clean=True)),))
        if self.fault == "staging writes":
            self.commit(order, self.gather(order, [Part(piece, tables)], {}))
        return Part(piece, tables)

    def gather(self, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault]) -> MemoryStaged:
        rows: dict[str, list[Row]] = {}
        for part in parts:
            for table, one in part.tables.items():
                found = [row for place in one.places for row in self.store.places[place.name].to_pylist()]
                rows.setdefault(table, []).extend(found)
        if self.fault == "last piece lost" and parts:
            rows = {name: found[:-1] for name, found in rows.items()}
        if self.fault == "what was left counts":
            rows = {name: [r for t in self.store.places.values() for r in t.to_pylist()] for name in rows}
        return MemoryStaged(rows, {name: Hold(one.code, one.message) for name, one in stops.items()})

    def apply_parts(
        self, order: Order, parts: Sequence[Part], stops: Mapping[str, Fault], **beside: Any
    ) -> Receipt:
        if self.fault == "a piece that failed is passed over":
            parts = [part for part in parts if part.fault is None]
            beside["pieces"] = len(parts)
        return super().apply_parts(order, parts, stops, **beside)

    def commit(self, order: Order, staged: MemoryStaged) -> Receipt:
        with self.store.lock:
            return self._commit(order, staged)

    def _commit(self, order: Order, staged: MemoryStaged) -> Receipt:
        cursor = self.store.cursor
        assert cursor is not None
        if cursor.token != order.token and self.fault != "no fence":
            return _fenced(order.epoch, cursor.token)
        versions = {name: copy.version for name, copy in cursor.copies.items()}
        differs = any(versions.get(name) != one.expected for name, one in order.tables.items())
        if differs and self.fault != "any place will do":
            done = all(one.is_done(versions.get(name)) for name, one in order.tables.items())
            outcome: Any = "already" if done else "failed"
            return Receipt("acme", order.epoch, outcome, cursor, fault=None if done else ELSEWHERE)
        copies, counts = dict(cursor.copies), dict[str, Counts]()
        try:
            for name, one in order.tables.items():
                copies[name], counts[name] = self._table(order, name, one, copies.get(name), staged)
        except _Unrepaired:
            return Receipt("acme", order.epoch, "failed", cursor, fault=UNFIT)
        kept = "" if self.fault == "digest dropped" else cursor.certificate
        if self.fault == "all tables move":
            copies = {name: replace(copy, at=order.upto) for name, copy in copies.items()}
        standing = ("replace",) if self.fault == "a repair moves the sink" else ("replace", "repair")
        self.store.cursor = Cursor(
            _position(cursor, order, standing), cursor.token, copies, order.certificate or kept
        )
        return Receipt("acme", order.epoch, "applied", self.store.cursor, counts)

    def _table(
        self, order: Order, name: str, one: TableOrder, copy: CopyState | None, staged: MemoryStaged
    ) -> tuple[CopyState, Counts]:
        copy = copy or CopyState(one.mode, "", (), source_identity=order.source_identity)
        if one.kind in ("hold", "persist"):
            return _at(replace(copy, hold=one.hold), one, one.leaves), Counts()
        stop, counts = staged.stops.get(name), Counts()
        if stop is None:
            stop, counts = self._write(name, one, staged.rows.get(name, []))
        if stop is not None and one.kind == "repair" and self.fault != "repairs hold":
            raise _Unrepaired
        if stop is not None and self.fault != "holds move on":
            stays = replace(one, source_position=copy.source_position)
            return _at(replace(copy, hold=stop), stays, one.stopped(stop.code)), Counts()
        assert one.schema is not None
        evidence = "" if self.fault == "chain dropped" else _chained(copy, one, counts)
        copy = replace(copy, hold=stop, columns=one.schema.columns, source_identity=order.source_identity)
        shape = "" if self.fault == "settings forgotten" else one.fingerprint
        copy = replace(copy, mode=one.mode, fingerprint=shape, evidence=evidence)
        return _at(copy, one, one.leaves), counts

    def _write(self, name: str, one: TableOrder, rows: Sequence[Row]) -> tuple[Hold | None, Counts]:
        ordered = sorted(rows, key=lambda row: (row[PLACE], row[SEQ]), reverse=self.fault == "first wins")
        if one.mode == "append":
            if self.fault == "append keeps the latest":
                ordered = list({row["id"]: row for row in ordered}.values())
            generation = one.leaves.at.generation
            self.store.logs.setdefault(name, []).extend(_logged(row, generation) for row in ordered)
            return None, Counts(puts=len(ordered))
        assert one.schema is not None
        before = dict(self.store.mirrors.get(name, {}))
        if one.kind == "replace" and self.fault != "a seed adds":
            before = {}
            ids = [row["id"] for row in rows]
            if None in ids:
                return NULL_KEY, Counts()
            if len(set(ids)) < len(ids) and self.fault != "the last key wins":
                return REPEATED_KEY, Counts()
        after = self._after(one, before, _later(ordered, self.fault))
        if after is None:
            return CONTRADICTION, Counts()
        if any(value is MISSING for values in after.values() for value in values.values()):
            return UNTOLD, Counts()
        if self.fault == "truncate last" and any(row[OP] == TRUNCATE for row in rows):
            after = {}
        self.store.mirrors[name] = after
        changed = [key for key, value in after.items() if key not in before or before[key] != value]
        return None, Counts(puts=len(changed), deletes=len(before.keys() - after.keys()))

    def _after(
        self, one: TableOrder, before: dict[int, Values], rows: Sequence[Row]
    ) -> dict[int, Values] | None:
        """The mirror's rows; None where the changes contradict each other."""
        assert one.schema is not None
        after, gone = dict(before), dict[tuple[int, int], Values]()
        for row in rows:
            if row[OP] == TRUNCATE:
                after = {}
                continue
            known = row["id"] in after
            if not known and row[OP] == UPDATE and self.fault == "what is not there is passed over":
                continue
            if (
                one.kind in ("changes", "repair")
                and known == (row[OP] == INSERT)
                and self.fault not in LENIENT
            ):
                return None
            old = after.pop(row["id"], None)
            if row[OP] == DELETE:
                gone[row[PLACE], row[SEQ]] = old or {}
                if self.fault == "a delete is compared" and any(
                    row[name] != value for name, value in (old or {}).items()
                ):
                    return None
                continue
            if row[OP] == INSERT:  # a row that moved was deleted right before
                old = gone.get((row[PLACE], row[SEQ] - 1))
                if self.fault == "merged across a delete":
                    old = next((values for values in gone.values() if values["id"] == row["id"]), old)
            absent = row.get(UNCHANGED) or () if self.fault != "absent is NULL" else ()
            told = {name: row[name] for name in one.schema.names if name not in absent}
            after[row["id"]] = {**dict.fromkeys(one.schema.names, MISSING), **(old or {}), **told}
        return after


@dataclass(frozen=True)
class MemoryBench:
    """A store of its own; looked at as it is."""

    name: str = "memory"
    never: str | None = NEVER
    store: Store = field(default_factory=Store)
    fault: str = ""

    def sink(self) -> MemorySink:
        return MemorySink(self.store, self.fault)

    def rows(self, table: str) -> Sequence[tuple[Any, ...]]:
        found = self.store.mirrors[f"main.{table}"]
        return [tuple(found[key].values()) for key in sorted(found)]

    def log(self, table: str) -> Sequence[tuple[Any, ...]]:
        return [row[:5] for row in self._logged(table)]

    def marks(self, table: str) -> Sequence[tuple[str, list[str] | None]]:
        return [row[5:] for row in self._logged(table)]

    def _logged(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.store.logs[f"main.{table}"], key=lambda row: row[:2])


def _later(rows: Sequence[Row], fault: str) -> Sequence[Row]:
    """From the last truncate on; what was before it is void."""
    truncates = [number for number, row in enumerate(rows) if row[OP] == TRUNCATE]
    if fault in ("truncate ignored", "truncate last"):
        return [row for row in rows if row[OP] != TRUNCATE]
    return rows[truncates[-1] :] if truncates else rows


def _logged(row: Row, generation: int) -> tuple[Any, ...]:
    place = str(Position(generation, row[PLACE]))
    said = row.get(TRANSACTION) or place, row.get(UNCHANGED) or None
    return place, f"{row[SEQ]:016X}", OP_NAMES[row[OP]], row["id"], row["value"], *said


def _rejected(order: Order, table: str, row: Row) -> Rejected:
    return Rejected(table, Position(order.upto.generation, row[PLACE]), row[SEQ], "X4001")


def _fenced(epoch: int, newer: int) -> Receipt:
    fault = Fault("TC4010", "owned by another token", "None needed.", Retry.FATAL)
    return Receipt("acme", epoch, "failed", fault=fault, fenced_by=newer)


def _chained(copy: CopyState, one: TableOrder, counts: Counts) -> str:
    anew = one.kind == "replace" and (one.mode == "mirror" or copy.edition == 0)
    before = bytes(32) if anew else bytes.fromhex(copy.evidence)
    if one.evidence:
        return hashlib.sha256(before + one.evidence.encode()).hexdigest() if before else ""
    if one.kind == "repair":
        return copy.evidence
    return "" if one.kind == "replace" or counts.puts or counts.deletes else copy.evidence


def _at(copy: CopyState, one: TableOrder, version: Any) -> CopyState:
    told = replace(copy, at=version.at, source_position=one.source_position)
    return replace(told, edition=version.edition, resumed=version.resumed)


def _position(before: Cursor, order: Order, standing: Collection[str]) -> Position | None:
    alone = not any(copy.edition for name, copy in before.copies.items() if name not in order.tables)
    places = [one.leaves.at for one in order.tables.values() if alone or one.kind not in standing]
    return max([place for place in (before.position, *places) if place is not None], default=None)
