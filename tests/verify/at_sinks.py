"""Sinks that a test may change, real lakes and real PostgreSQL, and a copy there that is certified."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow as pa
import pytest

from tests.verify.issuer import PIPELINE, SECRET, CopyOf, Json, World
from truecut.lake import connect
from truecut_verify.main import main

numbers = itertools.count(1)
TYPES = [
    ("id", 1, "int", pa.int64(), "BIGINT"),
    ("v", 2, "text", pa.string(), "VARCHAR"),
    ("n", 3, "float", pa.float64(), "DOUBLE PRECISION"),
    ("amount", 6, "decimal:2", pa.decimal128(10, 2), "DECIMAL(10,2)"),
    ("moment", 7, "timestamp", pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE"),
    ("day", 8, "date", pa.date32(), "DATE"),
    ("raw", 9, "bytes", pa.binary(), "BYTEA"),
    ("list", 10, {"list": "int"}, pa.list_(pa.int64()), "INTEGER[]"),
    ("yes", 11, "bool", pa.bool_(), "BOOLEAN"),
]


ROW = f"INSERT INTO main.t VALUES ({', '.join('?' * len(TYPES))})"


class Typed(CopyOf):
    """With one column of many types."""

    @property
    def columns(self) -> list[tuple[str, int, Any, pa.DataType]]:
        return [one[:4] for one in TYPES]


def a_row(key: int) -> Json:
    return {
        "id": key,
        "v": "x" * key,
        "n": 0.0,
        "amount": Decimal("1.50"),
        "moment": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "day": dt.date(1969, 12, 31),
        "raw": b"\0\xff",
        "list": [1, None, key],
        "yes": True,
    }


class Sink(Protocol):
    """What a test does to a sink."""

    dsn: str

    def run(self, sql: str, *values: Any) -> Any: ...

    def each(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Any: ...


@dataclass
class LakeSink:
    dsn: str

    def run(self, sql: str, *values: Any) -> Any:
        return self.each([(sql, values)])

    def each(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        with connect() as connection:
            connection.execute(f"ATTACH '{self.dsn}' AS lake (DATA_INLINING_ROW_LIMIT 0)")
            connection.execute("USE lake")
            for sql, values in statements:
                found = connection.execute(sql.replace("BYTEA", "BLOB"), list(values)).fetchall()
            return found


@dataclass
class DatabaseSink:
    dsn: str

    def run(self, sql: str, *values: Any) -> Any:
        return self.each([(sql, values)])

    def each(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        with psycopg.connect(self.dsn) as connection:
            for sql, values in statements:
                cursor = connection.execute(sql.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []


@dataclass
class Case:
    world: World
    sink: Sink
    folder: Path

    def verify(self, capsys: pytest.CaptureFixture[str], *more: str, upto: str = "") -> tuple[int, Json]:
        """The exit code, and what V5 says."""
        capsys.readouterr()
        secret = self.folder / "secret"
        arguments = [
            "--secret",
            str(secret),
            "--sink",
            self.sink.dsn,
            *more,
            "--json",
            str(self.world.folder / upto),
        ]
        code = main(arguments)
        (found,) = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["level"] == "V5"]
        return code, found

    def move(self, **over: Any) -> None:
        """The cursor, to where the issuer is."""
        state = json.loads(self.world.state("lake"))
        state["copies"]["main.t"] |= over
        second = next(numbers) if isinstance(self.sink, LakeSink) else "lake"
        if isinstance(self.sink, DatabaseSink):
            self.sink.run("DELETE FROM _truecut.cursor")
        new = "INSERT INTO _truecut.cursor VALUES (?, ?, NULL, 1, ?, now())"
        self.sink.run(new, PIPELINE, second, json.dumps(state))


def certified(
    world: World, sink: Sink, folder: Path, columns: str, rows: Sequence[tuple[str, Sequence[Any]]]
) -> Case:
    """A world's certificate, and what it says at the sink: table main.t, its rows, a cursor."""
    world.certify()
    (folder / "secret").write_bytes(SECRET)
    numbered = "number BIGINT" if isinstance(sink, LakeSink) else "sink VARCHAR"
    cursor = (
        f"pipeline VARCHAR, {numbered}, position VARCHAR, token BIGINT, state VARCHAR, applied_at TIMESTAMPTZ"
    )
    sink.each(
        [
            (f"CREATE TABLE main.t ({columns})", ()),
            *rows,
            ("CREATE SCHEMA _truecut", ()),
            (f"CREATE TABLE _truecut.cursor ({cursor})", ()),
        ]
    )
    found = Case(world, sink, folder)
    found.move()
    return found
