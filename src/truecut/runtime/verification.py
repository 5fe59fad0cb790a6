"""Whether copies equal their source: both are read at one position, as digests, and compared.

Owns the order of things: sinks are pinned first, so that each copy's place is known and its content is of
that very moment; then the source is read at these places; then sums are compared, and keys where they differ.
Where certificates claim the copy there, both sides are compared with what they claim (V4 the source, V5 the
sink), else with each other. A server can be read at one place only: where a run moves the sinks meanwhile,
the claim is extended to that place and to where each copy stands beyond it. Promises: nothing is written;
*unknown* wherever one of the two could not be read, never *pass*.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from truecut.certificate.comparison import Difference, Odd, buckets_apart
from truecut.certificate.digest import Keyed
from truecut.certificate.scope import Scope, scope_of
from truecut.config.kinds import SINKS, SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings
from truecut.errors import TruecutError
from truecut.model.cursor import CopyState
from truecut.model.position import Position
from truecut.model.table import Column, TableName
from truecut.runtime.checked import ODD_MAX, Checked
from truecut.runtime.claims import Claimed, Claims, Place
from truecut.runtime.control_readonly import peek
from truecut.sinks.contract import Pinned
from truecut.sources.contract import Reread, TableRead, Window
from truecut.sources.registry import survey_source
from truecut.spark.comparison import Piece, Side, Sums, differences, key_values, sum_up
from truecut.spark.contents import SinkPiece, SourcePiece
from truecut.spark.session import slots
from truecut.spark.wave.route import TableRoute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITNESSES = 1_000  # keys that are looked up
LOOK_S = 0.5  # between two looks at a sink that a run brings on


@dataclass(frozen=True, slots=True)
class Copy:
    """A table at a sink, pinned where it stands."""

    table: TableSettings
    sink: SinkSettings
    pinned: Pinned
    state: CopyState

    @property
    def scope(self) -> Scope:
        """What its digests are of."""
        return scope_of(
            self.state.source_identity,
            str(self.table.name),
            self.state.columns,
            key=self.table.key,
            mode=self.state.mode,
        )

    def unknown(self, why: str) -> Checked:
        """Nobody can say."""
        return Checked(str(self.table.name), self.sink.name, "unknown", why, self.state.at)


@dataclass(frozen=True, slots=True)
class Sides:
    """Where a copy's two sides are read: the source's pieces before the sink's."""

    pieces: tuple[Piece, ...]
    expected: Side
    found: Side


OnFailed = Callable[[Copy, Sequence[Checked], Sides], None]


@dataclass(slots=True)
class Verification:
    """One look at all copies that were asked for."""

    pipeline: Pipeline
    spark: SparkSession
    reread: Reread
    tables: frozenset[str]
    sinks: frozenset[str]
    on_step: Callable[[str], None] = lambda _: None
    claims: Claims | None = None  # of certificates
    wait_s: float = 0  # for a run that brings the sinks to where the source is read
    ended: Event = field(default_factory=Event)  # nobody waits for the answer any more
    keyed: Keyed = field(default_factory=lambda: Keyed(secrets.token_bytes(16)))  # with claims: their secret
    told_of: Callable[[str], bool | None] = lambda _: (
        True
    )  # whether a certificate is of the chain; None: maybe
    tasks_max: int | None = None  # that read, at once; None: as many as there are parts to read
    on_failed: OnFailed | None = None  # told of each copy that is not as it should be, while it is pinned

    def run(self) -> list[Checked]:
        """Every copy, in the order of the file."""
        with ExitStack() as stack:
            self.on_step("looking at the sinks")
            with self._frozen():
                copies, unread = self._pinned(stack)
                claimed = self._claimed(copies)
            compared = self._compared(copies, claimed)
        found: dict[tuple[str, str], list[Checked]] = {}
        for one in [*unread, *compared]:
            found.setdefault((one.table, one.sink), []).append(one)
        return [check for key in self._wanted() for check in found[key]]

    def _wanted(self) -> list[tuple[str, str]]:
        sinks = [sink for sink in self.pipeline.sinks if sink.name in self.sinks]
        return [(table, sink.name) for sink in sinks for table in sink.modes if table in self.tables]

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """No ledger goes beyond the places that are asked for."""
        if self.claims is None:
            yield
            return
        self.claims.freeze()
        try:
            yield
        finally:
            self.claims.release()

    # --- sinks ----------------------------------------------------------------------------------------

    def _pinned(self, stack: ExitStack) -> tuple[list[Copy], list[Checked]]:
        tables = {str(table.name): table for table in self.pipeline.tables}
        deadline = time.monotonic() + self.wait_s
        copies: list[Copy] = []
        unread: list[Checked] = []
        for sink in self.pipeline.sinks:
            wanted = [name for name in sink.modes if name in self.tables and sink.name in self.sinks]
            if not wanted:
                continue
            try:
                pinned = self._arrived(stack, sink, wanted, deadline)
            except TruecutError as error:
                unread += [_unknown(name, sink, error.fault.message) for name in wanted]
                continue
            for name in wanted:
                state = None if pinned.cursor is None else pinned.cursor.copies.get(name)
                if state is None or not state.columns:
                    unread.append(_unknown(name, sink, "it was never copied"))
                else:
                    copies.append(Copy(tables[name], sink, pinned, state))
        return copies, unread

    def _arrived(
        self, stack: ExitStack, sink: SinkSettings, wanted: Sequence[str], deadline: float
    ) -> Pinned:
        """Pinned once a run has brought it to where the source is read, or where it is when that takes too
        long."""
        while True:
            with ExitStack() as own:
                pinned = own.enter_context(SINKS[sink.type].pin(sink, pipeline=self.pipeline.name))
                if not self._is_on_its_way(pinned, wanted) or time.monotonic() > deadline:
                    stack.push(own.pop_all())
                    return pinned
            if self.ended.wait(LOOK_S):
                deadline = 0

    def _is_on_its_way(self, pinned: Pinned, wanted: Sequence[str]) -> bool:
        frontier = self.reread.frontier
        if frontier is None or pinned.cursor is None:
            return False
        copies = [pinned.cursor.copies.get(name) for name in wanted]
        return any(copy is not None and copy.hold is None and copy.at < frontier for copy in copies)

    def _claimed(self, copies: Sequence[Copy]) -> list[Claimed | None]:
        """What is certified of each."""
        if self.claims is None:
            return [None] * len(copies)
        places = [
            Place(str(copy.table.name), copy.sink.name, copy.state, self._read_at(copy)) for copy in copies
        ]
        return self.claims.of(self.spark, places)

    def _read_at(self, copy: Copy) -> Position:
        """Where the source is read for it: nobody reads it for an append table."""
        frontier, state = self.reread.frontier, copy.state
        return state.at if frontier is None or state.mode == "append" else min(frontier, state.at)

    # --- the source -----------------------------------------------------------------------------------

    def _compared(self, copies: Sequence[Copy], claimed: Sequence[Claimed | None]) -> list[Checked]:
        identity = self.reread.identity
        answers: dict[int, list[Checked]] = {}
        pieces: list[Piece] = []
        for number, copy in enumerate(copies):
            if (odd := self._altered(copy) or self._strange(copy, claimed[number])) is not None:
                answers[number] = [odd]
            elif copy.state.source_identity != identity:
                answers[number] = [copy.unknown("the source is another one than it was copied from")]
            elif copy.state.mode == "append" and claimed[number] is None:
                answers[number] = [copy.unknown("the source does not tell its events again")]
            elif copy.state.mode == "append":
                pieces += self._pieces_of_sink(copy, number, rows=0)
        places = [
            copy.state.at if claim is None else claim.source_at
            for copy, claim in zip(copies, claimed, strict=True)
        ]
        for group in _by_place(copies, places, answers):
            self.on_step(f"reading {copies[group[0]].table.name}")
            planned = self._planned(copies[group[0]], places[group[0]])
            if isinstance(planned, str):
                answers |= {number: [copies[number].unknown(planned)] for number in group}
                continue
            fitting = [number for number in group if _same_columns(copies[number], planned)]
            answers |= {
                number: [copies[number].unknown("its columns are not those that the source had at its place")]
                for number in group
                if number not in fitting
            }
            pieces += self._pieces_of_source(copies, fitting, planned)
            for number in fitting:
                pieces += self._pieces_of_sink(copies[number], number, rows=planned.rows_estimate)
        self.on_step("comparing")
        sums = sum_up(self.spark, pieces, self.keyed, tasks_max=self.tasks_max) if pieces else Sums({})
        for number, copy in enumerate(copies):
            if number not in answers:
                answers[number] = list(self._judged(number, copy, claimed[number], sums, pieces))
            failed = any(one.level == "V5" and one.verdict == "fail" for one in answers[number])
            if failed and self.on_failed is not None:
                self.on_failed(copy, answers[number], _sides(number, pieces))
        return [check for number in range(len(copies)) for check in answers[number]]

    def _altered(self, copy: Copy) -> Checked | None:
        """Values that look the same in columns of other types are not the copy."""
        try:
            how = copy.pinned.altered(str(copy.table.name), copy.state.columns, mode=copy.state.mode)
        except TruecutError as error:
            return copy.unknown(error.fault.message)
        altered = copy.unknown(f"somebody has altered it: {how}")
        return None if how is None else replace(altered, verdict="fail")

    def _strange(self, copy: Copy, claim: Claimed | None) -> Checked | None:
        """The sink knows a certificate that the folder does not: an old folder shown as the newest, or a
        chain that forked. Every honest one is in the folder before a sink is told of it."""
        cursor = copy.pinned.cursor
        if cursor is None or not cursor.certificate:
            return None
        try:
            known = self.told_of(cursor.certificate)
        except (OSError, ValueError, KeyError):  # V0 says so
            known = None
        if known or (known is None and claim is not None):
            return None
        strange = copy.unknown("the sink knows a certificate that is not of this chain, or was trimmed")
        if known is None:
            return strange
        detail = (
            "the sink knows a certificate that is not of this chain: it forked, or is older than the sink"
        )
        return replace(strange, verdict="fail", detail=detail)

    def _planned(self, copy: Copy, at: Position) -> Window | str:
        table = TableRead(copy.table.name, copy.table.key, copy.table.route_by)
        try:
            window = self.reread.plan(table, at=at, parallelism=slots(self.spark))
        except TruecutError as error:
            return error.fault.message
        fault = window.faults.get(copy.table.name)
        return window if fault is None else fault.message

    def _pieces_of_source(
        self, copies: Sequence[Copy], group: Sequence[int], window: Window
    ) -> Iterable[Piece]:
        if not group:
            return []
        routes = _routes(copies, group)
        scope = copies[group[0]].scope
        return [SourcePiece(task, scope, routes) for task in window.tasks]

    def _pieces_of_sink(self, copy: Copy, number: int, *, rows: int) -> Iterable[Piece]:
        pieces = max(1, min(slots(self.spark), -(-rows // 250_000)))
        content = copy.pinned.content(
            str(copy.table.name),
            copy.state.columns,
            key=copy.table.key,
            mode=copy.state.mode,
            pieces=pieces,
        )
        return [SinkPiece(piece, copy.scope, _side_of_sink(number)) for piece in content]

    # --- the verdict ----------------------------------------------------------------------------------

    def _judged(
        self, number: int, copy: Copy, claim: Claimed | None, sums: Sums, pieces: Sequence[Piece]
    ) -> Iterator[Checked]:
        if claim is None:
            yield self._beside(number, copy, sums, pieces)
            return
        same = claim.source.root == claim.sink.root  # nothing that counts has happened between the two
        sides = {
            "V4": (_side_of_source(number), claim.source, claim.source_at),
            "V5": (_side_of_sink(number), claim.sink, claim.source_at if same else copy.state.at),
        }
        odd = None
        for level, (side, told, at) in sides.items():
            answer = Checked(str(copy.table.name), copy.sink.name, "unknown", "", at, level=level)
            if copy.state.mode == "append" and level == "V4":
                yield replace(answer, detail="the source does not tell its events again")
            elif side in sums.faults:
                yield replace(answer, detail=sums.faults[side].message)
            elif sums.buckets[side].root() == told.root:
                what = "the source" if level == "V4" else "the copy"
                detail = f"{what} has the {told.rows:,} rows that are certified"
                yield replace(answer, verdict="pass", detail=detail)
            else:
                if odd is None and copy.state.mode == "mirror" and not sums.faults:
                    odd = self._between(number, copy, claim, sums, pieces)
                yield _not_as_certified(answer, odd)

    def _between(
        self, number: int, copy: Copy, claim: Claimed, sums: Sums, pieces: Sequence[Piece]
    ) -> Checked | None:
        """The keys that differ, but those that honest changes between the two places touch."""
        touched = claim.touched()
        return None if touched is None else self._beside(number, copy, sums, pieces, but=touched)

    def _beside(
        self,
        number: int,
        copy: Copy,
        sums: Sums,
        pieces: Sequence[Piece],
        *,
        but: frozenset[bytes] = frozenset(),
    ) -> Checked:
        """The copy compared with the source itself."""
        expected, found = _side_of_source(number), _side_of_sink(number)
        for side in (expected, found):
            if side in sums.faults:
                return copy.unknown(sums.faults[side].message)
        apart = buckets_apart(sums.buckets[expected], sums.buckets[found])
        rows = sums.buckets[found].rows
        answer = Checked(str(copy.table.name), copy.sink.name, "pass", "", copy.state.at)
        if not apart:
            return replace(answer, detail=f"{rows:,} rows, the same as at the source")
        try:
            difference, odd = differences(
                self.spark,
                pieces,
                self.keyed,
                expected=expected,
                found=found,
                buckets=apart,
                rows=rows + sums.buckets[expected].rows,
                limit=ODD_MAX,
                tasks_max=self.tasks_max,
            )
        except TruecutError as error:
            return copy.unknown(f"it differs, but could not be read again: {error.fault.message}")
        if but:
            odd = [one for one in odd if one.key not in but]
            difference = Difference(**Counter(str(one.at_sink) for one in odd))
            if not odd:
                return answer
        witnesses = self._witnesses(odd[:WITNESSES], _sides(number, pieces).pieces)
        detail = f"{difference.rows:,} of {rows:,} rows are not those of the source"
        return replace(
            answer, verdict="fail", detail=detail, difference=difference, witnesses=witnesses, odd=tuple(odd)
        )

    def _witnesses(self, odd: Sequence[Odd], pieces: Sequence[Piece]) -> tuple[Mapping[str, Any], ...]:
        """In the order of their keys: whoever asks again is told the same."""
        wanted = {one.key for one in odd}
        values = key_values(self.spark, pieces, self.keyed, wanted, tasks_max=self.tasks_max)
        told = [{"key": values.get(one.key), "at_sink": one.at_sink} for one in odd]
        return tuple(sorted(told, key=lambda one: _order(one["key"])))


def reread_of(pipeline: Pipeline) -> AbstractContextManager[Reread]:
    """The source, with the generation that its positions have."""
    identity = survey_source(pipeline.source).observe().identity
    known = peek(pipeline.control, pipeline=pipeline.name)
    generation = known.generation(identity, at_least=1)
    return SOURCES[pipeline.source.type].reread(pipeline.source, generation=generation)


def _side_of_source(number: int) -> int:
    return 2 * number


def _side_of_sink(number: int) -> int:
    return 2 * number + 1


def _sides(number: int, pieces: Sequence[Piece]) -> Sides:
    expected, found = _side_of_source(number), _side_of_sink(number)
    own = tuple(piece for piece in pieces if {expected, found} & set(piece.sides))
    return Sides(own, expected, found)


def _order(key: Mapping[str, Any] | None) -> list[tuple[int, Any]]:
    """Numbers before texts, whatever a key is made of; those that nobody told come last."""
    if key is None:
        return [(2, "")]
    return [(0, value) if isinstance(value, int) else (1, str(value)) for value in key.values()]


def _not_as_certified(answer: Checked, odd: Checked | None) -> Checked:
    """With the keys in which source and copy differ, if they do."""
    what = "the source" if answer.level == "V4" else "the copy"
    failed = replace(answer, verdict="fail", detail=f"{what} is not what is certified")
    if odd is None or odd.verdict != "fail":
        return failed
    detail = f"{failed.detail}; {odd.detail}"
    return replace(failed, detail=detail, difference=odd.difference, witnesses=odd.witnesses, odd=odd.odd)


def _unknown(table: str, sink: SinkSettings, why: str) -> Checked:
    return Checked(table, sink.name, "unknown", why)


def _by_place(
    copies: Sequence[Copy], places: Sequence[Position], answered: Mapping[int, object]
) -> list[list[int]]:
    """Copies of one table at one place read the source once."""
    groups: dict[tuple[TableName, Position], list[int]] = {}
    for number, copy in enumerate(copies):
        if number not in answered and copy.state.mode == "mirror":
            groups.setdefault((copy.table.name, places[number]), []).append(number)
    return list(groups.values())


def _same_columns(copy: Copy, window: Window) -> bool:
    told = window.schemas[copy.table.name].columns
    return _shape(told) == _shape(copy.state.columns)


def _shape(columns: Iterable[Column]) -> list[tuple[int, str, str]]:
    return sorted((column.id, column.name, column.type) for column in columns)


def _routes(copies: Sequence[Copy], group: Sequence[int]) -> TableRoute:
    """As the pipeline routes them; the sides of the source stand for the sinks."""
    table = copies[group[0]].table
    everywhere: list[int] = []
    by_value: dict[str, tuple[int, ...]] = {}
    for number in group:
        route, side = copies[number].sink.route, _side_of_source(number)
        if route is None or table.broadcast:
            everywhere.append(side)
        else:
            by_value[route] = (*by_value.get(route, ()), side)
    return TableRoute(table.route_by if by_value else None, tuple(everywhere), by_value, all_wanted=True)
