"""What travels to executors: pieces of a window or of a seed, read there through plain DuckDB.

Promises: a piece gives the same rows every time, in bounded memory (temporary tables spill to disk, a seed
is streamed), and the lake's owner is not locked out meanwhile. A FeedTask checks *after* reading that the
feed was to be believed while it read, and reads the difference of versions otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import pyarrow as pa

from truecut.errors import Retry, TruecutError
from truecut.lake import LakeAddress, identifier, literal
from truecut.model.change import (
    COMMITTED_AT,
    CONTROL_FIELDS,
    CONTROL_NAMES,
    OP,
    PLACE,
    READ,
    SEQ,
    first_of_reading,
)
from truecut.model.table import TableName
from truecut.sources.contract import Rows
from truecut.sources.ducklake import catalog, files, history, normal
from truecut.sources.ducklake.attach import Lake, connection, one_view, pinned
from truecut.sources.ducklake.catalog import TableVersion
from truecut.sources.ducklake.schema import Shape, Version

BATCH_ROWS = 65_536
NULL_KEY = "TC2007"
DUPLICATE_KEY = "TC2008"
FILES_CHANGED = "TC2009"


@dataclass(frozen=True, slots=True)
class DifferenceTask:
    """Differences of consecutive versions; this task has the keys of one of `buckets` buckets."""

    address: LakeAddress
    shape: Shape
    source: TableVersion
    versions: tuple[Version, ...]
    numbered: bool  # an append table reads it: each change has a number of its own
    bucket: int = 0
    buckets: int = 1

    @property
    def table(self) -> TableName:
        return self.shape.table.name

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.table,)

    def read(self) -> Iterator[Rows]:
        sql = normal.changes_sql(
            self.shape,
            numbered=self.numbered,
            first_seq=normal.first_seq(self.source.id),
            bucket=self.bucket,
            buckets=self.buckets,
        )
        with connection() as own, pinned(self.address, own) as lake:
            for old, new in pairwise(self.versions):
                keep_difference(lake, self, old, new)
                yield from (Rows(self.table, batch) for batch in batches(own, sql))


@dataclass(frozen=True, slots=True)
class FeedTask:
    """The change feed of `(after, upto]`, or the differences of `versions` where it cannot be believed."""

    address: LakeAddress
    shape: Shape
    source: TableVersion
    versions: tuple[Version, ...]  # the first is `after`, the last is `upto`
    numbered: bool  # an append table reads it: each change has a number of its own
    only_inserts: bool = False  # its snapshots say so: there are no rows of before

    @property
    def table(self) -> TableName:
        return self.shape.table.name

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.table,)

    def read(self) -> Iterator[Rows]:
        with connection() as own:
            with pinned(self.address, own) as lake:
                exact = keep_feed(lake, self)
            if exact:
                sql = normal.changes_sql(
                    self.shape, numbered=self.numbered, first_seq=normal.first_seq(self.source.id)
                )
                yield from (Rows(self.table, batch) for batch in batches(own, sql))
                return
        yield from self._differences().read()

    def _differences(self) -> DifferenceTask:
        return DifferenceTask(self.address, self.shape, self.source, self.versions, self.numbered)


@dataclass(frozen=True, slots=True)
class SeedTask:
    """READ rows of some of the files that hold the table at one version.

    `listed` are all of them, so that a change under way is noticed; `mine` are this task's. The task with
    `inlined` has what is in no file.
    """

    address: LakeAddress
    shape: Shape
    version: Version
    listed: tuple[str, ...]
    mine: tuple[str, ...]
    inlined: bool
    bucket: int
    buckets: int
    table_id: int

    @property
    def first_seq(self) -> int:
        """Where its numbers begin."""
        return first_of_reading(self.shape.table.reading, first=normal.first_seq(self.table_id))

    @property
    def table(self) -> TableName:
        return self.shape.table.name

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (self.table,)

    def read(self) -> Iterator[Rows]:
        with connection() as own, pinned(self.address, own) as lake:
            self._require_files(lake)
            for batch in batches(own, seed_sql(lake, self)):
                refuse_null_keys(self.shape, self.version.snapshot, batch)
                yield Rows(self.table, batch)
            self._require_files(lake)

    def _require_files(self, lake: Lake) -> None:
        # A file per task is exact only while all tasks see the same files.
        now = tuple(path for path, _ in files.data_files(lake, self.table, at=self.version.snapshot))
        if now != self.listed:
            raise TruecutError(
                FILES_CHANGED,
                f"{self.table}: the source was compacted while it was being read",
                fix="None needed: what was being read is read again.",
                retry=Retry.RETRYABLE,
            )


def first_wanted(after: int) -> int:
    """The feed's bounds are inclusive at both ends; ours are `(after, upto]`."""
    return after + 1


def before_sql(lake: Lake, table: TableName, expressions: tuple[str, ...], *, first: int, last: int) -> str:
    """Rows as they were before each snapshot that deleted or replaced them."""
    return _feed_sql("ducklake_table_deletions", lake, table, expressions, first, last)


def after_sql(lake: Lake, table: TableName, expressions: tuple[str, ...], *, first: int, last: int) -> str:
    """Rows as each snapshot left them."""
    return _feed_sql("ducklake_table_insertions", lake, table, expressions, first, last)


def keep_feed(lake: Lake, task: FeedTask) -> bool:
    """Make `net` and `times` from the feed; False when it cannot be believed."""
    after, upto = task.versions[0].snapshot, task.versions[-1]
    bounds = {"first": first_wanted(after), "last": upto.snapshot}
    # The feed is that of the table that has the name at its end.
    put = after_sql(lake, upto.name, upto.expressions, **bounds)
    before = None if task.only_inserts else before_sql(lake, upto.name, upto.expressions, **bounds)
    # One statement, so one view of the catalog. The feed stands neither filters nor ORDER BY: there are
    # none, and a FULL JOIN hands none down to its sides.
    normal.keep_net(lake.connection, task.shape, before=before, after=put, whole=True)
    with one_view(lake):
        exact = feed_was_exact(lake, task.source, after=after)
    if not exact:
        return False
    null, ascending = look_at_keys(lake.connection, task.shape)
    if null:
        raise _null_key(task.shape, upto.snapshot)
    # Several images of one key: only the versions themselves can tell.
    return ascending or not several_images(lake.connection, task.shape, "net", per="place")


def feed_was_exact(lake: Lake, source: TableVersion, *, after: int) -> bool:
    """Asked after reading: whatever could have spoilt the feed until then is seen. Makes `times`."""
    since = catalog.keep_snapshots(lake, after=after - 1)
    if not since or since[0].id != after:
        return False  # the files of what was deleted right after it may have gone with it
    maintained = files.maintained(lake, source, after=after)
    return history.feed_is_exact(since[1:], table_id=source.id, after=after, maintained=maintained)


def look_at_keys(own: duckdb.DuckDBPyConnection, shape: Shape) -> tuple[bool, bool]:
    """Of `net`: has a key NULL in it; is each (place, key) above the one before, so that none is there twice.

    New keys often ascend, and seeing that costs a tenth of grouping by them.
    """
    order = ["place", *(f"x{place}" for place in normal.key_places(shape))]
    previous = ", ".join(f"lag({name}) OVER () AS p_{name}" for name in order)
    null = " OR ".join(f"{name} IS NULL" for name in order)
    row = own.execute(
        f"""SELECT coalesce(bool_or({null}), false),
                   coalesce(bool_and(p_place IS NULL OR {_above(order)}), true)
            FROM (SELECT {", ".join(order)}, {previous} FROM net)"""
    ).fetchone()
    assert row is not None
    return bool(row[0]), bool(row[1])


def keep_difference(lake: Lake, task: DifferenceTask, old: Version, new: Version) -> None:
    """Make `net` and `times` from two versions of the table; all at the place of the new one."""
    same = _same_files(lake, task, old, new)
    listed = _repeated(lake, old, new)
    before = version_sql(lake, task, old, place=new.snapshot, skip=same)
    after = version_sql(lake, task, new, place=new.snapshot, skip=same)
    refuse_null_key(lake, task.shape, f"({after})", new.snapshot)
    if several_images(lake.connection, task.shape, f"({after})", per="place"):
        raise _duplicate(task.shape, new.snapshot)
    keep_times(lake, first=new.snapshot, last=new.snapshot)
    # One statement, so one view of the catalog: a file compacted away under way is missed by neither side.
    normal.keep_net(lake.connection, task.shape, before=before, after=after)
    if _repeated(lake, old, new) != listed:
        raise TruecutError(
            FILES_CHANGED,
            f"{task.table}: the source was compacted while it was being read",
            fix="None needed: what was being read is read again.",
            retry=Retry.RETRYABLE,
        )


def version_sql(
    lake: Lake, task: DifferenceTask, version: Version, *, place: int, skip: Sequence[str] = ()
) -> str:
    """The rows of one version that are in the task's bucket, all at one place, but for the files to skip."""
    names = normal.aliases("x", task.shape)
    columns = ", ".join(f"{e} AS {name}" for e, name in zip(version.expressions, names, strict=True))
    sql = f"SELECT {place} AS place, {columns} FROM {_at(lake, version)}"
    if skip:
        sql += f" WHERE filename NOT IN ({', '.join(literal(path) for path in skip)})"
    if task.buckets > 1:
        key = ", ".join(f"x{n}" for n in normal.key_places(task.shape))
        sql = f"SELECT * FROM ({sql}) WHERE hash({key}) % {task.buckets} = {task.bucket}"
    return sql


def seed_sql(lake: Lake, task: SeedTask) -> str:
    """READ rows, streamed."""
    names = task.shape.schema.names
    columns = ", ".join(
        f"{e} AS {identifier(name)}" for e, name in zip(task.version.expressions, names, strict=True)
    )
    return f"""
        SELECT {READ}::UTINYINT AS {OP}, {task.version.snapshot}::UBIGINT AS {PLACE},
               ({task.first_seq} + (row_number() OVER () - 1) * {task.buckets}
                + {task.bucket})::BIGINT AS {SEQ},
               (SELECT snapshot_time::TIMESTAMPTZ FROM {lake.metadata}.ducklake_snapshot
                WHERE snapshot_id = {task.version.snapshot}) AS {COMMITTED_AT}, {columns}
        FROM {_at(lake, task.version)} WHERE {_mine(task)}"""


def keep_times(lake: Lake, *, first: int, last: int) -> None:
    """Make `times`: when each place was committed."""
    lake.connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE times AS
            SELECT snapshot_id AS place, snapshot_time::TIMESTAMPTZ AS committed_at
            FROM {lake.metadata}.ducklake_snapshot WHERE snapshot_id BETWEEN {first} AND {last}"""
    )


def refuse_null_key(lake: Lake, shape: Shape, rows: str, snapshot: int) -> None:
    """A row without a key can be told from no other."""
    condition = " OR ".join(f"x{place} IS NULL" for place in normal.key_places(shape))
    if lake.connection.execute(f"SELECT 1 FROM {rows} WHERE {condition} LIMIT 1").fetchone():
        raise _null_key(shape, snapshot)


def refuse_null_keys(shape: Shape, snapshot: int, batch: pa.RecordBatch) -> None:
    """The same for a streamed batch."""
    if any(batch.column(name).null_count for name in shape.table.key):
        raise _null_key(shape, snapshot)


def several_images(own: duckdb.DuckDBPyConnection, shape: Shape, rows: str, *, per: str) -> bool:
    """Whether a key has more than one row, for each of `per`."""
    key = ", ".join(f"x{place}" for place in normal.key_places(shape))
    sql = f"SELECT 1 FROM {rows} GROUP BY {per}, {key} HAVING count(*) > 1 LIMIT 1"
    return own.execute(sql).fetchone() is not None


def batches(own: duckdb.DuckDBPyConnection, sql: str) -> Iterator[pa.RecordBatch]:
    """The result in batches, with the control columns exactly as `model.change` declares them."""
    reader = own.execute(sql).to_arrow_reader(BATCH_ROWS)
    data = [field for field in reader.schema if field.name not in CONTROL_NAMES]
    schema = pa.schema([*CONTROL_FIELDS, *data])
    for batch in reader:
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _above(order: Sequence[str]) -> str:
    """Whether a row is above the previous one, column by column."""
    first, *rest = order
    return f"({first} > p_{first}" + (f" OR ({first} = p_{first} AND {_above(rest)}))" if rest else ")")


def _feed_sql(
    function: str, lake: Lake, table: TableName, expressions: tuple[str, ...], first: int, last: int
) -> str:
    columns = ", ".join(f"{expression} AS x{n}" for n, expression in enumerate(expressions))
    names = ", ".join(literal(part) for part in (lake.alias, table.schema, table.table))
    return f"SELECT snapshot_id AS place, {columns} FROM {function}({names}, {first}, {last})"


def _at(lake: Lake, wanted: Version) -> str:
    """The table as it was committed then. Of a file that is read repeatedly, what comes each time counts."""
    name = wanted.name
    parts = ".".join(identifier(part) for part in (lake.alias, name.schema, name.table))
    version = f"{parts} AT (VERSION => {wanted.snapshot})"
    repeated = files.repeated(lake, name, at=wanted.snapshot)
    if not repeated:
        return version
    file, row = history.FILE_COLUMN, history.ROW_COLUMN
    paths = ", ".join(literal(path) for path in repeated)
    times = " ".join(f"WHEN {literal(path)} THEN {count}" for path, count in repeated.items())
    return f"""(SELECT *, {file} FROM {version} WHERE {file} NOT IN ({paths})
                UNION ALL
                SELECT *, {file} FROM {version} WHERE {file} IN ({paths})
                QUALIFY row_number() OVER (PARTITION BY {file}, {row}) = CASE {file} {times} END)"""


def _repeated(lake: Lake, *versions: Version) -> list[dict[str, int]]:
    return [files.repeated(lake, version.name, at=version.snapshot) for version in versions]


def _same_files(lake: Lake, task: DifferenceTask, old: Version, new: Version) -> list[str]:
    """Either version of the table may have a column that hides the one we would tell files by."""
    return files.untouched_files(lake, task.source.id, old, new) if task.shape.tells_files else []


def _mine(task: SeedTask) -> str:
    if task.buckets == 1:
        return "true"
    conditions = []
    if task.mine:
        conditions.append(f"filename IN ({', '.join(literal(path) for path in task.mine)})")
    if task.inlined:
        conditions.append("filename LIKE 'ducklake_inlined_data%'")
    return " OR ".join(conditions) or "false"


def _key(shape: Shape) -> str:
    return ", ".join(shape.table.key)


def _null_key(shape: Shape, snapshot: int) -> TruecutError:
    return TruecutError(
        NULL_KEY,
        f"{shape.table.name}: a row has NULL in its key ({_key(shape)}) at snapshot {snapshot}",
        fix="Give the row a key or delete it at the source, then resume the table.",
    )


def _duplicate(shape: Shape, snapshot: int) -> TruecutError:
    return TruecutError(
        DUPLICATE_KEY,
        f"{shape.table.name}: two rows have the same key ({_key(shape)}) at snapshot {snapshot}",
        fix="Remove the duplicate at the source, or choose a key that is unique, then resume the table.",
    )
