"""The driver's side: what history there is, and which tasks read a window or a seed of it.

Metadata only, in few queries however many snapshots a window holds. A catalog that is a file is not even
opened when neither it nor its write-ahead log has changed since the last look (SQLite: once a second).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from truecut.errors import ExitCode, Fault, TruecutError
from truecut.lake import LakeAddress
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import Observation, ReadTask, TableRead, Window, WindowLimits
from truecut.sources.ducklake import catalog, files, history, schema
from truecut.sources.ducklake.attach import Lake, attached, connection, one_view
from truecut.sources.ducklake.stamp import Stamp, stamp_of
from truecut.sources.ducklake.tasks import SeedTask
from truecut.sources.ducklake.window import WindowPlanner, gone, mixed_up, unreadable, unreadable_seed

LOOK_S = 1.0  # whatever a file's time says: file systems across a network may be late to tell


class DuckLakeSource:
    """A DuckLake whose snapshots are read as a change log. `generation` is that of all its positions."""

    def __init__(self, address: LakeAddress, *, generation: int) -> None:
        self._address = address
        self._generation = generation
        self._seen: tuple[Stamp, float, Observation] | None = None  # when, by our own clock

    def observe(self) -> Observation:
        """Identity and bounds of the history."""
        stamp, now = stamp_of(self._address), time.monotonic()
        if self._seen is not None and self._seen[0] == stamp and now < self._seen[1] + self._look_s():
            return self._seen[2]
        with connection() as own, attached(self._address, own) as lake, one_view(lake):
            identity = catalog.identity(lake)
            oldest, head, head_ms = catalog.bounds(lake)
        seen = Observation(identity, self._position(oldest), self._position(head), head_ms)
        self._seen = None if stamp is None else (stamp, now, seen)
        return seen

    def describe(self, table: TableRead, *, at: Position) -> TableSchema:
        """The table's schema at a position."""
        with connection() as own, attached(self._address, own) as lake:
            found = self._describe(lake, table, at.place)
        if isinstance(found, Fault):
            raise TruecutError.of(found, ExitCode.WRONG_INPUT)
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
        with connection() as own, attached(self._address, own) as lake, one_view(lake):
            planner = WindowPlanner(lake, self._address, self._generation, parallelism)
            window = planner.plan(tables, upto_max=upto_max.place, limits=limits)
            return replace(window, identity=catalog.identity(lake))

    def plan_seed(self, tables: Sequence[TableRead], *, at: Position, parallelism: int) -> Window:
        """The tables' whole content at `at`."""
        schemas: dict[TableName, TableSchema] = {}
        faults: dict[TableName, Fault] = {}
        tasks: list[ReadTask] = []
        rows = 0
        with connection() as own, attached(self._address, own) as lake:
            pinned = [s for s in catalog.snapshots(lake, after=at.place - 1) if s.id == at.place]
            if not pinned:
                raise TruecutError.of(gone("the seed", at=at))
            for table in tables:
                found = self._seedable(lake, table, at)
                if isinstance(found, Fault):
                    faults[table.name] = found
                    continue
                schemas[table.name] = found
                table_id = self._table_id(lake, table, at.place)
                rows += files.live_rows(lake, table_id, at=at.place)
                tasks += self._seed_tasks(lake, schema.Shape(table, found), table_id, at.place, parallelism)
            identity = catalog.identity(lake)
        return Window(at, pinned[0].committed_at_ms, tasks, schemas, rows, faults, identity=identity)

    # --- leaves ---------------------------------------------------------------------------------------

    def _seed_tasks(
        self, lake: Lake, shape: schema.Shape, table_id: int, at: int, parallelism: int
    ) -> Sequence[ReadTask]:
        listed = files.data_files(lake, shape.table.name, at=at)
        paths = tuple(path for path, _ in listed)
        # Without the virtual column (a user's column hides it) there is no telling files apart.
        alone = history.FILE_COLUMN in {name.lower() for name in shape.schema.names}
        shares = history.share(sorted(set(listed)), 1 if alone else parallelism)
        version = schema.Version(at, shape.table.name, schema.projection(shape.schema, shape.schema))
        return [
            SeedTask(self._address, shape, version, paths, mine, n == 0, n, len(shares), table_id)
            for n, mine in enumerate(shares)
        ]

    def _describe(self, lake: Lake, table: TableRead, at: int) -> TableSchema | Fault:
        version = catalog.covering(catalog.table_versions(lake, table.name), at)
        if version is None:
            there = catalog.table_names(lake, at)
            return schema.missing(table, at=str(self._position(at)), there=there)
        found = schema.schema_at(version, catalog.column_versions(lake, version.id), at=at)
        return schema.fault_in(table, found) or found

    def _seedable(self, lake: Lake, table: TableRead, at: Position) -> TableSchema | Fault:
        found = self._describe(lake, table, at.place)
        if isinstance(found, Fault):
            return found
        table_id = self._table_id(lake, table, at.place)
        columns = catalog.column_versions(lake, table_id)
        mixed = mixed_up(lake, self._address, table.name, table_id, columns)
        if mixed is not None:
            return mixed
        spoilt = unreadable(lake, table_id, columns)
        if any(at.place in span for span in spoilt):
            return unreadable_seed(str(table.name), at=at)
        return found

    def _table_id(self, lake: Lake, table: TableRead, at: int) -> int:
        version = catalog.covering(catalog.table_versions(lake, table.name), at)
        assert version is not None
        return version.id

    def _look_s(self) -> float:
        """A DuckDB file is opened for a reason only: while it is open, its writers are locked out."""
        return LOOK_S if self._address.shared else math.inf

    def _position(self, place: int) -> Position:
        return Position(self._generation, place)
