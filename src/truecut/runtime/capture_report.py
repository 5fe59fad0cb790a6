"""How the capture of a source is, as it tells the control store: for whoever asks about the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truecut.config.kinds import SOURCES
from truecut.config.settings import Pipeline
from truecut.runtime.control_readonly import peek_reports


@dataclass(frozen=True, slots=True)
class Captured:
    """`state` is None where the source keeps its own history; `released` is a place of ours."""

    state: str | None = None
    released: int | None = None
    retained_bytes: int | None = None
    retained_bytes_per_s: float | None = None
    slot_lost_in_s: float | None = None
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
    return Captured(
        state=str(told.get("mode", "starting")) if reports.running else "stopped",
        released=_released(pipeline, told),
        retained_bytes=told.get("wal_retained_bytes"),
        retained_bytes_per_s=told.get("wal_retained_bytes_per_s") if reports.running else None,
        slot_lost_in_s=told.get("slot_lost_in_s") if reports.running else None,
        gap=told.get("gap"),
        waits_for=told.get("waits_for") if reports.running else None,
    )


def _released(pipeline: Pipeline, told: Mapping[str, Any]) -> int | None:
    try:
        return SOURCES[pipeline.source.type].place(str(told.get("released")))
    except ValueError:  # nothing was yet, or nobody has told
        return None
