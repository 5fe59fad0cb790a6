"""One life of a backfill: a source that changes, readers, waves, crashes, and a judge.

`run(seed)` makes random steps and checks the laws of specs/Cut.tla after each; then the source falls quiet,
and the backfill has to end and the frontier to reach the last commit. A broken law is raised as `Broken`.

    python -m tests.core.cut_life SEED [FAULT]      lives it again, perhaps with a fault of cut_faults.py
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.core.cut_source import KEYS, OTHERS, Commit, Rows, Source, Written, is_of_table, place, table
from truecut.core import cut, splice, visibility
from truecut.core.cut import Backfill, Evidence, Log, Range
from truecut.model.position import Position

STEPS = 110
Place = tuple[Range, int]  # a unit of an edition


class Broken(Exception):
    """A law does not hold."""


def law(holds: bool, name: str) -> None:
    if not holds:
        raise Broken(name)


# What the faults replace: see cut_faults.py.


def in_order(commits: list[Commit]) -> list[tuple[int, Commit, Written]]:
    """The log as delivery reads it: by commits."""
    return [(one.place, one, written) for one in commits for written in one.written]


def by_row(commits: list[Commit]) -> list[tuple[int, Commit, Written]]:
    """By the places of the rows themselves."""
    found = [(written.place, one, written) for one in commits for written in one.written]
    return sorted(found, key=lambda entry: entry[0])


def reads_under(opened: Rows, now: Rows) -> Rows:
    """What a reader finds: the rows of the snapshot that it has told."""
    return opened


def durable_at_once() -> bool:
    """Whether a record is on disk before its unit is called recorded."""
    return True


def truncate_waits() -> bool:
    """Whether readers lock the table before they take their snapshot."""
    return True


@dataclass
class Sink:
    """What one commit writes."""

    rows: Rows
    cursor: Position
    edition: int = 1
    applied: set[Range] = field(default_factory=set)
    floors: dict[Range, Position] = field(default_factory=dict)


class Life:
    """One world."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.source = Source(self.rng)
        for _ in range(self.rng.randint(0, 8)):
            self.source.moves()
        slot = self.source.slot()
        cursor = slot.at
        self.published = 0  # what was written to the table before is in no log
        if self.rng.random() < 0.4:
            for _ in range(self.rng.randint(0, 6)):
                self.source.moves()
            self.published = self.source.end
            slot = replace(slot, writers=self.source.writers())
        known = max((key for key in self.source.visible if key in KEYS), default=KEYS[-1])
        inner = {known + 1, *self.rng.sample(KEYS[:5], self.rng.randint(0, 2))}
        self.backfill = cut.begin(slot, cut.ranges(sorted(inner)), cursor=cursor)
        self.plan = [unit.range for unit in self.backfill.units]  # durable, in the control store
        self.journal: dict[Place, Evidence] = {}
        self.unwritten: dict[Place, Evidence] = {}
        self.files: dict[tuple[Range, Evidence], Rows] = {}
        self.found: dict[Range, Rows] = {}  # what each snapshot sees
        self.sink = Sink(table(self.source.at(slot.at.place), other=True), slot.at)
        self.times: dict[tuple[int, Range, Position | None], int] = {}
        self.settled, self.trimmed = slot.at, slot.at
        self.faults_left = 4
        self.torn, self.crashes, self.early = 0, 0, 0  # how often

    # --- steps ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random thing happens."""
        acts = [
            self.source.moves,
            self._open,
            self._record,
            self._wave,
            self._split,
            self._crash,
            self._repeat,
        ]
        self.rng.choices(acts, [50, 12, 12, 14, 2, 2, 2])[0]()
        if self.unwritten and self.rng.random() < 0.1:
            self.journal |= self.unwritten
            self.unwritten = {}

    def log(self) -> Log:
        """Commits after what was trimmed, with ids of 64 bits."""
        near = self.backfill.slot.seen.xmax
        commits = [one for one in self.source.commits if one.place > self.trimmed.place]
        ids = [(place(one.place), visibility.nearest(one.xid, near=near)) for one in commits]
        return Log(self.trimmed, ids)

    def _open(self) -> None:
        waiting = cut.to_open(self.backfill, workers=2)
        if not waiting or (truncate_waits() and self.source.truncating()):
            return
        index = self.rng.choice(waiting)
        now, end = self.source.snapshot(), place(self.source.end)
        opened = cut.open_unit(self.backfill, index, snapshot=now, end=end, log=self.log())
        if opened is not self.backfill:
            self.backfill = opened
            self.found[opened.units[index].range] = dict(self.source.visible)
        else:
            self.early += 1
        self._hold_locks()

    def _hold_locks(self) -> None:
        reading = sum(unit.opened is not None for unit in self.backfill.units)
        self.source.readers = reading if truncate_waits() else 0

    def _record(self) -> None:
        reading = [index for index, unit in enumerate(self.backfill.units) if unit.opened is not None]
        if not reading:
            return
        index = self.rng.choice(reading)
        rows = self._read(index)
        self.backfill = cut.record_unit(self.backfill, index, rows=len(rows), digest="", log=self.log())
        unit = self.backfill.units[index]
        assert unit.evidence is not None
        self.files[unit.range, unit.evidence] = rows
        records = self.journal if durable_at_once() else self.unwritten
        records[unit.range, self.backfill.edition] = unit.evidence
        self.settled = max(self.settled, unit.evidence.lo)
        self._hold_locks()
        self._judge_evidence(unit.range, unit.evidence, rows)

    def _read(self, index: int) -> Rows:
        """After a TRUNCATE an older snapshot finds nothing, although it does not see it."""
        unit = self.backfill.units[index]
        assert unit.opened is not None
        emptied = any(
            one.place > unit.opened.end.place and any(w.event.kind == "truncate" for w in one.written)
            for one in self.source.commits
            if not any(one.place == running.place for running in self.source.running)
        )
        found = {} if emptied else reads_under(self.found[unit.range], self.source.visible)
        return {key: row for key, row in found.items() if key in KEYS and within(key, unit.range)}

    def _split(self) -> None:
        index = self.rng.randrange(len(self.backfill.units))
        part = self.backfill.units[index].range
        keys = [key for key in KEYS if within(key, part) and key not in (part.low, part.high)]
        if keys:
            self.backfill = cut.split(self.backfill, index, at=self.rng.choice(keys))
            for unit in self.backfill.units:
                self.found.setdefault(unit.range, self.found.get(part, {}))
            self.plan = [unit.range for unit in self.backfill.units]
            self.sink.floors |= {unit.range: unit.floor for unit in self.backfill.units if unit.floor}

    # --- delivery ---------------------------------------------------------------------------------------

    def _wave(self) -> None:
        cursor = self.backfill.cursor
        ends = [cursor, *(place(one.place) for one in self.source.commits if one.place > cursor.place)]
        upto = self.rng.choice(ends)
        ready = sorted(cut.ready(self.backfill, upto=upto))
        units = [index for index in ready if self.rng.random() < 0.7]
        if units or upto > cursor:
            self._commit(upto, units)

    def _commit(self, upto: Position, units: list[int]) -> None:
        law(cut.reads_after(self.backfill, units) >= self.trimmed, "LogKept")
        rows = self._replayed(upto, units)
        torn = [
            index
            for index, unit in enumerate(self.backfill.units)
            if any(key in KEYS and within(key, unit.range) and splice.incomplete(rows[key]) for key in rows)
        ]
        self._count(units)
        self.backfill = cut.wave(self.backfill, upto=upto, units=units, torn=torn)
        self.torn += len(torn)
        out = [self.backfill.units[index].range for index in torn]
        self.sink.rows = {key: row for key, row in rows.items() if not _covered(key, out)}
        self.sink.cursor = upto
        self.sink.applied = {unit.range for unit in self.backfill.units if unit.applied}
        self.sink.floors |= dict.fromkeys(out, upto)
        self._judge()
        self._trim()

    def _count(self, units: list[int]) -> None:
        for index in units:
            unit = self.backfill.units[index]
            name = (self.backfill.edition, unit.range, unit.floor)
            self.times[name] = self.times.get(name, 0) + 1
            law(self.times[name] == 1, "AppliedOnce")

    def _replayed(self, upto: Position, units: list[int]) -> Rows:
        """Both tables, each by what its units take."""
        splices = cut.splices(self.backfill, units)
        mine = table(self.sink.rows, other=False)
        others = table(self.sink.rows, other=True)
        for index in units:
            unit = self.backfill.units[index]
            assert unit.evidence is not None
            mine = {key: row for key, row in mine.items() if not within(key, unit.range)}
            mine |= self.files[unit.range, unit.evidence]
        near = self.backfill.slot.seen.xmax
        for number, one, written in in_order(self.source.commits):
            sent = written.place > self.published or not is_of_table(written.event)
            if sent and self.trimmed.place < number <= upto.place:
                short = visibility.top_level(written.xid % (1 << 32), one.tops)
                taken = Taking(self.backfill, splices, place(number), visibility.nearest(short, near=near))
                if written.event.key in OTHERS:
                    others = splice.taken(others, written.event, taken.streams)
                else:
                    mine = splice.taken(mine, written.event, taken.takes)
        return mine | others

    def _trim(self) -> None:
        needed = cut.needed_after(self.backfill, settled=self.settled, log=self.log())
        self.trimmed = max(self.trimmed, needed)

    # --- what befalls it --------------------------------------------------------------------------------

    def _crash(self) -> None:
        if self.faults_left == 0:
            return
        self.faults_left -= 1
        self.crashes += 1
        self.unwritten = {}
        records = {
            part: told for (part, edition), told in self.journal.items() if edition == self.sink.edition
        }
        law(self.sink.applied <= set(records), "Evidenced")
        forgotten = cut.forget(self.backfill)
        self.backfill = cut.recovered(
            self.backfill.slot,
            self.plan,
            cursor=self.sink.cursor,
            edition=self.sink.edition,
            applied=self.sink.applied,
            floors=self.sink.floors,
            records=records,
        )
        law(durable_at_once() is False or self.backfill == forgotten, "Recovered")
        self._hold_locks()

    def _repeat(self) -> None:
        if self.backfill.streaming and self.backfill.edition < 2:
            self.backfill = cut.repeat(self.backfill)
            self.sink.applied, self.sink.floors = set(), {}
            self.sink.edition = self.backfill.edition

    # --- the judge --------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """The sink is the source at that commit: the other table, what streams, and each applied unit."""
        truth = self.source.at(self.sink.cursor.place)
        law(
            self.sink.cursor.place in self.source.states or self.sink.cursor == self.backfill.slot.at,
            "NotSplit",
        )
        shown = list(self.sink.applied)
        if self.backfill.streaming:
            shown = [Range()]
            law(cut.doubts(self.backfill, frontier=self.sink.cursor) == [], "Claimed")
        for key in (*KEYS, *OTHERS):
            if key in OTHERS or _covered(key, shown):
                law(self.sink.rows.get(key) == truth.get(key), "SinkTrue")

    def _judge_evidence(self, part: Range, told: Evidence, rows: Rows) -> None:
        between = [told.lo.place, *(n for n in self.source.states if told.lo.place < n <= told.hi.place)]
        past = [self.source.at(number) for number in between]
        for key in KEYS:
            if within(key, part):
                law(any(rows.get(key) == then.get(key) for then in past), "EvidenceTrue")

    def heal(self) -> None:
        """The source falls quiet: the backfill ends, and the frontier goes on to the last commit."""
        self.source.readers = 0
        self.faults_left = 0
        for _ in range(40):
            self.source.quiet()
            self._open()
            self._open()
            self._record()
            self._record()
            upto = max([self.backfill.cursor, *(place(one.place) for one in self.source.commits)])
            self._commit(upto, sorted(cut.ready(self.backfill, upto=upto)))
            if self.backfill.streaming:
                return
        raise Broken("BackfillEnds")


@dataclass(frozen=True, slots=True)
class Taking:
    """Which keys an event counts for."""

    backfill: Backfill
    splices: list[splice.Splice | None]
    at: Position
    xid: int

    def streams(self, _: Any) -> bool:
        """The other table goes on from the cursor."""
        return self.at > self.backfill.cursor

    def takes(self, key: Any) -> bool:
        for index, unit in enumerate(self.backfill.units):
            if within(key, unit.range):
                found = self.splices[index]
                return found is not None and found.keeps(at=self.at, xid=self.xid)
        return False


def within(key: Any, part: Range) -> bool:
    low: Any = part.low
    high: Any = part.high
    return (low is None or low <= key) and (high is None or key < high)


def _covered(key: Any, parts: list[Range]) -> bool:
    return key in KEYS and any(within(key, part) for part in parts)


def run(seed: int) -> Life:
    """One life, to its end."""
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.heal()
    return life


def main(arguments: list[str]) -> int:
    """Lives one seed again."""
    from tests.core.cut_faults import injected  # which replaces what is here

    with pytest.MonkeyPatch.context() as patch:
        if len(arguments) > 1:
            injected(patch, arguments[1])
        life = run(int(arguments[0]))
    print(
        f"{len(life.source.commits)} commits, {len(life.backfill.units)} units, edition {life.sink.edition}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
