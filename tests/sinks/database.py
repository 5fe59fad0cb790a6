"""PostgreSQL as the tests look at it, by plain psycopg."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from truecut.sinks.postgres.address import PostgresAddress
from truecut.sinks.postgres.sink import PostgresSink


def sink(address: PostgresAddress, *, pipeline: str = "tenants", existing: Any = "refuse") -> PostgresSink:
    return PostgresSink(name="acme", pipeline=pipeline, address=address, existing=existing)


def read(address: PostgresAddress, sql: str) -> list[tuple[Any, ...]]:
    """What a client of the database gets."""
    with psycopg.connect(address.dsn.reveal()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(sql.encode()).fetchall()


def owner(address: PostgresAddress, *statements: str) -> None:
    """The database's owner does something of their own."""
    with psycopg.connect(address.dsn.reveal(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


Seen = tuple[str | None, int, dict[str, list[Any]]]


def seen(address: PostgresAddress, pipeline: str = "tenants") -> Seen:
    """The cursor's row: position, token, and for each table what `places_in` says."""
    where = f"pipeline = '{pipeline}' AND sink = 'acme'"
    ((position, token, state),) = read(
        address, f"SELECT position, token, state FROM _truecut.cursor WHERE {where}"
    )
    return position, token, places_in(state)


def cursor_of(address: PostgresAddress, pipeline: str = "tenants") -> tuple[str | None, int]:
    """Its position and token."""
    return seen(address, pipeline)[:2]


def places_of(address: PostgresAddress) -> dict[str, list[Any]]:
    """Its tables."""
    return seen(address)[2]


def places_in(state: str) -> dict[str, list[Any]]:
    """Place, edition, code of the hold and answered request of each table, from a cursor's row."""
    return {
        table: [copy["at"], copy["edition"], copy["hold"] and copy["hold"][0], copy["resumed"]]
        for table, copy in json.loads(state)["copies"].items()
    }
