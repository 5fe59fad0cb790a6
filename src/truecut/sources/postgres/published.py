"""The catalog of now: which tables are published and what they look like, and where the log was then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.rows import dict_row

from truecut.model.table import TableName
from truecut.sources.postgres import server
from truecut.sources.postgres.footing import Footing, footings
from truecut.sources.postgres.leaves import Leaves, leaves_of
from truecut.sources.postgres.messages import HEARTBEAT, lsn_of
from truecut.sources.postgres.relation import CATALOG_QUERY, TABLE_QUERY, Relation, from_catalog
from truecut.sources.postgres.server import Address, Connection
from truecut.sources.postgres.shape import sql_name

_BEAT = "SELECT pg_logical_emit_message(false, %s, '')::text"
_HERE = "SELECT pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True, slots=True)
class Published:
    """Tables by name. Whoever has everything before `lsn` has what the catalog knew."""

    relations: Mapping[TableName, Relation]
    lsn: int
    footings: Mapping[TableName, Footing] = field(default_factory=dict)
    leaves: Leaves = field(default_factory=dict)


NOTHING = Published({}, 0)


def look(address: Address, known: Published) -> Published:
    """Read it, then the place. Where something is new, a message in the log makes capture come by at once."""
    connection = server.connect(address)
    with connection, server.asking(connection, address, "describe its tables"):
        relations = relations_of(connection, address)
        stands = footings(connection, address, known.footings)
        leaves = leaves_of(connection, [relation.oid for relation in relations.values()])
        is_new = not known.relations or (relations, stands) != (known.relations, known.footings)
        return Published(relations, place(connection, beat=is_new), stands, leaves)


def relations_of(connection: Connection, address: Address) -> dict[TableName, Relation]:
    """What is published now."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(CATALOG_QUERY, {"publication": address.publication}).fetchall()
    return {relation.name: relation for relation in from_catalog(rows).values()}


def to_be_published(connection: Connection, table: TableName) -> Relation | None:
    """As a publication of all its columns will have it; None: there is no such table."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(TABLE_QUERY, {"table": sql_name(table)}).fetchall()
    return next(iter(from_catalog(rows).values()), None)


def place(connection: Connection, *, beat: bool) -> int:
    """How far the server's log is."""
    row = connection.execute(_BEAT, (HEARTBEAT,)) if beat else connection.execute(_HERE)
    (text,) = row.fetchone() or ("0/0",)
    return lsn_of(text)
