"""Which class serves which `type:` of sink."""

from __future__ import annotations

from truecut.config.settings import SinkSettings
from truecut.sinks.contract import Sink


def open_sink(settings: SinkSettings, *, pipeline: str) -> Sink:
    """The sink behind the settings. Imports late: executors load only what they need."""
    from truecut.sinks.ducklake import DuckLakeSink

    return DuckLakeSink(
        name=settings.name, pipeline=pipeline, address=settings.address, existing=settings.existing
    )
