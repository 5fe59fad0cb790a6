"""The document behind `truecut status`: what the runners last reported, put together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from truecut.config.settings import Pipeline, SinkSettings
from truecut.runtime.control import Reports
from truecut.runtime.pauses import Pauses

SCHEMA = "truecut.status/v1"


def status_document(pipeline: Pipeline, reports: Reports, pauses: Pauses) -> dict[str, Any]:
    """`truecut.status/v1`. Sinks that were taken out of the file are listed as retired."""
    wanted = {sink.name: sink for sink in pipeline.sinks}
    sinks = [_sink(sink, reports, pauses) for sink in pipeline.sinks]
    retired = [_retired(name, report) for name, report in reports.sinks.items() if name not in wanted]
    return {
        "schema": SCHEMA,
        "pipeline": pipeline.name,
        "state": _state(sinks, reports, pauses),
        "observed_at": _iso(time.time()),
        "source": _source(pipeline, reports),
        "sinks": sinks + retired,
        "tables": [_table(str(table.name), reports, pauses) for table in pipeline.tables],
        "copies": [copy for sink in pipeline.sinks for copy in _copies(sink, reports)],
    }


def _state(sinks: list[dict[str, Any]], reports: Reports, pauses: Pauses) -> str:
    if not reports.running:
        return "stopped"
    if pauses.everything:
        return "paused"
    return "failed" if sinks and all(sink["state"] == "failed" for sink in sinks) else "running"


def _source(pipeline: Pipeline, reports: Reports) -> dict[str, Any]:
    latest = max(reports.runners.values(), key=lambda r: int(r["observed_at_ms"]), default={})
    return {
        "type": pipeline.source.type,
        "head": latest.get("head"),
        "captured": latest.get("head"),  # the source keeps its own history: seen is captured
        "released": None,
        "oldest": latest.get("oldest"),
        "retained_bytes": None,
        "unrouted": latest.get("unrouted", {}),
        "error": latest.get("error"),
    }


def _sink(sink: SinkSettings, reports: Reports, pauses: Pauses) -> dict[str, Any]:
    report = reports.sinks.get(sink.name)
    paused = pauses.everything or sink.name in pauses.sinks
    if report is None:
        state = "paused" if paused else "behind"
        return _sink_line(
            sink.name, state, {"cursor": None, "lag_ms": None, "rows_applied": 0, "error": None}
        )
    # Without a live runner nobody knows whether something is outstanding by now.
    lag = report["lag_ms"] if reports.running else None
    return _sink_line(sink.name, "paused" if paused else report["state"], {**report, "lag_ms": lag})


def _retired(name: str, report: Mapping[str, Any]) -> dict[str, Any]:
    return _sink_line(name, "retired", {**report, "lag_ms": None, "error": None})


def _sink_line(name: str, state: str, report: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("cursor", "lag_ms", "rows_applied", "error")
    return {"name": name, "state": state, **{field: report[field] for field in fields}}


def _table(name: str, reports: Reports, pauses: Pauses) -> dict[str, Any]:
    copies = [report["tables"][name] for report in reports.sinks.values() if name in report["tables"]]
    errors = [copy["error"] for copy in copies if copy["error"] is not None]
    return {
        "name": name,
        "state": "paused" if name in pauses.tables else _table_state(copies),
        "rows_backfilled": sum(int(copy["rows_backfilled"]) for copy in copies),
        "error": errors[0] if errors else None,
    }


def _table_state(copies: Iterable[Mapping[str, Any]]) -> str:
    statuses = {copy["status"] for copy in copies}
    if not statuses:
        return "pending"
    if "held" in statuses:
        return "failed"
    return "backfilling" if "unseeded" in statuses else "streaming"


def _copies(sink: SinkSettings, reports: Reports) -> list[dict[str, Any]]:
    report = reports.sinks.get(sink.name, {"tables": {}})
    return [
        {
            "table": table,
            "sink": sink.name,
            "mode": mode,
            "replicated_upto": report["tables"].get(table, {}).get("at"),
            "certified_upto": None,
            "verified_upto": None,
            "verified_at": None,
        }
        for table, mode in sink.modes.items()
    ]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
