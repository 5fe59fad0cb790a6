"""The cursor and the fence of a PostgreSQL sink: `_truecut.cursor`, one row for each pipeline and sink.

Why takeover and commit cannot both win: both write the one row, so the row's lock puts them in an order. A
commit reads the row under that lock (FOR UPDATE), after its data, and stops unless the token is its own; in
READ COMMITTED the row it gets is the newest one, waited for if need be. A takeover is one UPDATE of the same
row. If the commit has the lock, the takeover waits and its answer holds what was committed; if the takeover
has it, the commit finds another token and rolls everything back, however long it slept before.
"""

from __future__ import annotations

from typing import Any

from psycopg import errors

from truecut.model.cursor import Cursor
from truecut.model.position import Position, text_of
from truecut.sinks.postgres.server import Connection, row, run

SCHEMA = "_truecut"
TABLE = f"{SCHEMA}.cursor"
_COLUMNS = "position, token, state"
_CREATE = f"""
CREATE TABLE {TABLE} (pipeline text, sink text, position text, token bigint NOT NULL, state text NOT NULL,
  applied_at timestamptz NOT NULL, PRIMARY KEY (pipeline, sink))
"""
# The state of a row that is there already stays; a larger token, too.
_TAKE_OVER = f"""
INSERT INTO {TABLE} AS c VALUES (%(pipeline)s, %(sink)s, NULL, %(token)s, %(state)s, now())
ON CONFLICT (pipeline, sink) DO UPDATE SET token = excluded.token WHERE c.token < excluded.token
RETURNING {_COLUMNS}
"""


def read_cursor(connection: Connection, pipeline: str, sink: str, *, locked: bool = False) -> Cursor | None:
    """The row, if there is one; nobody else changes it before this transaction ends if it is `locked`."""
    sql = f"SELECT {_COLUMNS} FROM {TABLE} WHERE pipeline = %s AND sink = %s" + " FOR UPDATE" * locked
    try:
        found = run(connection, sql, (pipeline, sink)).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return None
    return None if found is None else _cursor(found)


def write_cursor(connection: Connection, pipeline: str, sink: str, cursor: Cursor) -> str:
    """In the transaction that wrote the data and has the row locked; the transaction's number."""
    found = row(
        connection,
        f"UPDATE {TABLE} SET position = %s, state = %s, applied_at = now() WHERE pipeline = %s AND sink = %s "
        "RETURNING pg_current_xact_id()::text",
        (text_of(cursor.position), cursor.to_json(), pipeline, sink),
    )
    return str(found[0])


def take_over(connection: Connection, pipeline: str, sink: str, *, token: int) -> Cursor:
    """Make the row ours, or find that a larger token has it; the row as it is afterwards."""
    first = Cursor(position=None, token=token)
    words = {"pipeline": pipeline, "sink": sink, "token": token, "state": first.to_json()}
    found = run(connection, _TAKE_OVER, words).fetchone()
    if found is not None:
        return _cursor(found)
    cursor = read_cursor(connection, pipeline, sink)
    assert cursor is not None
    return cursor


def make_table(connection: Connection) -> None:
    """Where it is missing; a schema that somebody made for us needs no permission for the database."""
    if not row(connection, "SELECT to_regnamespace(%s) IS NOT NULL", (SCHEMA,))[0]:
        run(connection, f"CREATE SCHEMA {SCHEMA}")
    if not row(connection, "SELECT to_regclass(%s) IS NOT NULL", (TABLE,))[0]:
        run(connection, _CREATE)


def _cursor(found: tuple[Any, ...]) -> Cursor:
    position, token, state = found
    place = None if position is None else Position.parse(position)
    return Cursor.from_json(state, position=place, token=token)
