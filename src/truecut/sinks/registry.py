"""Which connector serves which `type:` of sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truecut.config.kinds import SINKS
from truecut.config.settings import SinkSettings
from truecut.sinks.contract import Sink, SinkLook


def open_sink(settings: SinkSettings, *, pipeline: str) -> Sink[Any]:
    """The sink behind the settings: executors load only the connector that they need."""
    return SINKS[settings.type].open(settings, pipeline=pipeline)


def look_at_sinks(sinks: Sequence[SinkSettings], *, pipeline: str) -> dict[str, SinkLook]:
    """What stands at all of these sinks, by name; each kind is asked once."""
    looks: dict[str, SinkLook] = {}
    for kind in sorted({sink.type for sink in sinks}):
        looks |= SINKS[kind].look([sink for sink in sinks if sink.type == kind], pipeline=pipeline)
    return looks
