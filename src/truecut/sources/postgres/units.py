"""Units of a table: half-open ranges of its key, from below all keys to above them, and the SQL of each.

Bounds are texts of keys, as the server writes them. Only the server compares them, by the columns' own types
and collations, a composite key as a row; so a range means the same to the reader of a unit and to whoever
asks which unit a key is in. A table without a key has ranges of pages (ctid), which mean nothing outside of
one snapshot. The number of units goes by the table's size, their bounds by a sample of its pages, so that
skewed and sparse keys are cut where the rows are. What the sample does not know is in a unit for all that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from truecut.core.cut import Range, ranges
from truecut.sources.postgres.relation import CATALOG_QUERY, Relation, RelationColumn
from truecut.sources.postgres.server import Address, Connection, answering

UNIT_BYTES = 64 << 20  # of the table at the source, about
UNITS_MAX = 4096
_PAGES_PER_UNIT = 24  # of the sample
_PAGE_BYTES = 8192

Key = tuple[str, ...]  # the texts of a key's columns

_RELATION = CATALOG_QUERY + "WHERE p.oid = %(oid)s"
_SHAPE = """
SELECT c.relkind = 'p', p.rowfilter FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
WHERE c.oid = %s AND p.pubname = %s
"""
_COLLATIONS = """
SELECT a.attname, quote_ident(n.nspname) || '.' || quote_ident(c.collname)
FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE a.attrelid = %s AND a.attnum > 0
"""
_SIZES = """
SELECT coalesce(sum(pg_relation_size(relid)), 0)::int8, coalesce(sum(pg_table_size(relid)), 0)::int8
FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf
UNION ALL SELECT pg_relation_size(%s::oid::regclass), pg_table_size(%s::oid::regclass)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is read: by which columns, and in which parts."""

    relation: Relation
    collations: tuple[str | None, ...]  # of the key's columns, quoted
    parts: tuple[Range, ...]
    partitioned: bool = False
    filter: str | None = None  # the publication's own condition for rows

    @property
    def by(self) -> tuple[RelationColumn, ...]:
        """The columns of the key, in its order; () for one that has none: then by ctid."""
        return key_columns(self.relation)

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        bounds = [part.low for part in self.parts[1:]]
        return {
            "relation": self.relation.document(),
            "collations": list(self.collations),
            "partitioned": self.partitioned,
            "filter": self.filter,
            "bounds": [list(bound) for bound in bounds if isinstance(bound, tuple)],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Plan:
        """Read what `document` gave."""
        bounds = [tuple(bound) for bound in document["bounds"]]
        return cls(
            Relation.of(document["relation"]),
            tuple(document["collations"]),
            ranges(bounds),
            document["partitioned"],
            document["filter"],
        )

    @property
    def table(self) -> sql.Composable:
        """What is read: the rows of a table that others inherit from are not theirs."""
        name = sql.Identifier(self.relation.name.schema, self.relation.name.table)
        return name if self.partitioned else sql.SQL("ONLY {}").format(name)


def key_columns(relation: Relation) -> tuple[RelationColumn, ...]:
    """The columns of a relation's key, in the key's order."""
    by_name = {column.name: column for column in relation.columns}
    return tuple(by_name[name] for name in relation.key)


def identity_columns(relation: Relation) -> tuple[RelationColumn, ...]:
    """What tells one row from another: the key, or, without one, all there is."""
    return key_columns(relation) or relation.columns


def describe(connection: Connection, address: Address, oid: int) -> Relation | None:
    """The relation as the catalog has it for the transaction that asks; None if it is not published."""
    with answering(address, "describe a table"):
        cursor = connection.execute(_RELATION, {"publication": address.publication, "oid": oid})
        names = [one.name for one in cursor.description or ()]
        row = cursor.fetchone()
    return None if row is None else Relation.of(dict(zip(names, row, strict=True)))


# --- the plan -----------------------------------------------------------------------------------------


def plan(
    connection: Connection, address: Address, relation: Relation, *, unit_bytes: int = UNIT_BYTES
) -> Plan:
    """Cut the table as it is now."""
    with answering(address, "plan the units of a table"):
        known: dict[str, str] = dict(connection.execute(_COLLATIONS, (relation.oid,)).fetchall())
        shape = connection.execute(_SHAPE, (relation.oid, address.publication)).fetchone()
        sizes = connection.execute(_SIZES, (relation.oid,) * 3).fetchall()
        pages = max(row[0] for row in sizes) // _PAGE_BYTES
        wanted = units_wanted(max(row[1] for row in sizes), unit_bytes=unit_bytes)
        collations = tuple(known.get(column.name) for column in key_columns(relation))
        partitioned, condition = shape or (False, None)
        whole = Plan(relation, collations, ranges([]), partitioned, condition)
        bounds = _sampled(connection, whole, pages, wanted) if whole.by else _pages(pages, wanted)
    return replace(whole, parts=ranges(bounds))


def units_wanted(table_bytes: int, *, unit_bytes: int = UNIT_BYTES) -> int:
    """How many units a table of this size asks for."""
    return max(1, min(-(-table_bytes // unit_bytes), UNITS_MAX))


def _pages(pages: int, wanted: int) -> list[Key]:
    """Where every so many pages end. A table that grows does so behind the last bound."""
    return [(str(n * pages // wanted),) for n in range(1, wanted) if n * pages // wanted]


def _sampled(connection: Connection, plan: Plan, pages: int, wanted: int) -> list[Key]:
    """Keys that cut a sample of the pages into equal parts, in the server's order."""
    if wanted < 2:
        return []
    columns = plan.by
    names = [sql.Identifier(f"k{n}") for n in range(len(columns))]
    share = min(100.0, 100.0 * max(100, wanted * _PAGES_PER_UNIT) / max(1, pages))
    query = sql.SQL(
        "WITH sample AS (SELECT {named}, row_number() OVER (ORDER BY {keys}) AS n_, count(*) OVER () AS all_"
        " FROM {table} TABLESAMPLE SYSTEM ({share})),"
        " cuts AS (SELECT DISTINCT 1 + c * all_ / {wanted} AS at_ FROM sample, generate_series(1, {last}) c"
        " WHERE n_ = 1)"
        " SELECT {texts} FROM sample JOIN cuts ON n_ = at_ ORDER BY n_"
    ).format(
        keys=_names(columns),
        named=sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(sql.Identifier(c.name), k) for c, k in zip(columns, names, strict=True)
        ),
        table=plan.table,
        share=sql.Literal(share),
        wanted=sql.Literal(wanted),
        last=sql.Literal(wanted - 1),
        texts=sql.SQL(", ").join(map(_text_of, names)),
    )
    return [tuple(row) for row in connection.execute(query).fetchall()]


# --- SQL of ranges ------------------------------------------------------------------------------------


def condition(plan: Plan, part: Range) -> sql.Composable:
    """What holds for the rows of a range and no others."""
    bounds = [(">=", part.low), ("<", part.high)]
    told = [(sign, bound) for sign, bound in bounds if isinstance(bound, tuple)]
    parts = [
        sql.SQL("{} {} {}").format(_place(plan), sql.SQL(sign), _bound(plan, bound)) for sign, bound in told
    ]
    if plan.filter is not None:
        parts.append(sql.SQL("({})").format(_raw(plan.filter)))
    return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")


def _place(plan: Plan) -> sql.Composable:
    return sql.SQL("({})").format(_names(plan.by)) if plan.by else sql.SQL("ctid")


def _bound(plan: Plan, bound: Key) -> sql.Composable:
    if not plan.by:
        return sql.SQL("{}::tid").format(sql.Literal(f"({bound[0]},0)"))
    pairs = zip(bound, plan.by, strict=True)
    return sql.SQL("({})").format(sql.SQL(", ").join(_typed(sql.Literal(t), c) for t, c in pairs))


def units_of(connection: Connection, address: Address, plan: Plan, keys: Sequence[Key]) -> list[int]:
    """Which unit each key is in: how many bounds are not above it."""
    inner = [part.low for part in plan.parts[1:]]
    bounds = [bound for bound in inner if isinstance(bound, tuple)]
    if not bounds or not plan.by:
        return [0] * len(keys)
    names = [sql.Identifier(f"k{n}") for n in range(len(plan.by))]
    triples = list(zip(names, plan.by, plan.collations, strict=True))
    query = sql.SQL(
        "SELECT (SELECT count(*) FROM unnest({bounds}) WITH ORDINALITY AS b({names}, o_)"
        " WHERE ({asked}) >= ({edges})) FROM unnest({keys}) WITH ORDINALITY AS u({names}, n_) ORDER BY n_"
    ).format(
        bounds=_columns(len(plan.by)),
        keys=_columns(len(plan.by)),
        names=sql.SQL(", ").join(names),
        asked=sql.SQL(", ").join(_compared("u", *triple) for triple in triples),
        edges=sql.SQL(", ").join(_compared("b", *triple) for triple in triples),
    )
    values = [list(column) for column in zip(*bounds, strict=True)]
    values += [list(column) for column in zip(*keys, strict=True)]
    with answering(address, "compare keys"):
        return [row[0] for row in connection.execute(query, values).fetchall()] if keys else []


def _columns(count: int) -> sql.Composable:
    return sql.SQL(", ").join([sql.SQL("%s::text[]")] * count)


def _compared(
    alias: str, name: sql.Identifier, column: RelationColumn, collation: str | None
) -> sql.Composable:
    """A text as a value of the key's column, under the column's collation."""
    value = _typed(sql.SQL("{}.{}").format(sql.SQL(alias), name), column)
    return value if collation is None else sql.SQL("{} COLLATE {}").format(value, _raw(collation))


def _typed(text: sql.Composable, column: RelationColumn) -> sql.Composable:
    return sql.SQL("{}::{}").format(text, _raw(column.type_name))


def _text_of(value: sql.Composable) -> sql.Composable:
    """By the type's own output, which not every cast to text gives."""
    return sql.SQL("format('%s', {})").format(value)


def _raw(spelling: str) -> sql.SQL:
    """What the catalog has quoted."""
    return sql.SQL(spelling)


def _names(columns: Sequence[RelationColumn]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
