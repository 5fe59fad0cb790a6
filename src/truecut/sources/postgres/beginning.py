"""A PostgreSQL as `truecut init` begins with it: its section of the file, and the tables it has."""

from __future__ import annotations

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from truecut.config.beginning import Beginning, FoundTable
from truecut.config.kinds import Unusable
from truecut.config.secret import Secret
from truecut.sources.postgres import server
from truecut.sources.postgres.server import Address

_VARIABLE = "SOURCE_DSN"
_SECTION = """\
type: postgres
dsn: ${{{variable}}}           # postgresql://USER:PASSWORD@HOST/DATABASE
# slot: truecut_NAME            # made when it is missing
# publication: truecut_NAME     # the same, for the tables below
# wal_budget: {{bytes_max: 10GiB, then: warn}}   # of its log that the server may keep for us; or give_up
"""
_TABLES = """
SELECT n.nspname, c.relname, (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  coalesce((SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i,
    unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place), pg_attribute a
    WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate
      AND a.attrelid = c.oid AND a.attnum = k.number), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', '_truecut') AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2
"""


def begin(dsn: str | None) -> Beginning:
    """With a DSN the database is looked at; it is not written into the file, for its password's sake."""
    section = _SECTION.format(variable=_VARIABLE)
    if dsn is None:
        return Beginning(section)
    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:
        raise Unusable("dsn", "not a connection string; write postgresql://USER@HOST/DATABASE") from None
    note = f"set the environment variable {_VARIABLE} to the --dsn you gave"
    return Beginning(section, tables(Address(Secret(dsn), "", "")), note)


def tables(address: Address) -> list[FoundTable]:
    """Every table of its own that is logged; a partitioned one stands for its partitions."""
    connection = server.connect(address)
    with connection, server.asking(connection, address, "list its tables"):
        rows = connection.execute(_TABLES.encode()).fetchall()
    return [FoundTable(schema, name, tuple(columns or ()), tuple(key)) for schema, name, columns, key in rows]
