"""How the capture of a source is, as it tells the control store: for whoever asks about the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.runtime.control_readonly import peek_reports
from truecut.sources.postgres.messages import lsn_of


@dataclass(frozen=True, slots=True)
class Captured:
    """`state` is None where the source keeps its own history; `released` is a place of ours."""

    state: str | None = None
    released: int | None = None
    retained_bytes: int | None = None
    full_in_s: float | None = None
    gap: str | None = None
    waits_for: str | None = None


def control_name(pipeline: Pipeline) -> str:
    """Where captures have their lease: they are not counted among the runners that share the sinks."""
    return f"{pipeline.name}/capture"


def captured(pipeline: Pipeline) -> Captured:
    """As it was last told."""
    if not SOURCES[pipeline.source.type].captured:
        return Captured()
    reports = peek_reports(pipeline.control, pipeline=control_name(pipeline))
    told = reports.last
    released = lsn_of(told["released"]) if "released" in told else 0
    return Captured(
        state=str(told.get("mode", "starting")) if reports.running else "stopped",
        released=released - 1 if released else None,
        retained_bytes=told.get("wal_retained_bytes"),
        full_in_s=told.get("wal_full_in_s"),
        gap=told.get("gap"),
        waits_for=told.get("waits_for") if reports.running else None,
    )
