"""What the server says about the rows themselves: the same rows would make it say so again.

Such an error stops its table, never the others, and in words that hold no value of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from truecut.sinks import stops
from truecut.sinks.copies import TableStop
from truecut.sinks.postgres.encode import OutOfRange, Ragged

_RAGGED = "a list of lists is ragged, or has an empty list or a NULL for a list, which its arrays never have"
_OUT_OF_RANGE = "a date or time lies outside of what PostgreSQL holds"
_DATA = {
    "22021": "a text holds the character NUL, which PostgreSQL cannot store",
    "22P05": "the encoding of the sink's database lacks a character of a text",
    "22008": _OUT_OF_RANGE,
    "22003": "a number lies outside of what its column holds",
    "22P02": "a text is no value of its column's type",
    "22007": "a moment or interval is not known to its version (before 17 it has no infinite intervals)",
    "42622": "a name is longer than 63 bytes",
    "54000": "a row is too long for PostgreSQL's page, or a key for its index",
    "54011": "PostgreSQL has no room for so many columns",
}
_CONSTRAINTS = {"23502": "NOT NULL", "23503": "FOREIGN KEY", "23505": "UNIQUE", "23514": "CHECK"}
_DEPENDED_ON = ("2BP01", "0A000")  # a view, a policy


@contextmanager
def about_rows(table: str) -> Iterator[None]:
    """TableStop for what only this table's rows, or its table at the sink, are to blame for."""
    try:
        yield
    except OutOfRange as error:
        raise stops.not_taken(table, _OUT_OF_RANGE) from error
    except Ragged as error:
        raise stops.not_taken(table, _RAGGED) from error
    except psycopg.Error as error:
        stop = _stop(table, error)
        if stop is None:
            raise
        raise stop from None


def _stop(table: str, error: psycopg.Error) -> TableStop | None:
    state = error.sqlstate or ""
    if state in _DATA or state[:2] in ("22", "54"):
        return stops.not_taken(table, _DATA.get(state, f"SQLSTATE {state}"))
    if state[:2] == "23" and error.diag.schema_name != "pg_catalog":
        return _constrained(table, _CONSTRAINTS.get(state, f"SQLSTATE {state}"), error)
    if state in _DEPENDED_ON:
        message = (
            f"{table}: something else at the sink (a view) depends on its table there, which has to be "
            "altered or made anew; drop it there first"
        )
        return TableStop(table, "TC3032", message)
    if state[:2] == "42" and state not in ("42501", "42P06", "42P07"):
        return stops.altered(table)
    return None


def _constrained(table: str, kind: str, error: psycopg.Error) -> TableStop:
    name = error.diag.constraint_name
    told = kind if name is None else f"{kind}, {name}"
    return stops.constrained(table, told)
