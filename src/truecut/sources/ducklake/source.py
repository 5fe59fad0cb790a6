"""The driver's side: what history there is, and which tasks read a window or a seed of it.

Metadata only, in few queries however many snapshots a window holds. A DuckDB-file catalog is not even
opened when neither it nor its write-ahead log has changed since the last look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truecut.errors import ExitCode, Fault, TruecutError
from truecut.lake import LakeAddress
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import Observation, ReadTask, TableRead, Window, WindowLimits
from truecut.sources.ducklake import catalog, history, schema
from truecut.sources.ducklake.attach import Lake, attached, connection
from truecut.sources.ducklake.catalog import ColumnVersion, Snapshot, TableVersion, Weight
from truecut.sources.ducklake.tasks import DifferenceTask, FeedTask, SeedTask

HISTORY_GONE = "TC2010"

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """One table of a window, as far as the catalog has told."""

    table: TableRead
    after: int
    modes: frozenset[Mode]
    versions: Sequence[TableVersion]
    columns: Sequence[ColumnVersion]
    weights: Sequence[Weight]

    def at(self, snapshot: int) -> TableVersion | None:
        return next((version for version in self.versions if version.covers(snapshot)), None)

    @property
    def start(self) -> TableVersion | None:
        return self.at(self.after)


class DuckLakeSource:
    """A DuckLake whose snapshots are read as a change log. `generation` is that of all its positions."""

    def __init__(self, address: LakeAddress, *, generation: int) -> None:
        self._address = address
        self._generation = generation
        self._seen: tuple[Stamp, Observation] | None = None

    def observe(self) -> Observation:
        """Identity and bounds of the history."""
        stamp = self._stamp()
        if self._seen is not None and stamp is not None and self._seen[0] == stamp:
            return self._seen[1]
        with connection() as own, attached(self._address, own) as lake:
            identity = catalog.identity(lake)
            oldest, head, head_ms = catalog.bounds(lake)
        seen = Observation(identity, self._position(oldest), self._position(head), head_ms)
        self._seen = None if stamp is None else (stamp, seen)
        return seen

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """The table's schema at a position."""
        with connection() as own, attached(self._address, own) as lake:
            found = self._describe(lake, table, at.place)
        if isinstance(found, Fault):
            raise TruecutError(
                found.code, found.message, fix=found.fix, retry=found.retry, exit_code=ExitCode.WRONG_INPUT
            )
        return found

    def plan_window(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: Position,
        limits: WindowLimits,
        parallelism: int,
    ) -> Window:
        """The changes of each table after its own position, up to a common end."""
        with connection() as own, attached(self._address, own) as lake:
            first = min((after.place for _, after, _ in tables.values()), default=upto_max.place)
            surviving = catalog.snapshots(lake, after=first - 1)
            known = [
                self._known(lake, table, after.place, modes, upto_max.place)
                for table, after, modes in tables.values()
            ]
            upto = self._end(known, surviving, upto_max=upto_max.place, limits=limits)
            schemas: dict[TableName, TableSchema] = {}
            faults: dict[TableName, Fault] = {}
            tasks: list[ReadTask] = []
            for one in known:
                found = self._continues(one, surviving, upto)
                if isinstance(found, Fault):
                    faults[one.table.name] = found
                else:
                    schemas[one.table.name] = found
                    tasks += self._tasks(lake, one, found, surviving, upto, parallelism)
        rows = sum(w.rows for one in known for w in one.weights if w.snapshot <= upto)
        committed = {snapshot.id: snapshot.committed_at_ms for snapshot in surviving}
        return Window(self._position(upto), committed.get(upto, 0), tasks, schemas, rows, faults)

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """The tables' whole content at `at`."""
        schemas: dict[TableName, TableSchema] = {}
        faults: dict[TableName, Fault] = {}
        tasks: list[ReadTask] = []
        rows = 0
        with connection() as own, attached(self._address, own) as lake:
            pinned = [s for s in catalog.snapshots(lake, after=at.place - 1) if s.id == at.place]
            if not pinned:
                raise _error(self._gone(None, at.place))
            for table in tables:
                found = self._describe(lake, table, at.place)
                if isinstance(found, Fault):
                    faults[table.name] = found
                    continue
                schemas[table.name] = found
                version = _covering(catalog.table_versions(lake, table.name), at.place)
                assert version is not None
                rows += catalog.live_rows(lake, version.id, at=at.place)
                tasks += self._seed_tasks(lake, schema.Shape(table, found), at.place, parallelism)
        return Window(at, pinned[0].committed_at_ms, tasks, schemas, rows, faults)

    # --- a window -------------------------------------------------------------------------------------

    def _known(
        self, lake: Lake, table: TableRead, after: int, modes: frozenset[Mode], upto_max: int
    ) -> _Known:
        versions = catalog.table_versions(lake, table.name)
        start = _covering(versions, after)
        if start is None:
            return _Known(table, after, modes, versions, (), ())
        return _Known(
            table,
            after,
            modes,
            versions,
            catalog.column_versions(lake, start.id),
            catalog.weights(lake, start.id, after=after, upto=upto_max),
        )

    def _end(
        self, known: Sequence[_Known], surviving: Sequence[Snapshot], *, upto_max: int, limits: WindowLimits
    ) -> int:
        """The last snapshot of the window: within limits, beyond every table's place."""
        newest = max((one.after for one in known), default=upto_max)
        ids = [snapshot.id for snapshot in surviving if newest < snapshot.id <= upto_max]
        if not ids:
            return upto_max
        weights: dict[int, tuple[int, int]] = {}
        for weight in (weight for one in known for weight in one.weights):
            place = max(weight.snapshot, ids[0])  # what lies before the first possible end comes with it
            rows, size = weights.get(place, (0, 0))
            weights[place] = (rows + weight.rows, size + weight.size_bytes)
        end = history.cut(ids, weights, at_least=ids[0], limits=limits)
        # Everything up to the drop of a table is delivered before the drop is reported.
        drops = [one.start.end - 1 for one in known if one.start is not None and one.start.end is not None]
        before_drop = [history.last_at_or_before(ids, drop) for drop in drops if newest < drop < end]
        return min([end, *(place for place in before_drop if place is not None)])

    def _continues(self, one: _Known, surviving: Sequence[Snapshot], upto: int) -> TableSchema | Fault:
        """The table's schema at the window's end, or why it has to be held."""
        ids = {snapshot.id for snapshot in surviving}
        if one.after not in ids or upto not in ids:
            return self._gone(one.table, one.after if one.after not in ids else upto)
        now = one.at(upto)
        if one.start is None or now is None:
            return schema.missing(one.table, at=str(self._position(one.after if now else upto)))
        if now.uuid != one.start.uuid:
            return schema.replaced(one.table, after=str(self._position(one.after)))
        found = schema.schema_at(now, one.columns, at=upto)
        return schema.fault_in(one.table, found) or found

    def _tasks(
        self,
        lake: Lake,
        one: _Known,
        found: TableSchema,
        surviving: Sequence[Snapshot],
        upto: int,
        parallelism: int,
    ) -> Sequence[ReadTask]:
        start = one.start
        assert start is not None
        since = [snapshot for snapshot in surviving if snapshot.id > one.after]
        steps = history.steps(since, table_id=start.id, after=one.after, upto=upto)
        if not steps:
            return ()

        def versions(after: int, upto: int) -> tuple[schema.Version, ...]:
            """Where differences end: only an append table needs to see each step."""
            places = (after, *_within(steps, after, upto)) if "append" in one.modes else (after, upto)
            return self._versions(one, found, places)

        shape = schema.Shape(one.table, found)
        if self._feed_is_exact(one, found, since):
            weights = [weight for weight in one.weights if weight.snapshot <= upto]
            pieces = history.split(weights, after=one.after, upto=upto, parallelism=parallelism)
            return [
                FeedTask(self._address, shape, start.id, versions(a, b))
                for a, b in pieces
                if _within(steps, a, b)
            ]
        rows = max(catalog.live_rows(lake, start.id, at=at) for at in (one.after, upto))
        buckets = history.buckets(rows)
        compared = versions(one.after, upto)
        return [DifferenceTask(self._address, shape, compared, n, buckets) for n in range(buckets)]

    def _feed_is_exact(self, one: _Known, found: TableSchema, since: Sequence[Snapshot]) -> bool:
        start = one.start
        assert start is not None
        hidden = history.FEED_COLUMNS & {name.lower() for name in found.names}
        return not hidden and history.feed_is_exact(since, table_id=start.id, after=one.after)

    def _versions(self, one: _Known, want: TableSchema, places: Sequence[int]) -> tuple[schema.Version, ...]:
        start = one.start
        assert start is not None
        return tuple(
            schema.Version(at, schema.projection(schema.schema_at(start, one.columns, at=at), want))
            for at in places
        )

    # --- a seed ---------------------------------------------------------------------------------------

    def _seed_tasks(self, lake: Lake, shape: schema.Shape, at: int, parallelism: int) -> Sequence[ReadTask]:
        files = catalog.data_files(lake, shape.table.name, at=at)
        shares = history.share(files, parallelism)
        version = schema.Version(at, schema.projection(shape.schema, shape.schema))
        paths = tuple(path for path, _ in files)
        return [
            SeedTask(self._address, shape, version, paths, mine, n == 0, n, len(shares))
            for n, mine in enumerate(shares)
        ]

    # --- leaves ---------------------------------------------------------------------------------------

    def _describe(self, lake: Lake, table: TableRead, at: int) -> TableSchema | Fault:
        version = _covering(catalog.table_versions(lake, table.name), at)
        if version is None:
            return schema.missing(table, at=str(self._position(at)))
        found = schema.schema_at(version, catalog.column_versions(lake, version.id), at=at)
        return schema.fault_in(table, found) or found

    def _gone(self, table: TableRead | None, place: int) -> Fault:
        what = "the source" if table is None else str(table.name)
        return Fault(
            HISTORY_GONE,
            f"{what}: the source no longer has the snapshot of {self._position(place)}; it was expired",
            "Resume the table: a mirror is then seeded anew. Keep snapshots longer than a sink may lag.",
        )

    def _position(self, place: int) -> Position:
        return Position(self._generation, place)

    def _stamp(self) -> Stamp | None:
        """What changes whenever a DuckDB-file catalog does; None where the file cannot tell."""
        if self._address.kind != "duckdb":
            return None
        path = self._address.target.reveal()
        stamp = (_file_stamp(path), _file_stamp(path + ".wal"))
        return None if stamp[0] is None else stamp


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _covering(versions: Sequence[TableVersion], at: int) -> TableVersion | None:
    return next((version for version in versions if version.covers(at)), None)


def _within(steps: Sequence[int], after: int, upto: int) -> tuple[int, ...]:
    """The steps of a piece, ending exactly at its end."""
    inside = [step for step in steps if after < step <= upto]
    return tuple(inside if not inside or inside[-1] == upto else [*inside, upto])


def _error(fault: Fault) -> TruecutError:
    return TruecutError(fault.code, fault.message, fix=fault.fix, retry=fault.retry)
