"""How a run ended: the last thing that `truecut run` prints, for people or as JSON (truecut.run/v1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truecut.model.position import text_of
from truecut.runtime.run_report import View
from truecut.runtime.until import Outcome

LINES_MAX = 10
SCHEMA = "truecut.run/v1"
HEAD = "head"  # of the source, at the first look


def summary(view: View, outcome: Outcome, until: str | None, *, seconds: float) -> dict[str, Any]:
    """Where it stands, rows for each sink, what is held, how long. `until`: what was to be reached, if
    anything: HEAD or a position. A view that nothing was seen in yet is one of a run that never began."""
    return {
        "schema": SCHEMA,
        "pipeline": view.pipeline.name,
        "outcome": _outcome(outcome, until),
        "until": until,
        "seconds": round(seconds, 1),
        "head": text_of(view.head),
        "rows_applied": sum(line.rows_applied for line in view.sinks.values()),
        "rows_unrouted": dict(view.unrouted),
        "sinks": [
            {
                "name": line.name,
                "state": line.state,
                "cursor": line.cursor,
                "lag_ms": line.lag_ms,
                "rows_applied": line.rows_applied,
                "error": line.error,
            }
            for line in view.sinks.values()
        ],
        "held": list(_held(view)),
        "stragglers": {} if outcome.reached or until is None else dict(outcome.stragglers),
    }


def _outcome(outcome: Outcome, until: str | None) -> str:
    if until is None:
        return "stopped"
    return "reached" if outcome.reached else "not reached"


def _held(view: View) -> Iterator[dict[str, Any]]:
    for line in view.sinks.values():
        for table, copy in line.tables.items():
            if copy["status"] == "held":
                error = copy["error"] or {"code": None, "message": None}
                yield {"table": table, "sink": line.name, "at": copy["at"], **error}


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    head = f"source at {document['head']}" if document["head"] else "source not seen"
    rows = f"{document['rows_applied']:,} rows applied"
    sinks = sorted(document["sinks"], key=lambda sink: (sink["state"] == "current", sink["name"]))
    current = sum(sink["state"] == "current" for sink in sinks)
    standing = f"{current:,} of {len(sinks):,} sinks current" if sinks else "no sink was looked at"
    yield (
        f"{document['pipeline']}: {_ended(document)} after {document['seconds']:g} s; {head}; "
        f"{standing}; {rows}"
    )
    for sink in sinks[:LINES_MAX]:
        error = f"  {sink['error']['code']}" if sink["error"] else ""
        place = sink["cursor"] or "no cursor yet"
        yield f"  {sink['name']}: {sink['state']} at {place}, {sink['rows_applied']:,} rows{error}"
    if len(sinks) > LINES_MAX:
        yield f"  and {len(sinks) - LINES_MAX:,} more (--json lists all)"
    for held in document["held"][:LINES_MAX]:
        yield f"held: {held['table']} at {held['sink']}: {held['code']} {held['message']}"
    for table, count in sorted(document["rows_unrouted"].items()):
        yield f"unrouted: {count:,} rows of {table} matched no sink, in all runs"


def _ended(document: Mapping[str, Any]) -> str:
    outcome, until = str(document["outcome"]), document["until"]
    if until is None:
        return outcome
    return outcome.replace("reached", "caught up") if until == HEAD else f"{outcome} {until}"
