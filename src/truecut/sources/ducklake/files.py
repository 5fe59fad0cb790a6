"""What the catalog says about files and inlined rows: sizes, traces of maintenance, what a range touched.

Everything here is about trust. The extension's change feed and its reads of older versions were compared
with the table's content at commit time, under random commits and maintenance:
- the feed was right (or visibly ambiguous) wherever no maintenance had ever touched the table's files;
- a read of an older version was wrong only where two delete files cover one data file at that version: the
  extension then reads that file once for each of them, as if the other were not there. A row that is live
  comes back every time, one that is deleted does not.
So both are asked for: the feed is believed or not, and of a file read twice only what came twice counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from truecut.errors import TruecutError
from truecut.lake import identifier, literal
from truecut.model.table import TableName
from truecut.sources.ducklake.attach import Lake
from truecut.sources.ducklake.catalog import ORDINARY, TableVersion
from truecut.sources.ducklake.schema import Version

_NEVER = 1 << 62  # end of what has not ended


@dataclass(frozen=True, slots=True)
class Weight:
    """Estimated changes of one table in one snapshot."""

    snapshot: int
    rows: int
    size_bytes: int


def maintained(lake: Lake, table: TableVersion, *, after: int) -> bool:
    """Whether maintenance may have touched anything that the feed of `(after, …]` reads."""
    m = lake.metadata
    ordinary = ", ".join(literal(kind) for kind in sorted(ORDINARY))
    said = f"""
        SELECT 1 FROM (SELECT unnest(string_split(changes_made, ',')) AS entry
                       FROM {m}.ducklake_snapshot_changes)
        WHERE split_part(entry, ':', 2) = '{table.id}' AND split_part(entry, ':', 1) NOT IN ({ordinary})"""
    compacted = f"""
        SELECT 1 FROM {m}.ducklake_data_file
        WHERE table_id = {table.id} AND (end_snapshot IS NULL OR end_snapshot > {after})
          AND (partial_max IS NOT NULL OR row_id_start IS NULL)"""
    # Ordinary commits make such delete files, too, so they count only where history cannot tell.
    flushed = f"""
        SELECT 1 FROM {m}.ducklake_delete_file
        WHERE table_id = {table.id} AND (end_snapshot IS NULL OR end_snapshot > {after})
          AND partial_max IS NOT NULL
          AND (SELECT count(*) FROM {m}.ducklake_snapshot WHERE snapshot_id BETWEEN {table.begin} AND {after})
              < {after - table.begin + 1}"""
    sql = f"({said} LIMIT 1) UNION ALL ({compacted} LIMIT 1) UNION ALL ({flushed} LIMIT 1)"
    return lake.connection.execute(sql).fetchone() is not None


def damaged(lake: Lake, table_id: int) -> list[range]:
    """The snapshots at which some file is read more than once.

    Maintenance can leave two delete files for one data file.
    """
    files, deletes = f"{lake.metadata}.ducklake_data_file", f"{lake.metadata}.ducklake_delete_file"
    rows = lake.connection.execute(
        f"""WITH d AS (SELECT delete_file_id AS id, data_file_id AS file, begin_snapshot AS first,
                              coalesce(end_snapshot, {_NEVER}) AS ended
                       FROM {deletes} WHERE table_id = {table_id})
            SELECT DISTINCT greatest(a.first, b.first, f.begin_snapshot),
                   least(a.ended, b.ended, coalesce(f.end_snapshot, {_NEVER}))
            FROM d a JOIN d b ON a.file = b.file AND a.id < b.id JOIN {files} f ON f.data_file_id = a.file
            WHERE a.first < b.ended AND b.first < a.ended"""
    ).fetchall()
    return [range(int(row[0]), int(row[1])) for row in rows]


def untouched_files(lake: Lake, table_id: int, old: Version, new: Version) -> list[str]:
    """Files whose visible rows are the same at both snapshots: no difference of the two is in them."""
    before, now = (_listed(lake, version.name, at=version.snapshot) for version in (old, new))
    touched = _touched(lake, table_id, after=old.snapshot, upto=new.snapshot)
    return [
        path
        for path, deletes in now.items()
        if path in before and before[path] == deletes and _last_part(path) not in touched
    ]


def live_rows(lake: Lake, table_id: int, *, at: int) -> int:
    """About how many rows the table has at a snapshot."""
    m = lake.metadata
    visible = f"begin_snapshot <= {at} AND (end_snapshot IS NULL OR end_snapshot > {at})"
    files = f"{m}.ducklake_data_file WHERE table_id = {table_id} AND {visible}"
    # The delete files of a file that is gone stay behind: they take nothing away any more.
    deletes = f"""{m}.ducklake_delete_file WHERE table_id = {table_id} AND {visible}
                  AND data_file_id IN (SELECT data_file_id FROM {files})"""
    row = lake.connection.execute(
        f"""SELECT coalesce((SELECT sum(record_count) FROM {files}), 0)
                 - coalesce((SELECT sum(delete_count) FROM {deletes}), 0)"""
    ).fetchone()
    assert row is not None
    rows = max(0, int(row[0]))
    for name in _inlined_tables(lake, table_id):
        rows += _count(lake, f"{m}.{name}", visible)
    if _has_inlined_deletes(lake, table_id):
        rows -= _count(lake, f"{m}.ducklake_inlined_delete_{table_id}", f"begin_snapshot <= {at}")
    return max(0, rows)


def weights(lake: Lake, table_id: int, *, after: int, upto: int) -> list[Weight]:
    """About how many changes each snapshot of the range holds for the table.

    An update is a row that came and one that went: a snapshot weighs the larger of the two numbers.
    """
    m = lake.metadata
    came = [
        f"""SELECT CASE WHEN begin_snapshot > {after} THEN begin_snapshot ELSE partial_max END AS snapshot,
                   record_count AS n, file_size_bytes AS size
            FROM {m}.ducklake_data_file WHERE table_id = {table_id}
              AND (begin_snapshot > {after} OR partial_max > {after})"""
    ]
    went = [
        # What was deleted from a file before it ended has been counted by then.
        f"""SELECT f.end_snapshot AS snapshot, record_count - coalesce(max(delete_count), 0) AS n,
                   f.file_size_bytes AS size
            FROM {m}.ducklake_data_file f
            LEFT JOIN {m}.ducklake_delete_file d USING (table_id, data_file_id)
            WHERE table_id = {table_id} AND f.end_snapshot > {after}
            GROUP BY data_file_id, f.end_snapshot, record_count, f.file_size_bytes""",
        # Deletes of several snapshots share a file, which does not say how many are whose: an even spread.
        f"""SELECT s.snapshot_id, n // count(*) OVER (PARTITION BY delete_file_id),
                   64 * n // count(*) OVER (PARTITION BY delete_file_id)
            FROM (SELECT delete_file_id, begin_snapshot, coalesce(partial_max, begin_snapshot) AS last,
                         delete_count - coalesce(lag(delete_count) OVER (
                             PARTITION BY data_file_id ORDER BY begin_snapshot), 0) AS n
                  FROM {m}.ducklake_delete_file WHERE table_id = {table_id}) d
            JOIN {m}.ducklake_snapshot s ON s.snapshot_id BETWEEN d.begin_snapshot AND d.last
            WHERE d.last > {after}""",
    ]
    for name in _inlined_tables(lake, table_id):
        came.append(f"SELECT begin_snapshot, 1, 128 FROM {m}.{name} WHERE begin_snapshot > {after}")
        went.append(f"SELECT end_snapshot, 1, 128 FROM {m}.{name} WHERE end_snapshot > {after}")
    if _has_inlined_deletes(lake, table_id):
        deletes = f"{m}.ducklake_inlined_delete_{table_id}"
        went.append(f"SELECT begin_snapshot, 1, 128 FROM {deletes} WHERE begin_snapshot > {after}")
    sums = " UNION ALL ".join(
        f"""SELECT snapshot, sum(greatest(n, 0)) AS n, sum(greatest(size, 0)) AS size
            FROM ({" UNION ALL ".join(parts)}) WHERE snapshot > {after} AND snapshot <= {upto} GROUP BY ALL"""
        for parts in (came, went)
    )
    rows = lake.connection.execute(
        f"SELECT snapshot, max(n)::BIGINT, max(size)::BIGINT FROM ({sums}) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return [Weight(int(row[0]), int(row[1]), int(row[2])) for row in rows]


def inlined_in_sqlite(lake: Lake, table_id: int) -> bool:
    """Whether an SQLite catalog itself holds rows of the table, of whatever snapshot. SQLite is asked in its
    own words: what the extension scans by `rowid` may be a column of the user's."""
    return any(_has_rows(lake, name) for name in _inlined_tables(lake, table_id))


def _has_rows(lake: Lake, name: str) -> bool:
    asked = [lake.metadata_name, f"SELECT EXISTS (SELECT 1 FROM {name})"]
    row = lake.connection.execute("FROM sqlite_query(?, ?)", asked).fetchone()
    assert row is not None
    return int(row[0]) == 1


def data_files(lake: Lake, name: TableName, *, at: int) -> list[tuple[str, int]]:
    """(path, bytes) of the files that hold the table at a snapshot, each as often as it is read; inlined rows
    are in none of them."""
    names = f"{literal(lake.alias)}, {literal(name.table)}, schema => {literal(name.schema)}"
    rows = lake.connection.execute(
        f"""SELECT data_file, data_file_size_bytes
            FROM ducklake_list_files({names}, snapshot_version => {at}) ORDER BY 1"""
    ).fetchall()
    return [(str(row[0]), int(row[1])) for row in rows]


def repeated(lake: Lake, name: TableName, *, at: int) -> dict[str, int]:
    """The files that are read more than once at a snapshot, and how often. One that was added to the table
    several times is none of them: its rows are there as often."""
    counts = Counter(path for path, _ in data_files(lake, name, at=at))
    several = {path: times for path, times in counts.items() if times > 1}
    added = _added(lake, name, at=at) if several else {}
    found = {path: times for path, times in several.items() if times != _of_path(added, path)}
    if any(_of_path(added, path) > 1 for path in found):
        raise _indistinct(name)
    return found


def _added(lake: Lake, name: TableName, *, at: int) -> dict[str, int]:
    """The paths, as the catalog has them, under which the table has several files at a snapshot."""
    m = lake.metadata
    rows = lake.connection.execute(
        f"""SELECT f.path, count(*) FROM {m}.ducklake_data_file f JOIN {m}.ducklake_table t USING (table_id)
            JOIN {m}.ducklake_schema s USING (schema_id)
            WHERE table_name = ? AND schema_name = ? AND {_visible("f", at)} AND {_visible("t", at)}
              AND {_visible("s", at)}
            GROUP BY f.path HAVING count(*) > 1""",
        [name.table, name.schema],
    ).fetchall()
    return {str(path): int(count) for path, count in rows}


def _visible(relation: str, at: int) -> str:
    end = f"{relation}.end_snapshot"
    return f"{relation}.begin_snapshot <= {at} AND ({end} IS NULL OR {end} > {at})"


def _of_path(added: Mapping[str, int], path: str) -> int:
    return next((count for known, count in added.items() if path.endswith(known)), 1)


def _indistinct(name: TableName) -> TruecutError:
    return TruecutError(
        "TC2015",
        f"{name}: a file was added to it more than once, and of its rows nobody can tell which were deleted",
        fix="Write the table anew at the source (CREATE OR REPLACE TABLE … AS FROM …), then resume it.",
    )


def _inlined_tables(lake: Lake, table_id: int) -> Sequence[str]:
    sql = f"SELECT table_name FROM {lake.metadata}.ducklake_inlined_data_tables WHERE table_id = {table_id}"
    return [identifier(str(row[0])) for row in lake.connection.execute(sql).fetchall()]


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


def _listed(lake: Lake, name: TableName, *, at: int) -> dict[str, str | None]:
    """Data file → its delete file, at a snapshot."""
    names = f"{literal(lake.alias)}, {literal(name.table)}, schema => {literal(name.schema)}"
    rows = lake.connection.execute(
        f"SELECT data_file, delete_file FROM ducklake_list_files({names}, snapshot_version => {at})"
    ).fetchall()
    return {str(row[0]): row[1] for row in rows}


def _touched(lake: Lake, table_id: int, *, after: int, upto: int) -> frozenset[str]:
    """The last parts of the paths of files that got or lost rows in `(after, upto]`, or may have."""
    m = lake.metadata
    within = f"BETWEEN {after + 1} AND {upto}"
    # A partial file holds rows (or deletes) of several snapshots, up to partial_max.
    parts = [
        f"""SELECT data_file_id FROM {m}.ducklake_data_file WHERE table_id = {table_id}
            AND (begin_snapshot {within} OR end_snapshot {within} OR partial_max > {after})""",
        f"""SELECT data_file_id FROM {m}.ducklake_delete_file WHERE table_id = {table_id}
            AND (begin_snapshot {within} OR end_snapshot {within} OR partial_max > {after})""",
        # What a flush writes for a partial file holds deletes of several snapshots without saying so.
        f"""SELECT data_file_id FROM {m}.ducklake_delete_file
            JOIN {m}.ducklake_data_file f USING (data_file_id)
            WHERE f.table_id = {table_id} AND f.partial_max IS NOT NULL""",
    ]
    if _has_inlined_deletes(lake, table_id):
        inlined = f"{m}.ducklake_inlined_delete_{table_id}"
        parts.append(f"SELECT file_id FROM {inlined} WHERE begin_snapshot {within}")
    rows = lake.connection.execute(
        f"""SELECT path FROM {m}.ducklake_data_file WHERE table_id = {table_id}
            AND data_file_id IN ({" UNION ALL ".join(parts)})"""
    ).fetchall()
    return frozenset(_last_part(str(row[0])) for row in rows)


def _last_part(path: str) -> str:
    # Enough to find a file by: where two are called alike, both count as touched.
    return path.replace("\\", "/").rsplit("/", 1)[-1]
