"""Runs of one pipeline that want different tables: each table is judged alone, by the runs that want it.

The spec's tables are the same for every runner. Where a table left the pipeline for a while, the runs in
between say nothing of it, and the sink keeps its copy as it is. Copies of one sink share nothing but the
fence, so what was said of one table is a life of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]
_STARTS = ("StartWave", "StartSeed", "PersistIdle")
_ENDS = ("WaveCommit", "WaveAbort", "Advance")


def lives(runners: Sequence[Sequence[Line]]) -> list[list[list[Line]]]:
    """The runners' lines as they are, or, if they want different tables, once for each table."""
    wanted = [_wanted(lines) for lines in runners]
    told = {tables for tables in wanted if tables}
    if len(told) <= 1:
        return [[list(lines) for lines in runners]]
    return [
        [list(_only(table, lines)) for lines, tables in zip(runners, wanted, strict=True) if table in tables]
        for table in sorted(frozenset.union(*told))
    ]


def _wanted(lines: Sequence[Line]) -> frozenset[str]:
    return frozenset(table for line in lines for table in line.get("copies", {}))


def _only(table: str, lines: Sequence[Line]) -> Iterator[Line]:
    """What the lines say of one table. Waves of others, and requests for others, did not happen to it."""
    others = {line["wave"] for line in lines if line["action"] in _STARTS and table not in line["tables"]}
    resumed = 0
    for line in lines:
        if line["action"] in (*_STARTS, *_ENDS) and line["wave"] in others:
            continue
        mine = _projected(table, line)
        before, resumed = resumed, mine["copies"][table]["resumed"] if "copies" in mine else resumed
        if line["action"] not in ("ResumeTable", "CopyAgain") or resumed > before:
            yield mine


def _projected(table: str, line: Line) -> Line:
    parts = {part: {table: line[part][table]} for part in ("copies", "tables", "leaves") if part in line}
    apart = {"apart": [one for one in line["apart"] if one == table]} if "apart" in line else {}
    return {**line, **parts, **apart}
