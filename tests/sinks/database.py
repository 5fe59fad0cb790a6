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


def cursor_of(address: PostgresAddress, pipeline: str = "tenants") -> tuple[str | None, int]:
    """Position and token."""
    sql = f"SELECT position, token FROM _truecut.cursor WHERE pipeline = '{pipeline}' AND sink = 'acme'"
    ((position, token),) = read(address, sql)
    return position, token


def places_of(address: PostgresAddress) -> dict[str, list[Any]]:
    """Place, edition, code of the hold and answered request of each table."""
    ((state,),) = read(address, "SELECT state FROM _truecut.cursor WHERE sink = 'acme'")
    return {
        table: [copy["at"], copy["edition"], copy["hold"] and copy["hold"][0], copy["resumed"]]
        for table, copy in json.loads(state)["copies"].items()
    }
