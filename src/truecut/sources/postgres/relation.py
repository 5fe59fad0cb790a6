"""A relation as its changes are to be read: what the stream announces, and what only the catalog knows.

The stream's own Relation message names the columns with their types and modifiers, but not how deep an
array is, what a domain stands for, or whether a type is an enum. `CATALOG_QUERY` asks for all of it. The
value is frozen and has a JSON form, in which a schema record keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from truecut.model.table import TableName

NOTHING, DEFAULT, INDEX, FULL = "n", "d", "i", "f"  # pg_class.relreplident


NUMBER_UNKNOWN = 0  # the catalog has no such column any more, only the stream has


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column, in the order of the stream.

    A column's type comes down to its *base*: domains are followed, of an array it is the element. `dims` is
    how deep an array is declared, 0 for everything else.
    """

    number: int  # pg_attribute.attnum: a rename keeps it, a re-creation does not; or NUMBER_UNKNOWN
    name: str
    type_oid: int
    typmod: int  # -1 for none
    dims: int
    type_name: str  # as format_type spells it, with its modifier: numeric(10,2)[]
    base_oid: int
    base_typmod: int
    base_kind: str  # pg_type.typtype: b base, e enum, c composite, r range, m multirange
    base_name: str  # pg_type.typname: numeric
    identity: bool  # part of the replica identity
    generated: bool
    nullable: bool
    initial: str | None = None  # what rows older than the column hold in it, as text; None: NULL
    filled: bool = False  # rows older than the column hold something else than that, which nobody can tell
    delimiter: str = ""  # pg_type.typdelim of the base, which divides its arrays; "" where it was not asked


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or the root of partitions, with the columns that are published, at one place of the stream."""

    oid: int
    name: TableName
    replica_identity: str
    key: tuple[str, ...]  # that of the index that is the replica identity, else the primary key, or nothing
    columns: tuple[RelationColumn, ...]
    late: tuple[tuple[str, ...], ...] = ()  # columns that are unique when it is checked, not at each row

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        return {
            "oid": self.oid,
            "schema": self.name.schema,
            "table": self.name.table,
            "replica_identity": self.replica_identity,
            "key": list(self.key),
            "columns": [asdict(column) for column in self.columns],
            "late": [list(names) for names in self.late],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Relation:
        """Read what `document` gave."""
        return cls(
            document["oid"],
            TableName(document["schema"], document["table"]),
            document["replica_identity"],
            tuple(document["key"]),
            tuple(RelationColumn(**column) for column in document["columns"]),
            tuple(map(tuple, document.get("late", ()))),
        )


def from_catalog(rows: Iterable[Mapping[str, Any]]) -> dict[int, Relation]:
    """Relations by oid, of the rows that `CATALOG_QUERY` gives."""
    return {row["oid"]: Relation.of(row) for row in rows}


# `CATALOG_QUERY`: one row for each published table; %(publication)s, and the columns of `Relation.document`.
# Domains are followed and elements taken by `down`; a domain says itself how deep its arrays are. What older
# rows hold is an array of one value, whose own text is wanted: arrays of some types are not separated by
# commas.
_PUBLISHED = """
WITH RECURSIVE published AS (
  SELECT c.oid, n.nspname, c.relname, c.relreplident, p.attnames
  FROM pg_publication_tables p
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
  WHERE p.pubname = %(publication)s
)"""
_TO_BE_PUBLISHED = """
WITH RECURSIVE published AS (
  SELECT c.oid, n.nspname, c.relname, c.relreplident, (
    SELECT array_agg(a.attname) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS attnames
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass(%(table)s)
)"""
_DESCRIBED = """, indexes AS (
  SELECT i.indrelid, (i.indkey::int2[])[0:i.indnkeyatts - 1] AS numbers,
    p.relreplident <> 'n' AS identity
  FROM pg_index i JOIN published p ON p.oid = i.indrelid
  WHERE i.indimmediate AND CASE p.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
), uniques AS (
  SELECT i.indrelid, (i.indkey::int2[])[0:i.indnkeyatts - 1] AS numbers, i.indimmediate
  FROM pg_index i JOIN published p ON p.oid = i.indrelid
  WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
), down(relation, number, depth, oid, typmod, dims, in_array) AS (
  SELECT a.attrelid, a.attnum, 0, a.atttypid, a.atttypmod, a.attndims::int, false
  FROM pg_attribute a JOIN published p ON p.oid = a.attrelid
  WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (p.attnames)
UNION ALL
  SELECT d.relation, d.number, d.depth + 1,
    CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE e.oid END,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE d.typmod END,
    CASE WHEN t.typtype <> 'd' THEN greatest(d.dims, 1)
         WHEN d.in_array THEN d.dims ELSE greatest(d.dims, t.typndims) END,
    d.in_array OR t.typtype <> 'd'
  FROM down d JOIN pg_type t ON t.oid = d.oid
  LEFT JOIN pg_type e ON e.typarray = t.oid
  WHERE t.typtype = 'd' OR (e.oid IS NOT NULL AND NOT d.in_array)
), bases AS (
  SELECT DISTINCT ON (d.relation, d.number) d.*, t.typtype, t.typname, t.typdelim
  FROM down d JOIN pg_type t ON t.oid = d.oid ORDER BY d.relation, d.number, d.depth DESC
)
SELECT p.oid::int8 AS oid, p.nspname AS schema, p.relname AS table, p.relreplident::text AS replica_identity,
  coalesce((
    SELECT json_agg(a.attname ORDER BY k.place)
    FROM indexes i, unnest(i.numbers) WITH ORDINALITY k(number, place), pg_attribute a
    WHERE i.indrelid = p.oid AND a.attrelid = p.oid AND a.attnum = k.number), '[]') AS key,
  coalesce((SELECT json_agg(json_build_object(
      'number', a.attnum, 'name', a.attname, 'type_oid', a.atttypid::int8, 'typmod', a.atttypmod,
      'dims', b.dims, 'type_name', format_type(a.atttypid, a.atttypmod),
      'base_oid', b.oid::int8, 'base_typmod', b.typmod, 'base_kind', b.typtype, 'base_name', b.typname,
      'delimiter', b.typdelim,
      'identity', p.relreplident = 'f' OR EXISTS (
         SELECT FROM indexes i WHERE i.indrelid = p.oid AND i.identity AND a.attnum = ANY (i.numbers)),
      'generated', a.attgenerated <> '', 'nullable', NOT a.attnotnull,
      'initial', CASE WHEN a.atthasmissing THEN array_to_string(a.attmissingval, '') END,
      'filled', NOT a.atthasmissing AND (a.atthasdef OR a.attidentity <> '')) ORDER BY a.attnum)
    FROM pg_attribute a JOIN bases b ON b.relation = a.attrelid AND b.number = a.attnum
    WHERE a.attrelid = p.oid), '[]') AS columns,
  coalesce((SELECT json_agg((
      SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
      WHERE a.attrelid = p.oid AND a.attnum = ANY (l.numbers)))
    FROM uniques l WHERE l.indrelid = p.oid AND NOT l.indimmediate AND NOT EXISTS (
      SELECT FROM uniques u WHERE u.indrelid = p.oid AND u.indimmediate AND u.numbers <@ l.numbers)
    ), '[]') AS late
FROM published p
"""
CATALOG_QUERY = _PUBLISHED + _DESCRIBED
# The same of one table, %(table)s, as a publication of all its columns will have it.
TABLE_QUERY = _TO_BE_PUBLISHED + _DESCRIBED
