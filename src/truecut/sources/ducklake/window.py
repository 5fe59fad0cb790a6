"""Planning a window: where it ends, which tables continue to its end, which tasks read it.

Called on the driver with an attached lake; asks for metadata only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from truecut.errors import Fault, Retry
from truecut.lake import LakeAddress
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.sources.contract import ReadTask, TableRead, Window, WindowLimits
from truecut.sources.ducklake import catalog, files, history, schema, widening
from truecut.sources.ducklake.attach import Lake
from truecut.sources.ducklake.catalog import ColumnVersion, Naming, Snapshot, TableVersion
from truecut.sources.ducklake.files import Weight
from truecut.sources.ducklake.tasks import DifferenceTask, FeedTask

HISTORY_GONE = "TC2010"
HISTORY_DAMAGED = "TC2011"
SNAPSHOTS_MAX = 10_000  # of one window: who is further behind gets several
SEED_DAMAGED = "TC3026"
ROWS_MIXED_UP = "TC2027"


@dataclass(frozen=True, slots=True)
class Known:
    """One table of a window, as far as the catalog has told."""

    table: TableRead
    after: int
    modes: frozenset[Mode]
    versions: Sequence[TableVersion]
    start: TableVersion | None = None  # what stood under the name at `after`, since it was made
    namings: Sequence[Naming] = ()
    columns: Sequence[ColumnVersion] = ()
    weights: Sequence[Weight] = ()
    damaged: Sequence[range] = ()  # where it cannot be read
    maintained: bool = True
    mixed_up: Fault | None = None

    def is_damaged(self, snapshot: int) -> bool:
        return any(snapshot in span for span in self.damaged)

    def schema_at(self, snapshot: int) -> TableSchema:
        assert self.start is not None
        return schema.schema_at(self.start, self.columns, at=snapshot)

    def name_at(self, snapshot: int) -> TableName:
        """A table that was renamed and got its name back is read under each of its names."""
        return next(one.name for one in self.namings if one.covers(snapshot))

    def ever_had(self, names: frozenset[str]) -> bool:
        """Whether a column of the table was ever called so: in older versions it still is."""
        return not names.isdisjoint(column.name.lower() for column in self.columns if column.parent is None)


@dataclass(frozen=True, slots=True)
class WindowPlanner:
    """One look at the catalog, from which one window is planned."""

    lake: Lake
    address: LakeAddress
    generation: int
    parallelism: int

    def plan(
        self,
        tables: Mapping[TableName, tuple[TableRead, Position, frozenset[Mode]]],
        *,
        upto_max: int,
        limits: WindowLimits,
    ) -> Window:
        """Changes of each table after its own place, up to a common end."""
        places = [after.place for _, after, _ in tables.values()] or [upto_max]
        earliest = 0 if limits.not_before is None else limits.not_before.place
        surviving, last = catalog.snapshots_behind(
            self.lake, after=min(places) - 1, beyond=max(*places, earliest), count_max=SNAPSHOTS_MAX
        )
        upto_max = min(upto_max, last)
        known = [self._look(table, after.place, modes, upto_max) for table, after, modes in tables.values()]
        upto = window_end(known, surviving, upto_max=upto_max, limits=limits)
        schemas: dict[TableName, TableSchema] = {}
        faults: dict[TableName, Fault] = {}
        altered: set[TableName] = set()
        tasks: list[ReadTask] = []
        for one in known:
            found = self._continues(one, surviving, upto)
            if isinstance(found, Fault):
                faults[one.table.name] = found
            else:
                schemas[one.table.name] = found
                if found != one.schema_at(one.after):
                    altered.add(one.table.name)
                tasks += self._tasks(one, found, surviving, upto)
        rows = sum(w.rows for one in known for w in one.weights if w.snapshot <= upto)
        committed = {snapshot.id: snapshot.committed_at_ms for snapshot in surviving}
        lost = frozenset(name for name, fault in faults.items() if fault.retry is Retry.GAP)
        return Window(
            self._position(upto),
            committed.get(upto, 0),
            tasks,
            schemas,
            rows,
            faults,
            frozenset(altered),
            lost,
        )

    def _look(self, table: TableRead, after: int, modes: frozenset[Mode], upto_max: int) -> Known:
        versions = catalog.table_versions(self.lake, table.name)
        start = catalog.covering(versions, after)
        if start is None:
            return Known(table, after, modes, versions)
        columns = catalog.column_versions(self.lake, start.id)
        namings = catalog.namings(self.lake, start.id)
        start = replace(start, begin=namings[0].begin)
        mixed = mixed_up(self.lake, self.address, table.name, start.id, columns)
        return Known(
            table,
            after,
            modes,
            versions,
            start,
            namings,
            columns,
            () if mixed else files.weights(self.lake, start.id, after=after, upto=upto_max),
            unreadable(self.lake, start.id, columns),
            files.maintained(self.lake, start, after=after),
            mixed,
        )

    def _continues(self, one: Known, surviving: Sequence[Snapshot], upto: int) -> TableSchema | Fault:
        """The table's schema at the window's end, or why it has to be held."""
        ids = {snapshot.id for snapshot in surviving}
        for place in (one.after, upto):
            if place not in ids:
                return gone(str(one.table.name), at=self._position(place))
        # Where each change counts, those of a snapshot that cannot be read would come with the next one.
        every = sorted(ids) if needs_each_change(one.modes) else ()
        for place in (one.after, *(place for place in every if one.after < place < upto), upto):
            if one.is_damaged(place):
                return _damaged(str(one.table.name), at=self._position(place))
        now = catalog.covering(one.versions, upto)
        if one.start is None or now is None:
            return schema.missing(one.table, at=str(self._position(upto if now is None else one.after)))
        if now.uuid != one.start.uuid:
            return schema.replaced(one.table, after=str(self._position(one.after)))
        found = one.schema_at(upto)
        after = str(self._position(one.after))
        return (
            one.mixed_up
            or schema.fault_in(one.table, found)
            or schema.displaced(one.table, one.schema_at(one.after), found, after=after)
            or widening.revalued(one.table, one.columns, one.schema_at(one.after), found, after=after)
            or found
        )

    def _tasks(
        self, one: Known, found: TableSchema, surviving: Sequence[Snapshot], upto: int
    ) -> Sequence[ReadTask]:
        assert one.start is not None
        since = [snapshot for snapshot in surviving if snapshot.id > one.after]
        steps = [
            step
            for step in history.steps(since, table_id=one.start.id, after=one.after, upto=upto)
            if step == upto or not one.is_damaged(step)
        ]
        if not steps:
            return ()
        shape = schema.Shape(one.table, found, not one.ever_had(frozenset({history.FILE_COLUMN})))
        numbered = needs_each_change(one.modes)
        if not one.ever_had(history.FEED_COLUMNS) and history.feed_is_exact(
            since, table_id=one.start.id, after=one.after, maintained=one.maintained
        ):
            weights = [weight for weight in one.weights if weight.snapshot <= upto]
            pieces = history.split(weights, after=one.after, upto=upto, parallelism=self.parallelism)
            return [
                FeedTask(
                    self.address,
                    shape,
                    one.start,
                    versions(one, found, _within(steps, a, b), after=a),
                    numbered,
                    history.only_inserts(since, table_id=one.start.id, after=a, upto=b),
                )
                for a, b in pieces
                if any(a < step <= b for step in steps)
            ]
        rows = max(files.live_rows(self.lake, one.start.id, at=at) for at in (one.after, upto))
        compared = versions(one, found, _within(steps, one.after, upto), after=one.after)
        buckets = history.buckets(rows)
        return [
            DifferenceTask(self.address, shape, one.start, compared, numbered, bucket, buckets)
            for bucket in range(buckets)
        ]

    def _position(self, place: int) -> Position:
        return Position(self.generation, place)


def window_end(
    known: Sequence[Known], surviving: Sequence[Snapshot], *, upto_max: int, limits: WindowLimits
) -> int:
    """The last snapshot of the window: within limits, beyond every table's place, readable."""
    newest = max((one.after for one in known), default=upto_max)
    earliest = 0 if limits.not_before is None else limits.not_before.place
    possible = [s.id for s in surviving if newest < s.id <= upto_max and s.id >= earliest]
    # A damaged end would hold a table that can go on from a later one.
    ids = [place for place in possible if not any(one.is_damaged(place) for one in known)] or possible
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
    before_drop = [history.last_at_or_before(ids, drop) for drop in drops if drop < end]
    return min([end, *(place for place in before_drop if place is not None)])


def needs_each_change(modes: frozenset[Mode]) -> bool:
    """Whether some sink keeps every change as a row of its own, instead of the latest of each key."""
    return "append" in modes


def versions(
    one: Known, want: TableSchema, steps: Sequence[int], *, after: int
) -> tuple[schema.Version, ...]:
    """Where differences begin and end: not at each step, unless each change counts."""
    places = (after, *steps) if needs_each_change(one.modes) else (after, steps[-1])
    return tuple(
        schema.Version(at, one.name_at(at), schema.projection(one.schema_at(at), want)) for at in places
    )


def gone(what: str, *, at: Position) -> Fault:
    """A snapshot that was expired."""
    return Fault(
        HISTORY_GONE,
        f"{what}: the source no longer has the snapshot of {at}; it was expired",
        "Resume the table: a mirror is then seeded anew. Keep snapshots longer than a sink may lag.",
        Retry.GAP,
    )


def _damaged(what: str, *, at: Position) -> Fault:
    return Fault(
        HISTORY_DAMAGED,
        f"{what}: maintenance at the source (a rewrite, then a flush) spoilt the snapshot of {at}, and a "
        "column filename or file_row_number of the table hides by what its rows could still be told apart",
        "Resume the table: a mirror is then seeded anew. Rename the column, or flush inlined data before "
        "rewriting files.",
        Retry.GAP,
    )


def unreadable_seed(what: str, *, at: Position) -> Fault:
    """The same for a seed, which has no other place to begin at."""
    return Fault(
        SEED_DAMAGED,
        f"{what}: maintenance at the source (a rewrite, then a flush) spoilt the snapshot of {at}, and a "
        "column filename or file_row_number of the table hides by what its rows could still be told apart",
        "Rename the column, or rewrite the table's files; then resume the table.",
    )


def unreadable(lake: Lake, table_id: int, columns: Sequence[ColumnVersion]) -> Sequence[range]:
    """The snapshots at which the table cannot be read: only where its own columns are in the way."""
    names = {column.name.lower() for column in columns if column.parent is None}
    hidden = names & {history.FILE_COLUMN, history.ROW_COLUMN}
    return files.damaged(lake, table_id) if hidden else ()


def mixed_up(
    lake: Lake, address: LakeAddress, name: TableName, table_id: int, columns: Sequence[ColumnVersion]
) -> Fault | None:
    """Why the extension itself takes rows of the table for others, if so: by SQLite's own number of a row, of
    which a column of that name takes the place."""
    names = {column.name.lower() for column in columns if column.parent is None}
    if address.kind != "sqlite" or "rowid" not in names or not files.inlined_in_sqlite(lake, table_id):
        return None
    return Fault(
        ROWS_MIXED_UP,
        f"{name}: the SQLite catalog holds rows of it, and its column rowid takes the place of SQLite's own: "
        "the extension itself mixes such rows up, and loses some",
        "Set data_inlining_row_limit to 0 at the source, write the table anew (CREATE OR REPLACE TABLE … AS "
        "FROM …) and compare its rows with what they should be; then resume it.",
    )


def _within(steps: Sequence[int], after: int, upto: int) -> tuple[int, ...]:
    """The steps of a piece, ending exactly at its end."""
    inside = [step for step in steps if after < step <= upto]
    return tuple(inside if inside and inside[-1] == upto else [*inside, upto])
