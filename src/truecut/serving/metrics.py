"""The metrics of a run, in Prometheus' words: base units, `_total` on counters, labels pipeline, sink, table.

Made from the runner's view when somebody asks. Counters are those of this process; `truecut status` has the
totals of all runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from truecut.runtime.run_report import SinkView, View

STATES = ("current", "behind", "backfilling", "paused", "failed")
VERDICTS = ("pass", "fail", "unknown")
_SINK = ("pipeline", "sink")
_TABLE = ("pipeline", "table")
_COPY = ("pipeline", "sink", "table")


class RunMetrics(Collector):
    """What one runner shows of itself; `view` is None until its loop has turned."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.view: View | None = None

    def text(self) -> bytes:
        """The page."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        yield _gauge("truecut_up", "The process runs.", ("pipeline",), [((self._pipeline,), 1)])
        view = self.view
        if view is not None:
            lines = list(view.sinks.values())  # replaced as a whole by the loop, never changed
            yield from self._of_source(view)
            yield from self._of_sinks(lines)
            yield from self._of_copies(view, lines)
            yield from self._of_verification(view)

    def _of_source(self, view: View) -> Iterator[Metric]:
        up = float(view.source_fault is None and view.head is not None)
        yield self._one("truecut_source_up", "The last look at the source was answered.", up)
        if view.head is not None:
            yield self._one("truecut_source_head", "The place of the source's head.", float(view.head.place))
        if view.seen_at_ms is not None:
            help_text = "When the source was last seen, in seconds since 1970."
            yield self._one("truecut_source_seen_timestamp_seconds", help_text, view.seen_at_ms / 1000)
        if view.retained_bytes is not None:
            help_text = "What the source keeps of its log for us."
            yield self._one("truecut_source_retained_bytes", help_text, float(view.retained_bytes))
        store = float(view.control_fault is None)
        yield self._one("truecut_control_store_up", "The control store answers.", store)
        yield self._one("truecut_seeds_running", "Seeds that run now.", float(len(view.seeds)))

    def _of_sinks(self, lines: Sequence[SinkView]) -> Iterator[Metric]:
        lags = [
            ((self._pipeline, line.name), line.lag_ms / 1000) for line in lines if line.lag_ms is not None
        ]
        yield _gauge(
            "truecut_sink_lag_seconds", "Since when the sink lacks something; 0: nothing.", _SINK, lags
        )
        failed = [((self._pipeline, line.name), float(line.state == "failed")) for line in lines]
        yield _gauge("truecut_sink_failed", "The sink failed, or holds a table.", _SINK, failed)
        counts = [((self._pipeline, s), float(sum(line.state == s for line in lines))) for s in STATES]
        yield _gauge("truecut_sinks", "This runner's sinks by state.", ("pipeline", "state"), counts)

    def _of_copies(self, view: View, lines: Sequence[SinkView]) -> Iterator[Metric]:
        copies = [(line.name, table, copy) for line in lines for table, copy in line.tables.items()]
        rows = CounterMetricFamily("truecut_rows_applied", "Rows written, puts and deletes.", labels=_COPY)
        for sink, table, copy in copies:
            rows.add_metric([self._pipeline, sink, table], copy["rows_applied"])
        yield rows
        lags = [
            ((self._pipeline, sink, table), lag_ms / 1000)
            for (table, sink), lag_ms in view.certified_lag_ms.items()
        ]
        help_text = "Since when the copy lacks something, or holds what is not certified; 0: neither."
        yield _gauge("truecut_certified_lag_seconds", help_text, _COPY, lags)
        held: dict[str, int] = {}
        for _, table, copy in copies:
            held[table] = held.get(table, 0) + (copy["status"] == "held")
        values = [((self._pipeline, table), float(count)) for table, count in held.items()]
        yield _gauge("truecut_copies_held", "Sinks at which the table is held.", _TABLE, values)
        unrouted = CounterMetricFamily(
            "truecut_rows_unrouted", "Rows that matched no sink, in all runs.", labels=_TABLE
        )
        for name in (str(table.name) for table in view.pipeline.tables):
            unrouted.add_metric([self._pipeline, name], view.unrouted.get(name, 0))
        yield unrouted

    def _of_verification(self, view: View) -> Iterator[Metric]:
        """Of all copies, whoever has looked at them."""
        found = list(view.verified.values())
        now_ms = view.wall_ms()
        ages = [
            ((self._pipeline, one.sink, one.table), max(0, now_ms - one.passed_at_ms) / 1000)
            for one in found
            if one.passed_at_ms is not None
        ]
        yield _gauge("truecut_verified_age_seconds", "Since the copy has passed verification.", _COPY, ages)
        verdicts = [
            ((self._pipeline, one.sink, one.table, word), float(one.verdict == word))
            for one in found
            for word in VERDICTS
        ]
        help_text = "1 for what the last verification of the copy has found."
        yield _gauge("truecut_verification", help_text, (*_COPY, "verdict"), verdicts)

    def _one(self, name: str, help_text: str, value: float) -> Metric:
        return _gauge(name, help_text, ("pipeline",), [((self._pipeline,), value)])


def _gauge(
    name: str, help_text: str, labels: Sequence[str], values: Sequence[tuple[Sequence[str], float]]
) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for of_labels, value in values:
        family.add_metric(list(of_labels), value)
    return family
