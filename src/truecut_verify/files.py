"""V0 to V2 of a folder: what its files alone can show of each copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from truecut_verify.chain import Chain, History, read_chain
from truecut_verify.evidence import Run, check_files, runs_of
from truecut_verify.folder import Folder
from truecut_verify.replay import check_replay
from truecut_verify.units import check_units
from truecut_verify.verdict import Check, Finding


@dataclass(slots=True)
class Examined:
    """A folder, its chain if it has one, the runs of each copy that passed V1, and all checks."""

    folder: Folder
    chain: Chain | None = None
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)


def examine(folder: Folder, public_key: bytes | None) -> Examined:
    """All levels, copy by copy; a level is asked only where the one below has not failed."""
    found = Examined(folder)
    try:
        found.chain = read_chain(folder, public_key)
    except Finding as finding:
        found.checks.append(Check.of("V0", finding))
        return found
    for history in found.chain.copies.values():
        _examine_copy(found, history, found.chain)
    if not found.chain.copies:
        found.checks.append(Check("V0", "pass", "a chain that certifies no copy"))
    return found


def _examine_copy(found: Examined, history: History, chain: Chain) -> None:
    by = "the key that was given" if chain.trusted else "a key that came with them: compare its fingerprint"
    runs: list[Run] = []

    def structure() -> str:
        if history.wrong is not None:
            raise history.wrong
        return f"{len(chain.certificates)} certificates, signed by {by} ({chain.certificates[-1].key[:16]})"

    def evidence() -> str:
        runs.extend(runs_of(history))
        checked = check_files(found.folder, runs, chain.certificates[-1].kept_from)
        found.runs[history.last.name] = runs
        return f"{checked} segments as they were signed"

    def state() -> str:
        check_replay(found.folder, runs)
        units = check_units(found.folder, runs[-1], history)
        return f"replay gives its {history.last.rows} rows" + units

    for level, check in (("V0", structure), ("V1", evidence), ("V2", state)):
        checked = _checked(level, check, history)
        found.checks.append(checked)
        if checked.verdict == "fail" or (level == "V1" and checked.verdict == "unknown"):
            if level == "V1" and checked.verdict == "unknown":
                found.checks.append(
                    Check("V2", "unknown", checked.detail, *history.last.name, history.last.at)
                )
            return


def _checked(level: str, check: Callable[[], str], history: History) -> Check:
    last = history.last
    try:
        return Check(level, "pass", check(), last.table, last.sink, last.at)
    except Finding as finding:
        return Check.of(level, finding, table=last.table, sink=last.sink, frontier=last.at)
