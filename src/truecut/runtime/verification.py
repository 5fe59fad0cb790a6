"""Whether copies equal their source: both are read at one position, as digests, and compared.

Owns the order of things: sinks are pinned first, so that each copy's place is known and its content is of
that very moment; then the source is read at these places; then sums are compared, and keys where they differ.
Where the last certificate claims the copy at that very place, both are compared with what it claims (V4 the
source, V5 the sink), else with each other. Promises: nothing is written; *unknown* wherever one of the two
could not be read, never *pass*.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from truecut.certificate.comparison import NONE, Difference, Odd, buckets_apart
from truecut.certificate.digest import Keyed
from truecut.certificate.scope import Scope, scope_of
from truecut.config.kinds import SINKS, SOURCES
from truecut.config.settings import Pipeline, SinkSettings, TableSettings
from truecut.errors import TruecutError
from truecut.model.cursor import CopyState
from truecut.model.position import Position
from truecut.model.table import Column, TableName
from truecut.runtime.control_readonly import peek
from truecut.sinks.contract import Pinned
from truecut.sources.contract import Reread, TableRead, Window
from truecut.sources.registry import survey_source
from truecut.spark.comparison import Piece, Sums, differences, key_values, sum_up
from truecut.spark.contents import SinkPiece, SourcePiece
from truecut.spark.session import slots
from truecut.spark.wave.route import TableRoute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Verdict = Literal["pass", "fail", "unknown"]
WITNESSES = 1_000  # keys that are looked up
ODD_MAX = 100_000  # keys that are named to whoever repairs


@dataclass(frozen=True, slots=True)
class Checked:
    """One copy: what was found, in the words of `truecut.verify/v1`."""

    table: str
    sink: str
    verdict: Verdict
    detail: str
    frontier: Position | None = None
    difference: Difference = NONE
    witnesses: tuple[Mapping[str, Any], ...] = ()  # some of the keys that differ, the least first
    odd: tuple[Odd, ...] = ()
    level: str = "V5"

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "table": self.table,
            "sink": self.sink,
            "level": self.level,
            "verdict": self.verdict,
            "frontier": None if self.frontier is None else str(self.frontier),
            "missing": self.difference.missing,
            "extra": self.difference.extra,
            "differs": self.difference.differs,
            "witness": self.witnesses[0] if self.witnesses else None,
            "detail": self.detail,
        }


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


@dataclass(slots=True)
class Verification:
    """One look at all copies that were asked for."""

    pipeline: Pipeline
    spark: SparkSession
    reread: Reread
    tables: frozenset[str]
    sinks: frozenset[str]
    on_step: Callable[[str], None] = lambda _: None
    claims: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)  # of a certificate
    keyed: Keyed = field(default_factory=lambda: Keyed(secrets.token_bytes(16)))  # with claims: their secret

    def run(self) -> list[Checked]:
        """Every copy, in the order of the file."""
        with ExitStack() as stack:
            self.on_step("looking at the sinks")
            copies, unread = self._pinned(stack)
            compared = self._compared(copies)
        found: dict[tuple[str, str], list[Checked]] = {}
        for one in [*unread, *compared]:
            found.setdefault((one.table, one.sink), []).append(one)
        return [check for key in self._wanted() for check in found[key]]

    def _wanted(self) -> list[tuple[str, str]]:
        sinks = [sink for sink in self.pipeline.sinks if sink.name in self.sinks]
        return [(table, sink.name) for sink in sinks for table in sink.modes if table in self.tables]

    # --- sinks ----------------------------------------------------------------------------------------

    def _pinned(self, stack: ExitStack) -> tuple[list[Copy], list[Checked]]:
        tables = {str(table.name): table for table in self.pipeline.tables}
        copies: list[Copy] = []
        unread: list[Checked] = []
        for sink in self.pipeline.sinks:
            wanted = [name for name in sink.modes if name in self.tables and sink.name in self.sinks]
            if not wanted:
                continue
            try:
                pinned = stack.enter_context(SINKS[sink.type].pin(sink, pipeline=self.pipeline.name))
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

    # --- the source -----------------------------------------------------------------------------------

    def _compared(self, copies: Sequence[Copy]) -> list[Checked]:
        identity = self.reread.identity
        answers: dict[int, list[Checked]] = {}
        pieces: list[Piece] = []
        for number, copy in enumerate(copies):
            if copy.state.source_identity != identity:
                answers[number] = [copy.unknown("the source is another one than it was copied from")]
            elif copy.state.mode == "append" and self._claimed(copy) is None:
                answers[number] = [copy.unknown("the source does not tell its events again")]
            elif copy.state.mode == "append":
                pieces += self._pieces_of_sink(copy, number, rows=0)
        for group in _by_place(copies, answers):
            self.on_step(f"reading {copies[group[0]].table.name}")
            planned = self._planned(copies[group[0]])
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
        sums = sum_up(self.spark, pieces, self.keyed) if pieces else Sums({})
        for number, copy in enumerate(copies):
            if number not in answers:
                answers[number] = list(self._judged(number, copy, sums, pieces))
        return [check for number in range(len(copies)) for check in answers[number]]

    def _claimed(self, copy: Copy) -> Mapping[str, Any] | None:
        """What the certificate says of the copy where it stands, with the evidence that its cursor names."""
        claim = self.claims.get((str(copy.table.name), copy.sink.name))
        state = copy.state
        told = (state.edition, str(state.at), state.evidence)
        if claim is None or claim["verdict"] != "certified":
            return None
        return claim if (claim["edition"], claim["at"], claim["evidence"]) == told else None

    def _planned(self, copy: Copy) -> Window | str:
        table = TableRead(copy.table.name, copy.table.key, copy.table.route_by)
        try:
            window = self.reread.plan(table, at=copy.state.at, parallelism=slots(self.spark))
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

    def _judged(self, number: int, copy: Copy, sums: Sums, pieces: Sequence[Piece]) -> Iterator[Checked]:
        claim = self._claimed(copy)
        if claim is None:
            yield self._beside(number, copy, sums, pieces)
            return
        sides = {"V4": _side_of_source(number), "V5": _side_of_sink(number)}
        odd = None
        for level, side in sides.items():
            if copy.state.mode == "append" and level == "V4":
                yield replace(copy.unknown("the source does not tell its events again"), level=level)
            elif side in sums.faults:
                yield replace(copy.unknown(sums.faults[side].message), level=level)
            elif sums.buckets[side].root() == claim["root"]:
                what = "the source" if level == "V4" else "the copy"
                detail = f"{what} has the {claim['rows']:,} rows that are certified"
                yield Checked(
                    str(copy.table.name), copy.sink.name, "pass", detail, copy.state.at, level=level
                )
            else:
                if odd is None and copy.state.mode == "mirror" and not sums.faults:
                    odd = self._beside(number, copy, sums, pieces)
                yield _not_as_certified(copy, level, odd)

    def _beside(self, number: int, copy: Copy, sums: Sums, pieces: Sequence[Piece]) -> Checked:
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
            )
        except TruecutError as error:
            return copy.unknown(f"it differs, but could not be read again: {error.fault.message}")
        own = [piece for piece in pieces if {expected, found} & set(piece.sides)]
        witnesses = self._witnesses(odd[:WITNESSES], own)
        detail = f"{difference.rows:,} of {rows:,} rows are not those of the source"
        return replace(
            answer, verdict="fail", detail=detail, difference=difference, witnesses=witnesses, odd=tuple(odd)
        )

    def _witnesses(self, odd: Sequence[Odd], pieces: Sequence[Piece]) -> tuple[Mapping[str, Any], ...]:
        """In the order of their keys: whoever asks again is told the same."""
        values = key_values(self.spark, pieces, self.keyed, {one.key for one in odd})
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


def _order(key: Mapping[str, Any] | None) -> list[tuple[int, Any]]:
    """Numbers before texts, whatever a key is made of; those that nobody told come last."""
    if key is None:
        return [(2, "")]
    return [(0, value) if isinstance(value, int) else (1, str(value)) for value in key.values()]


def _not_as_certified(copy: Copy, level: str, odd: Checked | None) -> Checked:
    """With the keys in which source and copy differ, if they do."""
    what = "the source" if level == "V4" else "the copy"
    detail = f"{what} is not what is certified"
    failed = Checked(str(copy.table.name), copy.sink.name, "fail", detail, copy.state.at, level=level)
    if odd is None or odd.verdict != "fail":
        return failed
    difference, detail = odd.difference, f"{detail}; {odd.detail}"
    return replace(failed, detail=detail, difference=difference, witnesses=odd.witnesses, odd=odd.odd)


def _unknown(table: str, sink: SinkSettings, why: str) -> Checked:
    return Checked(table, sink.name, "unknown", why)


def _by_place(copies: Sequence[Copy], answered: Mapping[int, object]) -> list[list[int]]:
    """Copies of one table at one place read the source once."""
    groups: dict[tuple[TableName, Position], list[int]] = {}
    for number, copy in enumerate(copies):
        if number not in answered and copy.state.mode == "mirror":
            groups.setdefault((copy.table.name, copy.state.at), []).append(number)
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


def verdict_of(checks: Iterable[Checked]) -> Verdict:
    """Of all of them: one that fails is a failure, one that nobody knows of leaves all unknown."""
    verdicts = {check.verdict for check in checks}
    if "fail" in verdicts:
        return "fail"
    return "unknown" if "unknown" in verdicts or not verdicts else "pass"


def document(checks: Sequence[Checked]) -> dict[str, Any]:
    """`truecut.verify/v1`."""
    return {
        "schema": "truecut.verify/v1",
        "verdict": verdict_of(checks),
        "checks": [check.document() for check in checks],
    }
