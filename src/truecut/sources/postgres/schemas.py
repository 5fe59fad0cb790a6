"""What a relation was when its changes were made: the stream's announcement, completed from the catalog.

The announcement is of the place in the log, the catalog is of now. A column that both know by name, type and
modifier is described by the catalog; of one that has changed since, the type alone is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg.rows import dict_row

from truecut.model.table import TableName
from truecut.sources.postgres.messages import Unreadable
from truecut.sources.postgres.relation import (
    CATALOG_QUERY,
    FULL,
    NUMBER_UNKNOWN,
    Relation,
    RelationColumn,
    from_catalog,
)
from truecut.sources.postgres.server import Address, Connection, asking

_COLUMN = struct.Struct(">Ii")

# %(oids)s and %(typmods)s of columns → what `RelationColumn` says of their types.
_TYPES = """
WITH RECURSIVE asked AS (
  SELECT DISTINCT * FROM unnest(%(oids)s::oid[], %(typmods)s::int[]) a(oid, typmod)
), down(type_oid, asked_typmod, depth, oid, typmod, dims, in_array) AS (
  SELECT oid, typmod, 0, oid, typmod, 0, false FROM asked
UNION ALL
  SELECT d.type_oid, d.asked_typmod, d.depth + 1,
    CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE e.oid END,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE d.typmod END,
    CASE WHEN t.typtype = 'd' THEN greatest(d.dims, t.typndims) ELSE greatest(d.dims, 1) END,
    d.in_array OR t.typtype <> 'd'
  FROM down d JOIN pg_type t ON t.oid = d.oid LEFT JOIN pg_type e ON e.typarray = t.oid
  WHERE t.typtype = 'd' OR (e.oid IS NOT NULL AND NOT d.in_array)
)
SELECT DISTINCT ON (d.type_oid, d.asked_typmod) d.type_oid::int8 AS type_oid, d.asked_typmod AS typmod,
  d.dims, format_type(d.type_oid, d.asked_typmod) AS type_name, d.oid::int8 AS base_oid,
  d.typmod AS base_typmod,  t.typtype::text AS base_kind, t.typname AS base_name,
  t.typdelim::text AS delimiter
FROM down d JOIN pg_type t ON t.oid = d.oid ORDER BY d.type_oid, d.asked_typmod, d.depth DESC
"""


@dataclass(frozen=True, slots=True)
class Announced:
    """A Relation message."""

    oid: int
    name: TableName
    replica_identity: str
    columns: tuple[tuple[str, int, int, bool], ...]  # name, type, modifier, part of the identity


def announced(message: bytes) -> Announced:
    """Read a Relation message."""
    try:
        schema, at = _text(message, 5)
        table, at = _text(message, at)
        identity = chr(message[at])
        (count,) = struct.unpack_from(">H", message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            key = bool(message[at] & 1)
            name, at = _text(message, at + 1)
            columns.append((name, *_COLUMN.unpack_from(message, at), key))
            at += _COLUMN.size
    except (IndexError, struct.error, ValueError):
        raise Unreadable("a Relation message that ends too soon") from None
    name_ = TableName(schema or "pg_catalog", table)
    return Announced(int.from_bytes(message[1:5], "big"), name_, identity, tuple(columns))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


class Catalog:
    """The catalog of one session, asked once for everything that is described until `forget`."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection = connection
        self._address = address
        self._relations: Mapping[int, Relation] | None = None

    def forget(self) -> None:
        """What is announced from now on may be of a later state."""
        self._relations = None

    def describe(self, message: bytes) -> Relation:
        """The relation of a Relation message, as it was there."""
        one = announced(message)
        if self._relations is None:
            self._relations = self._ask()
        found = self._relations.get(one.oid)
        columns = {column.name: column for column in found.columns} if found else {}
        return Relation(
            one.oid,
            one.name,
            one.replica_identity,
            _key(one, found),
            self._completed(one, columns),
            found.late if found else (),
        )

    def _ask(self) -> Mapping[int, Relation]:
        with (
            asking(self._connection, self._address, "describe its tables"),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            rows = cursor.execute(CATALOG_QUERY, {"publication": self._address.publication}).fetchall()
        return from_catalog(rows)

    def _completed(self, one: Announced, columns: Mapping[str, RelationColumn]) -> tuple[RelationColumn, ...]:
        strange = [c for c in one.columns if not _same(c, columns.get(c[0]))]
        types = self._types(strange) if strange else {}
        found = tuple(
            replace(columns[name], identity=key)
            if _same((name, oid, typmod, key), columns.get(name))
            else RelationColumn(
                NUMBER_UNKNOWN,
                name,
                identity=key,
                generated=False,
                nullable=True,
                **_type(types, oid, typmod),
            )
            for name, oid, typmod, key in one.columns
        )
        return found if _in_order(found) else tuple(replace(c, number=NUMBER_UNKNOWN) for c in found)

    def _types(self, columns: list[tuple[str, int, int, bool]]) -> dict[tuple[int, int], dict[str, Any]]:
        arguments = {"oids": [c[1] for c in columns], "typmods": [c[2] for c in columns]}
        with (
            asking(self._connection, self._address, "describe its types"),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            rows = cursor.execute(_TYPES, arguments).fetchall()
        return {(row["type_oid"], row["typmod"]): row for row in rows}


def _type(types: Mapping[tuple[int, int], dict[str, Any]], oid: int, typmod: int) -> dict[str, Any]:
    """A type that has been dropped since is text: that is what the stream holds of it."""
    gone = {"dims": 0, "type_name": "text", "base_oid": 25, "base_typmod": -1, "base_kind": "b"}
    return types.get((oid, typmod), {"type_oid": oid, "typmod": typmod, "base_name": "text", **gone})


def _in_order(columns: tuple[RelationColumn, ...]) -> bool:
    """The stream has columns by their numbers; where names were exchanged since, they are not."""
    numbers = [column.number for column in columns if column.number != NUMBER_UNKNOWN]
    return sorted(numbers) == numbers


def _same(announced_column: tuple[str, int, int, bool], column: RelationColumn | None) -> bool:
    return column is not None and announced_column[1:3] == (column.type_oid, column.typmod)


def _key(one: Announced, found: Relation | None) -> tuple[str, ...]:
    """What identified rows at that place, in the catalog's order; where the announcement does not tell, the
    catalog's, as long as these columns are there."""
    names = {name for name, *_ in one.columns}
    told = tuple(name for name, *_, key in one.columns if key) if one.replica_identity != FULL else ()
    now = found.key if found is not None and set(found.key) <= names else ()
    return now if not told or set(told) == set(now) else told
