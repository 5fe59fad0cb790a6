"""What a table stands on: marks in the catalog by which one sees that rows came or went beside the log.

The log does not tell of a table that left the published schema for a while, of one that was rewritten (its
values may be others, or it was unlogged meanwhile), of partitions that are attached, detached, dropped, or
truncated by their own names. The catalog shows each of them afterwards, too, by a mark that nothing else
changes: who put the table into its schema, which files it has (a TRUNCATE, which the log has, and VACUUM FULL
leave the one of its large values), who attached a partition. Nor does it tell that values read otherwise: a
label of an enum was renamed, a composite got another attribute, an address was a network before. Nor whose
values are told that were captured when a column had already been made anew under its name and type: the new
one's number shows that. Pure but for the questions at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import errors

from truecut.model.table import TableName
from truecut.sources.postgres.server import Address, Connection

LOCK_MS = 500
MADE_ANEW = "a column was made anew under its name and type, and which of both was written to is not told"


@dataclass(frozen=True, slots=True)
class Part:
    """A partition, at whatever depth."""

    file: int  # 0: it has partitions itself
    attached: int  # by which transaction

    def document(self) -> list[int]:
        """As JSON documents hold it."""
        return [self.file, self.attached]


@dataclass(frozen=True, slots=True)
class Footing:
    """Of one table."""

    oid: int
    file: int
    toast: int  # where its large values are; 0 for nowhere
    schema: int | None  # by which transaction it is in its schema, where only that publishes it
    listed: bool  # the publication names it: then the server refuses to make it unlogged
    parts: Mapping[int, Part] = field(default_factory=dict)
    empty: frozenset[int] = frozenset()  # partitions that came without rows of their own
    spelled: Mapping[str, str] = field(default_factory=dict)  # on what the texts of its values depend
    columns: Mapping[str, int] = field(default_factory=dict)  # name and type → number, also of former ones
    bare: frozenset[int] = frozenset()  # columns by their numbers, without what older rows hold in them

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        parts = {str(oid): part.document() for oid, part in sorted(self.parts.items())}
        marks = {"oid": self.oid, "file": self.file, "toast": self.toast}
        more = {"schema": self.schema, "listed": self.listed, "spelled": dict(self.spelled)}
        return {**marks, **more, "columns": dict(self.columns), "parts": parts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Footing:
        """Read what `document` gave."""
        parts = {int(oid): Part(*part) for oid, part in document["parts"].items()}
        return cls(**{**document, "parts": parts})

    def behind(self, before: Footing) -> Footing:
        """With the columns that the same table had before: one of them may be made anew later."""
        return replace(self, columns={**before.columns, **self.columns})


@dataclass(frozen=True, slots=True)
class Shaken:
    """Why the log between two looks does not tell all. `events`: changes may be missing in it; otherwise rows
    changed without any, which tables that keep every change do not ask for."""

    why: str
    events: bool


def shaken(before: Footing, now: Footing) -> Shaken | None:
    """What happened to the same table between two looks; None where the log has all of it."""
    if before.schema is not None and now.schema is not None and before.schema != now.schema:
        return Shaken("it was out of the schema that is published", events=True)
    if now.file != before.file and (now.toast != before.toast or not now.toast):
        return Shaken("it was rewritten, and its log does not tell what its rows became", not now.listed)
    if any(now.columns.get(one, number) != number for one, number in before.columns.items()):
        return Shaken(MADE_ANEW, events=True)
    if now.file != before.file and now.bare - set(before.columns.values()):
        anew = "a column came and it was written anew, and what its rows got there is not told any more"
        return Shaken(anew, events=False)
    why = _of_parts(before.parts, now) or _of_types(before.spelled, now.spelled)
    return None if why is None else Shaken(why, events=False)


def _of_types(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What came is of no old row, and what went is told with the columns."""
    if any(now.get(one, mark) != mark for one, mark in before.items()):
        return "a type of its columns was altered, and its values read otherwise than they were told"
    return None


def _of_parts(before: Mapping[int, Part], now: Footing) -> str | None:
    if before.keys() - now.parts.keys():
        return "a partition was detached or dropped"
    for oid, part in now.parts.items():
        known = before.get(oid)
        if known is None:
            if oid not in now.empty:
                return "a partition was attached that had rows"
        elif known.attached != part.attached:
            return "a partition was detached for a while"
        elif known.file != part.file:
            return "a partition was truncated or rewritten by its own name"
    return None


# --- asked of the catalog -------------------------------------------------------------------------------

# One row for each table and each of its partitions. A partition that was born as one has columns as old as
# itself; one that was attached got them anew then.
_FOOTINGS = """
WITH RECURSIVE published AS (
  SELECT c.oid, n.nspname, c.relname, pub.oid AS pub, pub.puballtables
  FROM pg_publication_tables p JOIN pg_publication pub ON pub.pubname = p.pubname
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
  WHERE p.pubname = %(publication)s AND (%(only)s::oid IS NULL OR c.oid = %(only)s::oid)
), tree(root, oid, attached) AS (
  SELECT oid, oid, NULL::xid FROM published
UNION ALL
  SELECT t.root, i.inhrelid, i.xmin FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
  JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relispartition
)
SELECT p.nspname, p.relname, p.oid::int8, c.oid::int8, c.relfilenode::int8, c.reltoastrelid::int8,
  t.attached::text::int8, c.relkind = 'p', EXISTS (SELECT FROM pg_publication_rel r
    WHERE r.prpubid = p.pub AND r.prrelid = p.oid) AS listed, p.puballtables,
  (SELECT d.xmin::text::int8 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = p.oid
     AND d.objsubid = 0 AND d.refclassid = 'pg_namespace'::regclass) AS schema,
  t.attached IS NOT NULL AND EXISTS (
    SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = -1
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attinhcount > 0
      AND a.xmin = s.xmin AND a.cmin::text = s.cmin::text) AS born
FROM tree t JOIN published p ON p.oid = t.root JOIN pg_class c ON c.oid = t.oid
"""


# Labels of enums and attributes of composites, in whatever its columns are made of; and columns of types, or
# of domains over them, that the server takes for one another without a rewrite, and writes in other words (an
# array of them is rewritten). A label that is renamed has its row written anew; an attribute that comes has a
# number that none had.
_SPELLED = """
WITH RECURSIVE published AS (
  SELECT c.oid FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
  WHERE p.pubname = %(publication)s AND (%(only)s::oid IS NULL OR c.oid = %(only)s::oid)
), columns AS (
  SELECT a.attrelid, a.attnum, a.atttypid FROM published p
  JOIN pg_attribute a ON a.attrelid = p.oid AND a.attnum > 0 AND NOT a.attisdropped
), types(root, oid) AS (
  SELECT DISTINCT attrelid, atttypid FROM columns WHERE atttypid >= 16384
UNION
  SELECT t.root, part.oid FROM types t JOIN pg_type y ON y.oid = t.oid CROSS JOIN LATERAL (
    SELECT y.typbasetype WHERE y.typtype = 'd'
    UNION ALL SELECT y.typelem WHERE y.typelem <> 0
    UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE y.oid IN (g.rngtypid, g.rngmultitypid)
    UNION ALL SELECT a.atttypid FROM pg_attribute a
      WHERE y.typtype = 'c' AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  ) part(oid) WHERE part.oid >= 16384
), down(attrelid, attnum, oid) AS (
  SELECT * FROM columns
UNION ALL
  SELECT d.attrelid, d.attnum, y.typbasetype FROM down d JOIN pg_type y ON y.oid = d.oid AND y.typtype = 'd'
)
SELECT t.root::int8, 'label ' || e.oid, e.xmin::text FROM types t JOIN pg_enum e ON e.enumtypid = t.oid
UNION ALL
SELECT t.root::int8, 'composite ' || y.oid, c.relnatts || ' ' || (
    SELECT string_agg(a.attnum::text, ' ' ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM types t JOIN pg_type y ON y.oid = t.oid AND y.typtype = 'c' JOIN pg_class c ON c.oid = y.typrelid
UNION ALL
SELECT attrelid::int8, 'column ' || attnum, oid::int8::text FROM down
WHERE oid = ANY('{cidr,inet,int4,oid,regclass,regcollation,regconfig,regdictionary,regnamespace,
  regoper,regoperator,regproc,regprocedure,regrole,regtype}'::regtype[])
"""

_COLUMNS = """
SELECT a.attrelid::int8, format('%%s %%s %%s', a.atttypid::int8, a.atttypmod, a.attname), a.attnum::int8,
  a.atthasmissing
FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE p.pubname = %(publication)s AND (%(only)s::oid IS NULL OR c.oid = %(only)s::oid)
"""


def footings(
    connection: Connection,
    address: Address,
    known: Mapping[TableName, Footing],
    *,
    only: int | None = None,
) -> dict[TableName, Footing]:
    """Of every published table, or of one. `known`: partitions that were looked at before are not looked
    into."""
    arguments = {"publication": address.publication, "only": only}
    rows = connection.execute(_FOOTINGS, arguments).fetchall()
    spelled: dict[int, dict[str, str]] = {}
    for root, what, mark in connection.execute(_SPELLED, arguments).fetchall():
        spelled.setdefault(root, {})[what] = mark or ""
    columns: dict[int, dict[str, int]] = {}
    bare: dict[int, set[int]] = {}
    for root, what, number, told in connection.execute(_COLUMNS, arguments).fetchall():
        columns.setdefault(root, {})[what] = number
        if not told:
            bare.setdefault(root, set()).add(number)
    trees: dict[TableName, list[Any]] = {}
    for row in rows:
        trees.setdefault(TableName(row[0], row[1]), []).append(row)
    return {
        name: replace(
            _footing(connection, tree, known.get(name)),
            spelled=spelled.get(tree[0][2], {}),
            columns=columns.get(tree[0][2], {}),
            bare=frozenset(bare.get(tree[0][2], ())),
        )
        for name, tree in trees.items()
    }


def _footing(connection: Connection, tree: Iterable[Any], known: Footing | None) -> Footing:
    seen = frozenset() if known is None else known.parts.keys() | known.empty
    parts: dict[int, Part] = {}
    empty: set[int] = set()
    for _, _, root, oid, file, toast, attached, is_parent, listed, everything, schema, born in tree:
        if oid == root:
            own = Footing(oid, file, toast, None if listed or everything else schema, listed)
            continue
        parts[oid] = Part(file, attached)
        if oid in seen:
            continue
        if is_parent or (file == oid and (born or _is_empty(connection, oid))):
            empty.add(oid)
    return replace(own, parts=parts, empty=frozenset(empty))


def _is_empty(connection: Connection, oid: int) -> bool:
    """Its files are; not known, and so not believed, while somebody has it for himself."""
    connection.execute(f"SET lock_timeout = {LOCK_MS}".encode())
    try:
        row = connection.execute("SELECT pg_relation_size(%s::oid::regclass)", (oid,)).fetchone()
    except (errors.LockNotAvailable, errors.UndefinedTable):
        return False
    finally:
        connection.execute("RESET lock_timeout")
    return row == (0,)
