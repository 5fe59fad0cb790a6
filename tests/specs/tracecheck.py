"""Whether the spec allows what a run did: traces (truecut.runtime.trace) are given to TLC.

Each sink of each run is a case of its own: sinks share nothing but the source. Positions become their
ranks. All cases of a call are decided in one start of TLC, by specs/DeliveryTrace.tla.

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

Line = Mapping[str, Any]
_POSITIONS = ("oldest", "head", "cursor", "expected", "after", "upto", "ends")
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
    """A case for each sink. Observations belong to all of them."""
    lines = list(lines)
    by_runner: dict[str, list[Line]] = {}
    for line in lines:
        by_runner.setdefault(line["runner"], []).append(line)
    sinks = sorted({line["sink"] for line in lines if "sink" in line})
    return [Case(run, sink, tuple(_life(sink, said) for said in by_runner.values())) for sink in sinks]


def _life(sink: str, lines: list[Line]) -> tuple[Line, ...]:
    """What one runner said of one sink. Of looks in a row the last one tells all: histories only grow."""
    mine = [line for line in lines if line.get("sink", sink) == sink]
    if all(line["action"] == "Observe" for line in mine):
        return ()
    looks = [line["action"] == "Observe" for line in mine]
    kept = [
        line for n, line in enumerate(mine) if not (looks[n] and all(looks[n : n + 2]) and n + 1 < len(mine))
    ]
    return _with_ends(kept)


def _with_ends(lines: list[Line]) -> tuple[Line, ...]:
    """A wave's start says how far it may go; its answer says how far it went."""
    ends = {}
    for line in lines:
        if line["action"] in ("WaveCommit", "Advance"):
            ends[line["wave"]] = line["cursor"] if line["action"] == "WaveCommit" else line["upto"]
    return tuple(
        {**line, "ends": ends.get(line["wave"])} if line["action"] == "StartWave" else line for line in lines
    )


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
        output = tlc.check(_config(cases), module=module, workers=1).output
    accepted = {int(case) for word, case, _ in _REPORT.findall(output) if word == "accepted"}
    said: dict[int, int] = {}
    for _, case, total in _REPORT.findall(output):
        said[int(case)] = max(said.get(int(case), 0), int(total))
    return [Refusal(case, said[n]) for n, case in enumerate(cases, start=1) if n not in accepted]


def _module(cases: Sequence[Case]) -> str:
    width = max(len(case.runners) for case in cases)
    texts = ",\n".join(f"  << {', '.join(_runners(case, width))} >>" for case in cases)
    return f"---- MODULE Generated ----\nEXTENDS DeliveryTrace\nTheCases == <<\n{texts}\n>>\n====\n"


def _runners(case: Case, width: int) -> list[str]:
    ranks, tokens, turns = _ranks(case), _token_ranks(case), _turns(case)
    seen = {line["cursor"] for lines in case.runners for line in lines if line.get("cursor") is not None}
    texts = []
    for lines in case.runners:
        records = [_record({**line, "n": turns.get(id(line), 0)}, ranks, tokens, seen) for line in lines]
        texts.append(f"<<{', '.join(records)}>>")
    return texts + ["<<>>"] * (width - len(texts))


def _ranks(case: Case) -> dict[str, int]:
    positions = {
        line[name]
        for lines in case.runners
        for line in lines
        for name in _POSITIONS
        if line.get(name) is not None
    }
    return {position: rank for rank, position in enumerate(sorted(positions))}


def _turns(case: Case) -> dict[int, int]:
    """Each line's place among all of the case, by the clock that all processes of a machine share."""
    lines = [line for runner in case.runners for line in runner]
    if not all("at_ns" in line for line in lines):
        return {}
    return {id(line): n for n, line in enumerate(sorted(lines, key=lambda line: line["at_ns"]), start=1)}


def _token_ranks(case: Case) -> dict[int, int]:
    """Tokens are as large as clocks; the spec's numbers are small and keep their order."""
    tokens = {line["token"] for lines in case.runners for line in lines if "token" in line}
    return {token: rank for rank, token in enumerate(sorted(tokens), start=1)}


def _possible_ends(line: Line, ranks: Mapping[str, int], seen: set[str]) -> str:
    """Where a window may have ended whose answer was lost: at a cursor that is seen, or at its bound."""
    ends = {end for end in seen if line["after"] <= end <= line["upto"]} | {line["upto"]}
    return f"{{{', '.join(str(ranks[end]) for end in sorted(ends))}}}"


def _record(line: Line, ranks: Mapping[str, int], tokens: Mapping[int, int], seen: set[str]) -> str:
    fields = [f"may |-> {_possible_ends(line, ranks, seen)}"] if line["action"] == "StartWave" else []
    for name, value in line.items():
        if name in _POSITIONS:
            fields.append(f"{name} |-> {-1 if value is None else ranks[value]}")
        elif name in ("action", "copy"):
            fields.append(f'{name} |-> "{value}"')
        elif name == "token":
            fields.append(f"{name} |-> {tokens[value]}")
        elif name in ("epoch", "n"):
            fields.append(f"{name} |-> {value}")
    return f"[{', '.join(fields)}]"


def _config(cases: Sequence[Case]) -> str:
    width = max(len(case.runners) for case in cases)
    last = max(len(_ranks(case)) for case in cases)
    return "\n".join(
        [
            "SPECIFICATION TraceSpec",
            "CONSTANTS",
            '  Keys = {"k"}',
            '  Routes = {"a"}',
            '  Sinks = {"a"}',
            f"  Runners = {{{', '.join(str(n) for n in range(1, width + 1))}}}",
            "  Histories <- Blanks",
            "  hist <- Blank",
            '  Mode = "mirror"',
            "  Bugs = {}",
            "  MaxFaults = 0",
            "  MaxExpire = 0",
            "  Junk = FALSE",
            "  StoreLoss = FALSE",
            "  SendEmpty = TRUE",
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
