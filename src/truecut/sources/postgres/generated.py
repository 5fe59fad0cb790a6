"""Columns that the server computes: which of them no copy has, because the log does not tell them.

A server from 18 on publishes stored ones where the publication says so; older ones publish none, and nobody
publishes virtual ones. A publication with a list of columns is its maker's own choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from truecut.model.table import TableName
from truecut.sources.postgres.server import PUBLISHED_GENERATED_FROM, Address, Connection, asking

_LEFT_OUT = """
SELECT n.nspname, c.relname,
  array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attgenerated = 's'),
  array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attgenerated <> 's')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
LEFT JOIN pg_publication p ON p.pubname = %(publication)s
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_tables t
  ON t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND r.prattrs IS NULL
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%%'
  AND (a.attname = ANY (t.attnames)) IS NOT TRUE
GROUP BY 1, 2 ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Of one table. `stored` can be published by this server, by SQL; what is in `never` cannot."""

    table: TableName
    stored: tuple[str, ...]
    never: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.stored, *self.never)


def left_out(connection: Connection, address: Address) -> list[LeftOut]:
    """Of the pipeline's tables, or of all where it names none. A publication that is not there yet will be
    ours, and says what can be said."""
    publishes = connection.info.server_version >= PUBLISHED_GENERATED_FROM
    with asking(connection, address, "tell what is published"):
        query = "SELECT FROM pg_publication WHERE pubname = %s"
        exists = connection.execute(query, (address.publication,)).fetchone() is not None
        rows = connection.execute(_LEFT_OUT, {"publication": address.publication}).fetchall()
    found = []
    for schema, name, stored, virtual in rows:
        one = TableName(schema, name)
        if address.tables and one not in address.tables:
            continue
        mendable = tuple(stored or ()) if publishes and exists else ()
        never = (*(() if publishes else stored or ()), *(virtual or ()))
        if mendable or never:
            found.append(LeftOut(one, mendable, never))
    return found
