"""Which connector serves which `type:` of source."""

from __future__ import annotations

from typing import cast

from truecut.config.kinds import SOURCES, CapturedKind
from truecut.config.settings import SourceSettings
from truecut.errors import require
from truecut.sources.captured import Captured
from truecut.sources.contract import Source, Survey


def open_source(settings: SourceSettings, *, generation: int) -> Source:
    """The source behind the settings; `generation` is that of all its positions."""
    return SOURCES[settings.type].open(settings, generation=generation)


def survey_source(settings: SourceSettings, *, generation: int = 1) -> Survey:
    """The same, for those who only look."""
    return SOURCES[settings.type].survey(settings, generation=generation)


def captured_source(settings: SourceSettings) -> Captured:
    """The same, for capture and the backfill."""
    kind = SOURCES[settings.type]
    require(kind.captured, "only a source that keeps no history of its own is captured")
    return cast(CapturedKind, kind).capturing(settings)
