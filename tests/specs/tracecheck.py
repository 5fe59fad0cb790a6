"""Whether the spec allows what a run did: traces (truecut.runtime.trace) are given to TLC.

Each sink of each run is a case of its own: sinks share nothing but the source. Positions, tokens and requests
become their ranks. All cases of a call are decided in one start of TLC, by specs/DeliveryTrace.tla.

    python -m tests.specs.tracecheck RUN/*.jsonl
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs import tlc
from tests.specs import trace_tables
from truecut.core.copies import GAP_CODE
from truecut.model.position import Position

Line = Mapping[str, Any]
_POSITIONS = ("oldest", "head", "after", "upto", "ends")
_SLOTS = {"StartWave": "changes", "PersistIdle": "changes", "StartSeed": "seed"}
_SENT = {"WaveCommit": "yes", "Advance": "no", "WaveAbort": "no"}
_ABSENT = (
    '[status |-> "unseeded", at |-> -1, hold |-> "none", resumed |-> 0, paused |-> FALSE, busy |-> FALSE, '
    "durable |-> NoVersion]"
)
_REPORT = re.compile(r'<<"(accepted|reached)", (\d+), (\d+)>>')


@dataclass(frozen=True, slots=True)
class Case:
    """One sink's life in one run: the lines of each runner that concern it."""

    run: str
    sink: str
    runners: tuple[tuple[Line, ...], ...]

    @property
    def length(self) -> int:
        """All lines."""
        return sum(len(lines) for lines in self.runners)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A case that no behaviour of the spec explains; `said` of its lines could be said at most."""

    case: Case
    said: int

    def __str__(self) -> str:
        last = [f"{line['action']}" for lines in self.case.runners for line in lines[-3:]]
        return (
            f"{self.case.run}: sink {self.case.sink}: the spec explains at most {self.said} of "
            f"{self.case.length} lines (last ones: {', '.join(last)})"
        )


def read(paths: Iterable[Path]) -> list[Line]:
    """The lines of one run, whatever number of processes wrote them."""
    return [json.loads(text) for path in sorted(paths) for text in path.read_text().splitlines()]


def cases_of(run: str, lines: Iterable[Line]) -> list[Case]:
    """A case for each sink, and for each of its tables where runs want different ones. Observations belong to
    all of them."""
    lines = list(lines)
    by_runner: dict[str, list[Line]] = {}
    for line in lines:
        by_runner.setdefault(line["runner"], []).append(line)
    return [
        Case(run, sink, tuple(_life(said) for said in life))
        for sink in sorted({line["sink"] for line in lines if "sink" in line})
        for life in trace_tables.lives([_of(sink, said) for said in by_runner.values()])
    ]


def _of(sink: str, lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.get("sink", sink) == sink]


def _life(mine: list[Line]) -> tuple[Line, ...]:
    """What one runner said of one sink. Of looks in a row the last one tells all: histories only grow."""
    if all(line["action"] == "Observe" for line in mine):
        return ()
    looks = [line["action"] == "Observe" for line in mine]
    kept = [
        line for n, line in enumerate(mine) if not (looks[n] and all(looks[n : n + 2]) and n + 1 < len(mine))
    ]
    return _with_ends(kept)


def _with_ends(lines: list[Line]) -> tuple[Line, ...]:
    """A wave's start says how far it may go; its answer says how far it went, and that an order was sent."""
    answers = {line["wave"]: line for line in lines if line["action"] in _SENT}
    slots = {line["wave"]: _SLOTS[line["action"]] for line in lines if line["action"] in _SLOTS}
    return tuple(
        {**line, "ends": _end(line, answers.get(line["wave"])), "sent": _was_sent(answers.get(line["wave"]))}
        if line["action"] in _SLOTS
        else {**line, "slot": slots.get(line["wave"], "changes")}
        if line["action"] in _SENT
        else line
        for line in lines
    )


def _was_sent(answer: Line | None) -> str:
    return "maybe" if answer is None else _SENT[answer["action"]]


def _end(start: Line, answer: Line | None) -> str | None:
    if answer is None or answer["action"] == "WaveAbort":
        return None
    if answer["action"] == "Advance":
        return str(answer["upto"])
    durable = [answer["copies"][table]["durable"] for table in start["tables"]]
    return next((version["at"] for version in durable if version and version["hold"] is None), None)


def refused(cases: Sequence[Case]) -> list[Refusal]:
    """The cases that the spec does not allow."""
    if not cases:
        raise ValueError("no trace to check: nothing was written")
    with tempfile.TemporaryDirectory(prefix="truecut-trace-") as name:
        folder = Path(name)
        for path in tlc.SPECS.glob("*.tla"):
            shutil.copy(path, folder)
        module = folder / "Generated.tla"
        module.write_text(_module(cases))
        output = tlc.check(_config(cases), module=module, brief=True).output
    accepted = {int(case) for word, case, _ in _REPORT.findall(output) if word == "accepted"}
    said: dict[int, int] = {}
    for _, case, total in _REPORT.findall(output):
        said[int(case)] = max(said.get(int(case), 0), int(total))
    return [Refusal(case, said[n]) for n, case in enumerate(cases, start=1) if n not in accepted]


def _module(cases: Sequence[Case]) -> str:
    width = max(len(case.runners) for case in cases)
    tables = max(len(_tables(case)) for case in cases)
    texts = ",\n".join(_case(case, width, tables) for case in cases)
    # TLC keeps the value of a definition, but not of one that replaces a constant: of `Told`, not `TheCases`.
    told = f"Told == <<\n{texts}\n>>\nTheCases == Told"
    return f"---- MODULE Generated ----\nEXTENDS DeliveryTrace\n{told}\n====\n"


def _case(case: Case, width: int, tables: int) -> str:
    words = Words.of(case, tables)
    turns = _turns(case)
    texts = []
    for lines in case.runners:
        texts.append(f"<<{', '.join(words.line(line, turns.get(id(line), 0)) for line in lines)}>>")
    texts += ["<<>>"] * (width - len(texts))
    shown = [copy for copies in _all_copies(case) for copy in copies.items()]
    gaps = {words.names[table] for table, copy in shown if copy["hold"] == GAP_CODE}
    stops = {
        words.names[table]
        for table, copy in shown
        if copy["durable"] is not None and copy["durable"]["hold"] not in (None, GAP_CODE)
    }
    gens, srcs = ", ".join(map(str, words.generations)), ", ".join(map(str, words.sources))
    return (
        f"  [runners |-> << {', '.join(texts)} >>, gaps |-> {_set(gaps)}, stops |-> {_set(stops)}, "
        f"gens |-> <<{gens}>>, srcs |-> <<{srcs}>>]"
    )


def _set(names: Iterable[str]) -> str:
    return f"{{{', '.join(_text(name) for name in sorted(names))}}}"


def _text(name: str) -> str:
    return f'"{name}"'


def _all_copies(case: Case) -> list[Mapping[str, Any]]:
    return [line["copies"] for lines in case.runners for line in lines if "copies" in line]


def _tables(case: Case) -> list[str]:
    return sorted({table for copies in _all_copies(case) for table in copies})


def _turns(case: Case) -> dict[int, int]:
    """Each line's place among all of the case, by the clock that all processes of a machine share."""
    lines = [line for runner in case.runners for line in runner]
    if not all("at_ns" in line for line in lines):
        return {}
    return {id(line): n for n, line in enumerate(sorted(lines, key=lambda line: line["at_ns"]), start=1)}


def _versions(line: Line) -> list[Mapping[str, Any]]:
    """Every version that a line tells."""
    copies = line.get("copies", {}).values()
    told = [
        *(copy["durable"] for copy in copies),
        *line.get("tables", {}).values(),
        *line.get("leaves", {}).values(),
    ]
    return [version for version in told if version is not None]


@dataclass(frozen=True, slots=True)
class Words:
    """A case's names and numbers in the spec's: positions, tokens and requests become their ranks."""

    names: Mapping[str, str]
    positions: Mapping[str, int]
    tokens: Mapping[int, int]
    requests: Mapping[int, int]
    shown: frozenset[str]  # places at which some copy was seen
    tables: int
    identities: Mapping[str, int]  # of sources
    generations: tuple[int, ...]  # of each position
    sources: tuple[int, ...]  # whose each position is; 0: of one that nobody looked at

    @classmethod
    def of(cls, case: Case, tables: int) -> Words:
        """Everything that the case's lines speak of."""
        lines = [line for runner in case.runners for line in runner]
        copies = [copy for copies in _all_copies(case) for copy in copies.values()]
        versions = [version for line in lines for version in _versions(line)]
        shown = {version["at"] for version in versions}
        places = shown | {line[name] for line in lines for name in _POSITIONS if line.get(name) is not None}
        places |= {copy["at"] for copy in copies if copy["at"] is not None}
        requests = {one["resumed"] for one in [*copies, *versions]} | {0}
        tokens = {line["token"] for line in lines if "token" in line}
        looks = [line for line in lines if line["action"] == "Observe"]
        identities = {name: n for n, name in enumerate(sorted({one["identity"] for one in looks}), start=1)}
        owners = {_generation(one["head"]): identities[one["identity"]] for one in looks}
        generations = tuple(_generation(place) for place in sorted(places))
        return cls(
            {table: f"t{n}" for n, table in enumerate(_tables(case), start=1)},
            {place: rank for rank, place in enumerate(sorted(places))},
            {token: rank for rank, token in enumerate(sorted(tokens), start=1)},
            {request: rank for rank, request in enumerate(sorted(requests))},
            frozenset(shown),
            tables,
            identities,
            generations,
            tuple(owners.get(generation, 0) for generation in generations),
        )

    def line(self, line: Line, turn: int) -> str:
        """One line as a record."""
        fields = [f"n |-> {turn}"]
        if line["action"] == "StartWave":
            fields.append(f"may |-> {self._possible_ends(line)}")
        for name, value in line.items():
            if name in _POSITIONS:
                fields.append(f"{name} |-> {self._place(value)}")
            elif name == "identity":
                fields.append(f"src |-> {self.identities[value]}")
            elif name in ("action", "slot", "sent"):
                fields.append(f"{name} |-> {_text(value)}")
            elif name == "apart":
                fields.append(f"{name} |-> {_set(self.names[table] for table in value)}")
            elif name == "token":
                fields.append(f"{name} |-> {self.tokens[value]}")
            elif name == "epoch":
                fields.append(f"{name} |-> {value}")
            elif name == "copies":
                fields.append(f"{name} |-> {self._copies(value)}")
            elif name in ("tables", "leaves"):
                told = ", ".join(
                    f"{self.names[table]} |-> {self._version(one)}" for table, one in value.items()
                )
                fields.append(f"{name} |-> [{told}]")
        return f"[{', '.join(fields)}]"

    def _place(self, position: str | None) -> int:
        return -1 if position is None else self.positions[position]

    def _possible_ends(self, line: Line) -> str:
        """Where a window may have ended whose answer was lost: where a copy is seen, or at its bound."""
        ends = {end for end in self.shown if line["after"] <= end <= line["upto"]} | {line["upto"]}
        return f"{{{', '.join(str(self.positions[end]) for end in sorted(ends))}}}"

    def _version(self, version: Mapping[str, Any] | None) -> str:
        if version is None:
            return "NoVersion"
        place = (
            self._place(version["at"]) if version["edition"] else -1
        )  # it had to stop before its first seed
        return (
            f"[at |-> {place}, edition |-> {version['edition']}, hold |-> {_hold(version['hold'])}, "
            f"resumed |-> {self.requests[version['resumed']]}, shape |-> FALSE]"
        )

    def _copies(self, copies: Mapping[str, Any]) -> str:
        """All tables that any case has; those that this one has not are never seeded."""
        told = {self.names[table]: self._copy(copy) for table, copy in copies.items()}
        every = [f"t{n}" for n in range(1, self.tables + 1)]
        return f"[{', '.join(f'{name} |-> {told.get(name, _ABSENT)}' for name in every)}]"

    def _copy(self, copy: Mapping[str, Any]) -> str:
        place = self._place(copy["at"]) if copy["edition"] else -1
        return (
            f"[status |-> {_text(copy['status'])}, at |-> {place}, hold |-> {_hold(copy['hold'])}, "
            f"resumed |-> {self.requests[copy['resumed']]}, paused |-> {str(copy['paused']).upper()}, "
            f"busy |-> {str(copy['wave'] is not None).upper()}, durable |-> {self._version(copy['durable'])}]"
        )


def _generation(position: str) -> int:
    return Position.parse(position).generation


def _hold(code: str | None) -> str:
    """A table is held for a gap, or for whatever else."""
    return '"none"' if code is None else '"gap"' if code == GAP_CODE else '"fault"'


def _config(cases: Sequence[Case]) -> str:
    width = max(len(case.runners) for case in cases)
    tables = max(len(_tables(case)) for case in cases)
    last = max(len(Words.of(case, tables).positions) for case in cases)
    return "\n".join(
        [
            "SPECIFICATION TraceSpec",
            "CONSTANTS",
            '  Keys = {"k"}',
            f"  Tables = {_set(f't{n}' for n in range(1, tables + 1))}",
            "  TableOf <- NoKeys",
            '  Routes = {"a"}',
            '  Sinks = {"a"}',
            f"  Runners = {{{', '.join(str(n) for n in range(1, width + 1))}}}",
            "  Nobody <- NoRunner",
            "  Histories <- Blanks",
            "  hist <- Blank",
            '  Mode = "mirror"',
            "  AcrossGap <- HeldAtGap",
            "  Fault <- Costless",
            "  Bugs = {}",
            "  MaxFaults = 0",
            "  MaxExpire = 0",
            "  Junk = FALSE",
            "  StoreLoss = FALSE",
            "  ReplacedAt = 0",
            "  GenOf <- TraceGenOf",
            "  SrcOf <- TraceSrcOf",
            "  SendEmpty = TRUE",
            '  Users = {"stop"}',
            "  Cases <- TheCases",
            f"  Last = {last}",
            "INVARIANT Report",
            "VIEW View",
        ]
    )


def main(paths: Sequence[str]) -> int:
    """Check one run's files."""
    found = refused(cases_of("run", read(Path(path) for path in paths)))
    for refusal in found:
        print(refusal)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
