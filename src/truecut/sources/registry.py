"""Which connector serves which `type:` of source."""

from __future__ import annotations

from truecut.config.kinds import SOURCES
from truecut.config.settings import SourceSettings
from truecut.sources.contract import Source, Survey


def open_source(settings: SourceSettings, *, generation: int) -> Source:
    """The source behind the settings; `generation` is that of all its positions."""
    return SOURCES[settings.type].open(settings, generation=generation)


def survey_source(settings: SourceSettings, *, generation: int = 1) -> Survey:
    """The same, for those who only look."""
    return SOURCES[settings.type].survey(settings, generation=generation)
