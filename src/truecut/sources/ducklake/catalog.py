"""What the catalog's own tables say: snapshots, tables, columns. Few queries, no rows.

The metadata lives in DuckDB, SQLite or PostgreSQL, so types are cast where their spelling differs.
Values are written into the SQL: binding parameters makes DuckDB import pandas, which costs a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from truecut.lake import literal
from truecut.model.table import TableName
from truecut.sources.ducklake.attach import Lake

# What an ordinary commit does to a table. Maintenance, or a kind we have never met, is not in it.
ROW_CHANGES = frozenset({"inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete"})
UNTOUCHED = frozenset({"altered_table"})  # and these leave the rows as they are
ORDINARY = ROW_CHANGES | UNTOUCHED
WITHOUT_DELETES = ORDINARY - {"deleted_from_table", "inlined_delete"}  # an update does both

_ENTRY = re.compile(r"([a-z_]+):((?:\"(?:[^\"]|\"\")*\"|[^,\"])+)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit and what it did, as (kind, object): ("inserted_into_table", "1")."""

    id: int
    committed_at_ms: int
    changes: frozenset[tuple[str, str]]

    def kinds(self, table_id: int) -> frozenset[str]:
        """What it did to one table."""
        return frozenset(kind for kind, name in self.changes if name == str(table_id))


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table under one name for a span of snapshots; `end` is exclusive, None means until now."""

    id: int
    uuid: str
    begin: int
    end: int | None

    def covers(self, snapshot: int) -> bool:
        """Whether the name stood for this table at that snapshot."""
        return self.begin <= snapshot and (self.end is None or snapshot < self.end)


@dataclass(frozen=True, slots=True)
class Naming:
    """What a table is called for a span of snapshots; `end` is exclusive, None means until now."""

    name: TableName
    begin: int
    end: int | None

    def covers(self, snapshot: int) -> bool:
        """Whether the table was called so at that snapshot."""
        return self.begin <= snapshot and (self.end is None or snapshot < self.end)


@dataclass(frozen=True, slots=True)
class ColumnVersion:
    """A row of the catalog's column table: one column, or one part of a nested column."""

    id: int
    parent: int | None
    order: int
    name: str
    type: str
    initial: str | None
    begin: int
    end: int | None

    def covers(self, snapshot: int) -> bool:
        """Whether the column stood so at that snapshot."""
        return self.begin <= snapshot and (self.end is None or snapshot < self.end)


def identity(lake: Lake) -> str:
    """The catalog's lasting uuid: that of its first schema, made with the catalog."""
    sql = (
        f"SELECT schema_uuid::VARCHAR FROM {lake.metadata}.ducklake_schema ORDER BY schema_id, begin_snapshot"
    )
    row = lake.connection.execute(sql).fetchone()
    return "" if row is None else str(row[0])


def bounds(lake: Lake) -> tuple[int, int, int]:
    """(oldest snapshot, newest snapshot, the newest one's commit time in ms)."""
    row = lake.connection.execute(
        f"""SELECT min(snapshot_id), max(snapshot_id),
                   epoch_ms(arg_max(snapshot_time, snapshot_id)::TIMESTAMPTZ)
            FROM {lake.metadata}.ducklake_snapshot"""
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def data_path(lake: Lake) -> tuple[str, bool]:
    """Where the catalog says that its files are, as its maker wrote it; and whether it has any."""
    row = lake.connection.execute(
        f"""SELECT (SELECT max(value) FROM {lake.metadata}.ducklake_metadata WHERE key = 'data_path'),
                   EXISTS (FROM {lake.metadata}.ducklake_data_file)"""
    ).fetchone()
    assert row is not None
    return str(row[0] or ""), bool(row[1])


def commit_times(lake: Lake, *, after: int, upto: int) -> list[tuple[int, int]]:
    """(snapshot, its commit time in ms) of the surviving snapshots in the range, oldest first."""
    rows = lake.connection.execute(
        f"""SELECT snapshot_id, epoch_ms(snapshot_time::TIMESTAMPTZ) FROM {lake.metadata}.ducklake_snapshot
            WHERE snapshot_id > {after} AND snapshot_id <= {upto} ORDER BY 1"""
    ).fetchall()
    return [(int(snapshot), int(time_ms)) for snapshot, time_ms in rows]


def snapshots(lake: Lake, *, after: int) -> list[Snapshot]:
    """The surviving snapshots after one, up to now, oldest first."""
    return _snapshots(lake, f"({_snapshots_sql(lake, after)})")


def snapshots_behind(lake: Lake, *, after: int, beyond: int, count_max: int) -> tuple[list[Snapshot], int]:
    """The surviving snapshots after one, at most `count_max` of them beyond another; and the last of these.

    All later ones, up to now, are folded into one more, which says what any of them did. Its id follows the
    last one's, unless some are missing: then there is a hole. However far behind, the list is bounded.
    """
    newest = f"SELECT snapshot_id FROM {lake.metadata}.ducklake_snapshot WHERE snapshot_id > {beyond}"
    last = lake.connection.execute(
        f"SELECT coalesce(max(snapshot_id), {beyond}) FROM ({newest} ORDER BY 1 LIMIT {count_max})"
    ).fetchone()
    assert last is not None
    end = int(last[0])
    found = _snapshots(lake, f"({_snapshots_sql(lake, after)} AND s.snapshot_id <= {end})")
    later = f"({_snapshots_sql(lake, end)})"
    count, first, final = lake.connection.execute(
        f"SELECT count(*), min(place), max(place) FROM {later}"
    ).fetchone() or (0, 0, 0)
    if not count:
        return found, end
    texts = lake.connection.execute(f"SELECT DISTINCT coalesce(changes_made, '') FROM {later}").fetchall()
    changes = frozenset(change for (text,) in texts for change in parse_changes(text))
    whole = first == end + 1 and final - first + 1 == count
    return [*found, Snapshot(end + (1 if whole else 2), 0, changes)], end


def keep_snapshots(lake: Lake, *, after: int) -> list[Snapshot]:
    """The same, and make of them the temporary table `times`: when each place was committed."""
    lake.connection.execute(f"CREATE OR REPLACE TEMP TABLE times AS {_snapshots_sql(lake, after)}")
    return _snapshots(lake, "times")


def parse_changes(text: str) -> frozenset[tuple[str, str]]:
    """`inserted_into_table:1,deleted_from_table:1` → pairs; quoted names may hold commas."""
    return frozenset((match[1], match[2]) for match in _ENTRY.finditer(text))


def table_versions(lake: Lake, name: TableName) -> list[TableVersion]:
    """Every table that ever stood under this name, as far as the catalog remembers."""
    rows = lake.connection.execute(
        f"""SELECT t.table_id, t.table_uuid::VARCHAR,
                   greatest(t.begin_snapshot, s.begin_snapshot),
                   least(coalesce(t.end_snapshot, s.end_snapshot), coalesce(s.end_snapshot, t.end_snapshot))
            FROM {lake.metadata}.ducklake_table t JOIN {lake.metadata}.ducklake_schema s USING (schema_id)
            WHERE s.schema_name = {literal(name.schema)} AND t.table_name = {literal(name.table)}
              AND (s.end_snapshot IS NULL OR s.end_snapshot > t.begin_snapshot)
              AND (t.end_snapshot IS NULL OR t.end_snapshot > s.begin_snapshot)
            ORDER BY 3"""
    ).fetchall()
    return [TableVersion(int(row[0]), str(row[1]), int(row[2]), _optional(row[3])) for row in rows]


def table_names(lake: Lake, at: int) -> list[str]:
    """Every table at a snapshot, `schema.table`, in order."""
    rows = lake.connection.execute(
        f"""SELECT s.schema_name || '.' || t.table_name
            FROM {lake.metadata}.ducklake_table t JOIN {lake.metadata}.ducklake_schema s USING (schema_id)
            WHERE greatest(t.begin_snapshot, s.begin_snapshot) <= {at}
              AND (t.end_snapshot IS NULL OR t.end_snapshot > {at})
              AND (s.end_snapshot IS NULL OR s.end_snapshot > {at})
            ORDER BY 1"""
    ).fetchall()
    return [str(name) for (name,) in rows]


def covering(versions: Sequence[TableVersion], snapshot: int) -> TableVersion | None:
    """The table that stood under the name at a snapshot."""
    return next((version for version in versions if version.covers(snapshot)), None)


def namings(lake: Lake, table_id: int) -> list[Naming]:
    """Every name that a table ever had, as far as the catalog remembers, the first one first."""
    rows = lake.connection.execute(
        f"""SELECT s.schema_name, t.table_name, t.begin_snapshot, t.end_snapshot
            FROM {lake.metadata}.ducklake_table t JOIN {lake.metadata}.ducklake_schema s USING (schema_id)
            WHERE t.table_id = {table_id} ORDER BY t.begin_snapshot"""
    ).fetchall()
    return [Naming(TableName(str(r[0]), str(r[1])), int(r[2]), _optional(r[3])) for r in rows]


def column_versions(lake: Lake, table_id: int) -> list[ColumnVersion]:
    """All columns the table ever had, as far as the catalog remembers."""
    rows = lake.connection.execute(
        f"""SELECT column_id, parent_column, column_order, column_name, column_type, initial_default,
                   begin_snapshot, end_snapshot
            FROM {lake.metadata}.ducklake_column WHERE table_id = {table_id}
            ORDER BY column_order, column_id"""
    ).fetchall()
    return [
        ColumnVersion(
            int(r[0]), _optional(r[1]), int(r[2]), str(r[3]), str(r[4]), r[5], int(r[6]), _optional(r[7])
        )
        for r in rows
    ]


def _snapshots_sql(lake: Lake, after: int) -> str:
    return f"""SELECT s.snapshot_id AS place, s.snapshot_time::TIMESTAMPTZ AS committed_at, c.changes_made
               FROM {lake.metadata}.ducklake_snapshot s
               LEFT JOIN {lake.metadata}.ducklake_snapshot_changes c USING (snapshot_id)
               WHERE s.snapshot_id > {after}"""


def _snapshots(lake: Lake, relation: str) -> list[Snapshot]:
    rows = lake.connection.execute(
        f"SELECT place, epoch_ms(committed_at), coalesce(changes_made, '') FROM {relation} ORDER BY place"
    ).fetchall()
    return [Snapshot(int(row[0]), int(row[1]), parse_changes(row[2])) for row in rows]


def _optional(value: object) -> int | None:
    return None if value is None else int(str(value))
