"""The source's tables as its metadata tells: whether they can be copied, how large they are, what changed.

Metadata only, read-only. Sizes and changes are estimates of the whole table, before routing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from truecut.config.settings import Pipeline, TableSettings
from truecut.errors import Fault, TruecutError
from truecut.lake import LakeAddress, identifier
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.runtime.look import patiently, without_trace
from truecut.sources.contract import Observation, TableRead
from truecut.sources.ducklake import DuckLakeSource, catalog, files
from truecut.sources.ducklake.attach import attached, connection


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table at the head. A fault says why it cannot be copied; then there are no sizes."""

    settings: TableSettings
    rows: int | None = None
    size_bytes: int | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str:
        return str(self.settings.name)


@dataclass(frozen=True, slots=True)
class Outstanding:
    """About how much a table has changed since a position."""

    snapshots: int
    changes: int
    size_bytes: int


def table_facts(pipeline: Pipeline, seen: Observation) -> list[TableFacts]:
    """Every table of the pipeline, in its order."""
    address = pipeline.source.address
    source = DuckLakeSource(address, generation=seen.head.generation)
    with without_trace(address):
        return [patiently(partial(_facts, pipeline, source, table, seen)) for table in pipeline.tables]


def outstanding(
    pipeline: Pipeline, seen: Observation, places: Iterable[tuple[str, Position]]
) -> dict[tuple[str, Position], Outstanding]:
    """What each (table, position) lacks up to the head: one query for each place, not for each sink."""
    wanted = sorted(set(places))
    with without_trace(pipeline.source.address):
        return patiently(lambda: {place: _since(pipeline, seen, *place) for place in wanted})


def key_counts(pipeline: Pipeline, table: TableSettings, seen: Observation) -> tuple[int, int]:
    """How many rows have NULL in their key at the head, and how many keys occur more than once."""
    address = pipeline.source.address
    with without_trace(address):
        return patiently(partial(_key_counts, address, table, seen.head.place))


def _key_counts(address: LakeAddress, table: TableSettings, at: int) -> tuple[int, int]:
    key = ", ".join(identifier(name) for name in table.key)
    any_null = " OR ".join(f"{identifier(name)} IS NULL" for name in table.key)
    with connection() as own, attached(address, own) as lake:
        parts = (lake.alias, table.name.schema, table.name.table)
        rows = f"{'.'.join(identifier(part) for part in parts)} AT (VERSION => {at})"
        counts = own.execute(
            f"""SELECT (SELECT count(*) FROM {rows} WHERE {any_null}),
                       (SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE NOT ({any_null})
                                              GROUP BY {key} HAVING count(*) > 1))"""
        ).fetchone()
    assert counts is not None
    return int(counts[0]), int(counts[1])


def _facts(pipeline: Pipeline, source: DuckLakeSource, table: TableSettings, seen: Observation) -> TableFacts:
    read = TableRead(table.name, table.key, table.route_by)
    address, at = pipeline.source.address, seen.head.place
    with connection() as own, attached(address, own) as lake:
        try:
            source.describe(read, at=seen.head)
        except TruecutError as error:
            return TableFacts(table, fault=error.fault)
        version = catalog.covering(catalog.table_versions(lake, table.name), at)
        assert version is not None, "described, so it is there"
        rows = files.live_rows(lake, version.id, at=at)
        size = sum(size for _, size in files.data_files(lake, table.name, at=at))
    return TableFacts(table, rows, size)


def _since(pipeline: Pipeline, seen: Observation, table: str, after: Position) -> Outstanding:
    with connection() as own, attached(pipeline.source.address, own) as lake:
        passed = [s for s in catalog.snapshots(lake, after=after.place) if s.id <= seen.head.place]
        version = catalog.covering(catalog.table_versions(lake, TableName.parse(table)), seen.head.place)
        if version is None:
            return Outstanding(len(passed), 0, 0)
        weights = files.weights(lake, version.id, after=after.place, upto=seen.head.place)
    return Outstanding(len(passed), sum(w.rows for w in weights), sum(w.size_bytes for w in weights))
