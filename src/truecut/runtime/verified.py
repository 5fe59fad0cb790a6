"""What verifications have found of each copy last: kept beside the certificates, for `status` and others.

Promises: only a pass renews how far a copy was verified, and when; what could not be said never does, and
never takes a failure back. The file is there whole or not at all; one that cannot be read is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from truecut.certificate import durable
from truecut.certificate.belongings import VERIFIED
from truecut.config.settings import Level, Pipeline
from truecut.errors import Fault
from truecut.runtime.checked import Checked, verdict_of

LEVELS: tuple[Level, ...] = ("files", "source", "sink")  # each asks for what the one before it does
FORMAT = "truecut.verified/1"
Verdict = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Verified:
    """One copy: the last look at it, and the last that passed. `failed`: the level of one that failed, where
    none of that level has passed since."""

    table: str
    sink: str
    level: Level
    verdict: Verdict
    checked_at_ms: int
    detail: str = ""
    failed: Level | None = None
    upto: str | None = None  # of the last pass
    passed_at_ms: int | None = None

    def document(self) -> dict[str, Any]:
        """As `status` shows the last look."""
        return {
            "level": self.level,
            "verdict": self.verdict,
            "failed": self.failed is not None,
            "checked_at": iso(self.checked_at_ms),
            "detail": self.detail,
        }

    def fault(self) -> Fault | None:
        """What there is to be said of it loudly."""
        what = f"{self.table} at {self.sink}"
        if self.verdict == "fail":
            return Fault(
                "TC7060",
                f"{what} does not pass verification: {self.detail}",
                f"`truecut verify FILE --table {self.table} --sink {self.sink}` names what differs, and "
                "`--repair` puts it right; until it passes, do not rely on this copy.",
            )
        if self.verdict == "unknown":
            return Fault(
                "TC7061",
                f"{what} could not be verified: {self.detail}",
                "It is tried again after the interval; until then the last pass grows older.",
            )
        return None


Results = Mapping[tuple[str, str], Verified]  # (table, sink) →


def iso(at_ms: int) -> str:
    """In the form of documents."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(folder: Path) -> Results:
    """What is kept."""
    try:
        told = json.loads((folder / VERIFIED).read_bytes())
        found = [Verified(**one) for one in told["copies"]] if told["format"] == FORMAT else []
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {(one.table, one.sink): one for one in found}


def kept_of(pipeline: Pipeline) -> Results:
    """Of the copies that the pipeline has; nothing where no certificates are issued."""
    known = {} if pipeline.certificate is None else read(pipeline.certificate.path)
    return {key: one for key, one in known.items() if key in copies_of(pipeline)}


def copies_of(pipeline: Pipeline) -> set[tuple[str, str]]:
    """(table, sink)."""
    return {(table, sink.name) for sink in pipeline.sinks for table in sink.modes}


def keep(folder: Path, results: Results) -> None:
    """In the place of what is kept."""
    told = {"format": FORMAT, "copies": [asdict(results[key]) for key in sorted(results)]}
    durable.keep(durable.write(folder, json.dumps(told, indent=1).encode() + b"\n"), folder / VERIFIED)


def taken_in(
    before: Results,
    checks: Iterable[Checked],
    *,
    level: Level,
    wanted: Iterable[tuple[str, str]],
    at_ms: int,
) -> Results:
    """With what was found of the copies that were wanted. What is said of the certificates as a whole is said
    of every copy."""
    checks = list(checks)
    results = dict(before)
    for table, sink in wanted:
        own = [one for one in checks if not one.table or (one.table, one.sink) == (table, sink)]
        last = results.get((table, sink)) or Verified(table, sink, level, "unknown", at_ms)
        results[table, sink] = _after(last, own, level, at_ms)
    return results


def _after(last: Verified, own: list[Checked], level: Level, at_ms: int) -> Verified:
    verdict = verdict_of(own)
    odd = [one for one in own if one.verdict == verdict and verdict != "pass"]
    detail = f"{odd[0].level}: {odd[0].detail}" if odd else "" if own else "no certificate tells of it yet"
    looked = replace(last, level=level, verdict=verdict, checked_at_ms=at_ms, detail=detail)
    if verdict == "pass":
        places = [str(one.frontier) for one in own if one.frontier is not None]
        upto = min(places) if places else None
        heals = last.failed is None or LEVELS.index(level) >= LEVELS.index(last.failed)
        return replace(looked, failed=None if heals else last.failed, upto=upto, passed_at_ms=at_ms)
    if verdict == "fail":
        most = max(level, last.failed or level, key=LEVELS.index)
        return replace(looked, failed=most)
    return looked
