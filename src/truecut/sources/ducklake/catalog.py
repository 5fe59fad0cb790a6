"""What the catalog's own tables say: snapshots, tables, columns, sizes. Few queries, no rows.

The metadata lives in DuckDB, SQLite or PostgreSQL, so types are cast where their spelling differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from truecut.lake import identifier
from truecut.model.table import TableName
from truecut.sources.ducklake.attach import Lake

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


@dataclass(frozen=True, slots=True)
class Weight:
    """Estimated changes of one table in one snapshot."""

    snapshot: int
    rows: int
    size_bytes: int


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
                   epoch_ms(arg_max(snapshot_time::TIMESTAMPTZ, snapshot_id))
            FROM {lake.metadata}.ducklake_snapshot"""
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def snapshots(lake: Lake, *, after: int) -> list[Snapshot]:
    """The surviving snapshots after one, up to now, oldest first."""
    rows = lake.connection.execute(
        f"""SELECT s.snapshot_id, epoch_ms(s.snapshot_time::TIMESTAMPTZ), coalesce(c.changes_made, '')
            FROM {lake.metadata}.ducklake_snapshot s
            LEFT JOIN {lake.metadata}.ducklake_snapshot_changes c USING (snapshot_id)
            WHERE s.snapshot_id > ? ORDER BY s.snapshot_id""",
        [after],
    ).fetchall()
    return [Snapshot(int(row[0]), int(row[1]), parse_changes(row[2])) for row in rows]


def parse_changes(text: str) -> frozenset[tuple[str, str]]:
    """`inserted_into_table:1,deleted_from_table:1` → pairs; quoted names may hold commas."""
    return frozenset((match[1], match[2]) for match in _ENTRY.finditer(text))


def survives(lake: Lake, snapshot: int) -> bool:
    """Whether that snapshot can still be read."""
    sql = f"SELECT 1 FROM {lake.metadata}.ducklake_snapshot WHERE snapshot_id = ?"
    return lake.connection.execute(sql, [snapshot]).fetchone() is not None


def table_versions(lake: Lake, name: TableName) -> list[TableVersion]:
    """Every table that ever stood under this name, as far as the catalog remembers."""
    rows = lake.connection.execute(
        f"""SELECT t.table_id, t.table_uuid::VARCHAR,
                   greatest(t.begin_snapshot, s.begin_snapshot),
                   least(coalesce(t.end_snapshot, s.end_snapshot), coalesce(s.end_snapshot, t.end_snapshot))
            FROM {lake.metadata}.ducklake_table t JOIN {lake.metadata}.ducklake_schema s USING (schema_id)
            WHERE s.schema_name = ? AND t.table_name = ?
              AND (s.end_snapshot IS NULL OR s.end_snapshot > t.begin_snapshot)
              AND (t.end_snapshot IS NULL OR t.end_snapshot > s.begin_snapshot)
            ORDER BY 3""",
        [name.schema, name.table],
    ).fetchall()
    return [TableVersion(int(row[0]), str(row[1]), int(row[2]), _optional(row[3])) for row in rows]


def column_versions(lake: Lake, table_id: int) -> list[ColumnVersion]:
    """All columns the table ever had, as far as the catalog remembers."""
    rows = lake.connection.execute(
        f"""SELECT column_id, parent_column, column_order, column_name, column_type, initial_default,
                   begin_snapshot, end_snapshot
            FROM {lake.metadata}.ducklake_column WHERE table_id = ?
            ORDER BY column_order, column_id""",
        [table_id],
    ).fetchall()
    return [
        ColumnVersion(
            int(r[0]), _optional(r[1]), int(r[2]), str(r[3]), str(r[4]), r[5], int(r[6]), _optional(r[7])
        )
        for r in rows
    ]


def live_rows(lake: Lake, table_id: int, *, at: int) -> int:
    """About how many rows the table has at a snapshot."""
    m = lake.metadata
    row = lake.connection.execute(
        f"""SELECT coalesce((SELECT sum(record_count) FROM {m}.ducklake_data_file
                             WHERE table_id = $table AND begin_snapshot <= $at
                               AND (end_snapshot IS NULL OR end_snapshot > $at)), 0)
                 - coalesce((SELECT sum(delete_count) FROM {m}.ducklake_delete_file
                             WHERE table_id = $table AND begin_snapshot <= $at
                               AND (end_snapshot IS NULL OR end_snapshot > $at)), 0)""",
        {"table": table_id, "at": at},
    ).fetchone()
    assert row is not None
    inlined = sum(
        _count(
            lake, f"{m}.{name}", f"begin_snapshot <= {at} AND (end_snapshot IS NULL OR end_snapshot > {at})"
        )
        for name in _inlined_tables(lake, table_id)
    )
    return max(0, int(row[0])) + inlined


def weights(lake: Lake, table_id: int, *, after: int, upto: int) -> list[Weight]:
    """About how many changes each snapshot of the range holds for the table."""
    m = lake.metadata
    parts = [
        f"""SELECT CASE WHEN begin_snapshot > {after} THEN begin_snapshot ELSE partial_max END AS snapshot,
                   record_count AS n, file_size_bytes AS size
            FROM {m}.ducklake_data_file WHERE table_id = {table_id}
              AND (begin_snapshot > {after} OR partial_max > {after})""",
        f"""SELECT end_snapshot, record_count, file_size_bytes FROM {m}.ducklake_data_file
            WHERE table_id = {table_id} AND end_snapshot > {after}""",
        f"""SELECT CASE WHEN begin_snapshot > {after} THEN begin_snapshot ELSE partial_max END,
                   delete_count - coalesce(before, 0), (delete_count - coalesce(before, 0)) * 64
            FROM (SELECT *, lag(delete_count) OVER (PARTITION BY data_file_id
                                                    ORDER BY begin_snapshot) AS before
                  FROM {m}.ducklake_delete_file WHERE table_id = {table_id})
            WHERE begin_snapshot > {after} OR partial_max > {after}""",
    ]
    for name in _inlined_tables(lake, table_id):
        for column in ("begin_snapshot", "end_snapshot"):
            parts.append(f"SELECT {column}, 1, 128 FROM {m}.{name} WHERE {column} > {after}")
    if _has_inlined_deletes(lake, table_id):
        deletes = f"{m}.ducklake_inlined_delete_{table_id}"
        parts.append(f"SELECT begin_snapshot, 1, 128 FROM {deletes} WHERE begin_snapshot > {after}")
    rows = lake.connection.execute(
        f"""SELECT snapshot, sum(greatest(n, 0))::BIGINT, sum(greatest(size, 0))::BIGINT
            FROM ({" UNION ALL ".join(parts)}) WHERE snapshot <= {upto} GROUP BY snapshot ORDER BY snapshot"""
    ).fetchall()
    return [Weight(int(row[0]), int(row[1]), int(row[2])) for row in rows]


def data_files(lake: Lake, name: TableName, *, at: int) -> list[tuple[str, int]]:
    """(path, bytes) of the files that hold the table at a snapshot; inlined rows are in none of them."""
    rows = lake.connection.execute(
        """SELECT data_file, data_file_size_bytes
           FROM ducklake_list_files(?, ?, schema => ?, snapshot_version => ?) ORDER BY 1""",
        [lake.alias, name.table, name.schema, at],
    ).fetchall()
    return [(str(row[0]), int(row[1])) for row in rows]


def _inlined_tables(lake: Lake, table_id: int) -> Sequence[str]:
    sql = f"SELECT table_name FROM {lake.metadata}.ducklake_inlined_data_tables WHERE table_id = ?"
    return [identifier(str(row[0])) for row in lake.connection.execute(sql, [table_id]).fetchall()]


def _has_inlined_deletes(lake: Lake, table_id: int) -> bool:
    # The metadata database is hidden from DuckDB's listings, so the table itself is asked.
    try:
        lake.connection.execute(f"FROM {lake.metadata}.ducklake_inlined_delete_{table_id} LIMIT 0")
    except duckdb.CatalogException:
        return False
    return True


def _count(lake: Lake, table: str, condition: str) -> int:
    row = lake.connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()
    assert row is not None
    return int(row[0])


def _optional(value: object) -> int | None:
    return None if value is None else int(str(value))
