"""Where the source stands now, for whoever asks about a pipeline that nobody runs. Without Spark.

A pipeline that was caught up when it stopped is still, if the source has not moved since; otherwise each sink
lags since the first commit that it lacks. Nothing is written, at the source or in the control store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from truecut.config.settings import Pipeline
from truecut.errors import Fault, TruecutError
from truecut.model.position import Position
from truecut.runtime.control import Reports
from truecut.runtime.control_readonly import Known, peek
from truecut.runtime.head_times import Heads
from truecut.sources.contract import Observation, Survey
from truecut.sources.registry import survey_source


@dataclass(frozen=True, slots=True)
class Standing:
    """The source as it was found, or why it was not."""

    seen: Observation | None
    fault: Fault | None = None
    heads: Heads = field(default_factory=Heads)
    settled: frozenset[Position] = frozenset()  # places behind which nothing is of any table

    def lag_ms(self, place: Position | None, *, now_ms: int) -> int | None:
        """Since when somebody who stands there lacks something; 0: it lacks nothing; None: nobody knows."""
        if self.seen is None or place is None:
            return None
        if place >= self.seen.head or place in self.settled:
            return 0
        since_ms = self.heads.first_after(place) if place >= self.seen.oldest else None
        return None if since_ms is None else max(0, now_ms - since_ms)


def look(pipeline: Pipeline, reports: Reports) -> Standing:
    """Look at the source, from where the furthest behind of the copies stands."""
    told = [copy for report in reports.sinks.values() for copy in report.get("tables", {}).values()]
    places = [Position.parse(copy["at"]) for copy in told if copy["status"] == "streaming"]
    try:
        known = peek(pipeline.control, pipeline=pipeline.name)
        return _observe(pipeline, known, places)
    except TruecutError as error:
        return Standing(None, error.fault)


def _observe(pipeline: Pipeline, known: Known, places: list[Position]) -> Standing:
    first = survey_source(pipeline.source).observe()
    generation = known.generation(first.identity, at_least=1)
    survey = survey_source(pipeline.source, generation=generation)
    seen = first if generation == first.head.generation else survey.observe()
    heads = Heads()
    after = min((place for place in places if place >= seen.oldest), default=seen.head)
    for place, committed_at_ms in survey.commits(after=after, seen=seen) if after < seen.head else ():
        heads.add(place, committed_at_ms)
    untold = {place for place in places if seen.oldest <= place < seen.head and not heads.first_after(place)}
    return Standing(
        seen, None, heads, frozenset(at for at in untold if not _lacks(pipeline, survey, at, seen))
    )


def _lacks(pipeline: Pipeline, survey: Survey, at: Position, seen: Observation) -> bool:
    return any(survey.outstanding(one.name, after=at, seen=seen).transactions for one in pipeline.tables)
