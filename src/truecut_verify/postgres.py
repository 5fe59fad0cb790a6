"""A PostgreSQL, read in one REPEATABLE READ transaction, its values in PostgreSQL's own binary form.

Of a source, the transaction reads the snapshot that a temporary slot exports: exactly what committed before
the slot's place in the log. A table is locked for its own reading alone: whoever wants to alter it waits no
longer. One that was truncated or rewritten since the snapshot would look empty, and is not read. Nor is what
is no table: a view gives what its maker likes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from truecut_verify.batches import Raw, canonical_columns
from truecut_verify.columns import server_holds
from truecut_verify.digest import Form, Unencodable, decimal_bytes, integer_bytes
from truecut_verify.documents import Copy
from truecut_verify.live import Standing, standing_of
from truecut_verify.texts import SESSION
from truecut_verify.verdict import Fail, Unknown

_BATCH_ROWS = 5_000
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where PostgreSQL begins to count
_SESSION = f"{SESSION} -c row_security=off"  # rows that a policy hides are an error, never missing
_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.WrongObjectType)
_SLOT = "CREATE_REPLICATION_SLOT truecut_verify_{} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
_UNTOUCHED = """
WITH RECURSIVE tree AS (
  SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %(schema)s AND c.relname = %(table)s
  UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree t ON i.inhparent = t.oid
), stood AS (
  SELECT c.oid, c.relkind, nullif(c.relfilenode, 0) AS file FROM tree t JOIN pg_class c ON c.oid = t.oid
)
SELECT coalesce(bool_and(file IS NOT DISTINCT FROM pg_relation_filenode(oid)), false)
  AND coalesce(bool_or(oid = to_regclass(%(name)s)), false),
  coalesce(bool_and(relkind IN ('r', 'p')), true) FROM stood
"""  # the catalog tells as of the snapshot, functions as of now


@contextmanager
def open_postgres(dsn: str, *, is_source: bool) -> Iterator[Postgres]:
    """In one snapshot."""
    try:
        with psycopg.connect(dsn, options=_SESSION, application_name="truecut-verify") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            if not is_source:
                connection.execute("SELECT 1")  # the snapshot is of now, and reads are savepoints in it
                yield Postgres(connection, "")
                return
            with psycopg.connect(dsn, autocommit=True, replication="database") as log:
                made = log.execute(_SLOT.format(log.info.backend_pid).encode()).fetchone()
                assert made is not None
                connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(made[2]))
                yield Postgres(connection, str(made[1]))
    except psycopg.Error as error:
        raise Unknown(f"the server cannot be read ({type(error).__name__})") from error


class Postgres:
    """One snapshot of a database, as a sink or as a source."""

    def __init__(self, connection: psycopg.Connection[Any], place: str) -> None:
        self._connection, self._place = connection, place

    def standing(self, pipeline: str, sink: str, table: str) -> Standing | None:
        """From the pipeline's and sink's row of `_truecut.cursor`."""
        sql = "SELECT state FROM _truecut.cursor WHERE pipeline = %s AND sink = %s"
        with self._reading("the sink has no cursor that can be read"):
            found = self._connection.execute(sql, (pipeline, sink)).fetchone()
        return None if found is None else standing_of(str(found[0]), table)

    def identity(self) -> str:
        """System identifier and database: how the identity of a source begins."""
        sql = "SELECT system_identifier || '/' || current_database() || '/' FROM pg_control_system()"
        with self._reading("the server does not tell which it is"):
            found = self._connection.execute(sql).fetchone()
        return "" if found is None else str(found[0])

    def position(self, copy: Copy) -> str:
        """Only what committed up to one place in the log was read: is that the certified one?"""
        with suppress(ValueError):
            here, told = _lsn(self._place), _lsn(copy.source_at)
            return "at" if here == told else "beyond" if here > told else "before"
        return "somewhere beside"

    def rows(self, copy: Copy) -> Iterator[list[Raw]]:
        """By name, in binary form, batch by batch."""
        if not self._place:  # a source may have names of its own for a type
            self._check_columns(copy)
        batch: list[Raw] = [[] for _ in copy.columns]
        with (
            self._reading("the table, or a column of it, is not there"),
            self._untouched(copy),
            self._connection.cursor() as cursor,
            cursor.copy(_select(copy)) as reading,
        ):
            for row in reading.rows():
                for values, raw in zip(batch, row, strict=True):
                    values.append(None if raw is None else bytes(raw))
                if len(batch[0]) >= _BATCH_ROWS:
                    yield canonical_columns(copy, batch, _canonical)
                    batch = [[] for _ in copy.columns]
        yield canonical_columns(copy, batch, _canonical)

    @contextmanager
    def _untouched(self, copy: Copy) -> Iterator[None]:
        """The table as the snapshot has it, and nobody rewrites it meanwhile."""
        schema, _, table = (copy.called or copy.table).partition(".")
        name = Identifier(schema, table)
        self._connection.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
        asked = {"schema": schema, "table": table, "name": name.as_string(self._connection)}
        untouched, is_table = self._connection.execute(_UNTOUCHED, asked).fetchone() or (False, True)
        if not is_table:
            raise Fail("what stands in the place of the table is none, or a part of it is elsewhere")
        if not untouched:
            raise Unknown("it was truncated, rewritten or replaced since the moment that is read")
        yield

    def _check_columns(self, copy: Copy) -> None:
        names = SQL(", ").join(Identifier(name) for name, _, _ in copy.columns)
        schema, _, table = (copy.called or copy.table).partition(".")
        with self._reading("the table, or a column of it, is not there"):
            asked = SQL("SELECT {} FROM {} LIMIT 0").format(names, Identifier(schema, table))
            found = self._connection.execute(asked).description or []
        for column, (name, _, form) in zip(found, copy.columns, strict=True):
            kind = self._connection.adapters.types.get(column.type_code)
            is_array = kind is not None and column.type_code == kind.array_oid
            known = "" if kind is None else kind.name
            if not server_holds(known, column.scale, form, is_array=is_array):
                raise Fail("a column is of another type than what is certified", column=name)

    @contextmanager
    def _reading(self, missing: str) -> Iterator[None]:
        """In a savepoint, undone so that its locks go: a read that fails, or is left, ends neither the
        snapshot nor the reads after it."""
        try:
            with self._connection.transaction(force_rollback=True):
                yield
        except _MISSING as error:
            raise Fail(missing) from error
        except psycopg.Error as error:
            raise Unknown(f"it cannot be read ({type(error).__name__})") from error


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _select(copy: Copy) -> Composed:
    schema, _, table = (copy.called or copy.table).partition(".")
    columns = SQL(", ").join(_expression(Identifier(name), form) for name, _, form in copy.columns)
    return SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT BINARY)").format(
        columns, Identifier(schema, table)
    )


def _expression(name: Identifier, form: Form) -> Composed:
    """What is sent. `concat` shows a value as the server does, with the blanks that a cast to text drops; an
    array's own text has its elements so, and is taken apart at commas, which are between all but boxes."""
    inner, depth = form, 0
    while isinstance(inner, dict) and "list" in inner:
        inner, depth = inner["list"], depth + 1
    as_text = inner in ("int", "text") or str(inner).startswith("decimal")
    if as_text and not depth:
        return SQL("CASE WHEN num_nulls({}) = 1 THEN NULL ELSE concat({}) END").format(name, name)
    if as_text:
        return SQL(
            "CASE WHEN pg_typeof({0}) = 'box[]'::regtype THEN {0}::bpchar[]::text[] "
            "ELSE {0}::text::text[] END"
        ).format(name)
    return SQL("{}" + ("::float8" + "[]" * depth) * (inner == "float")).format(name)


def _canonical(raw: bytes | None, form: Form) -> bytes | None:
    """The canonical bytes of a value in binary form."""
    if raw is None:
        return None
    if isinstance(form, dict):
        return _list(raw, form["list"]) if "list" in form else _interval(raw, form)
    match form.partition(":")[0]:
        case "int":
            return integer_bytes(int(raw))
        case "decimal":
            return decimal_bytes(Decimal(raw.decode()), int(form.partition(":")[2]))
        case "float":
            return (
                raw
                if (number := struct.unpack(">d", raw)[0]) == number
                else bytes.fromhex("7ff8000000000000")
            )
        case "date":
            return _moment(raw, _DAYS, 31)
        case "timestamp":
            return _moment(raw, _MICROSECONDS, 63)
    return raw  # bool, text, bytes, uuid and time are the same in both


def _moment(raw: bytes, shift: int, bits: int) -> bytes:
    """Infinities are the largest number, and its negative."""
    number = int.from_bytes(raw, "big", signed=True)
    largest = (1 << bits) - 1
    if number == largest or number == -largest - 1:
        return (largest if number > 0 else -largest).to_bytes(8, "big", signed=True)
    return (number + shift).to_bytes(8, "big", signed=True)


def _interval(raw: bytes, form: dict[str, Any]) -> bytes:
    """Months, days and microseconds, which PostgreSQL sends the other way round."""
    if [name for name, _ in form.get("struct", [])] != ["months", "days", "micros"]:
        raise Unencodable("a form that PostgreSQL has not")
    micros, days, months = struct.unpack(">qii", raw)
    return b"".join(b"\1" + (8).to_bytes(8, "big") + integer_bytes(one) for one in (months, days, micros))


def _list(raw: bytes, form: Form) -> bytes:
    """An array: its dimensions, then each element with its length."""
    dimensions = int.from_bytes(raw[:4], "big")
    sizes = [int.from_bytes(raw[12 + 8 * n : 16 + 8 * n], "big") for n in range(dimensions)]
    elements = _elements(raw, 12 + 8 * dimensions)
    return _nest(elements, sizes or [0], form)


def _elements(raw: bytes, at: int) -> Iterator[bytes | None]:
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "big", signed=True)
        yield None if length < 0 else raw[at + 4 : at + 4 + length]
        at += 4 + max(length, 0)


def _nest(elements: Iterator[bytes | None], sizes: list[int], form: Form) -> bytes:
    items = []
    for _ in range(sizes[0]):
        if isinstance(form, dict) and "list" in form:
            value: bytes | None = _nest(elements, sizes[1:], form["list"])
        else:
            value = _canonical(next(elements), form)
        items.append(b"\0" if value is None else b"\1" + len(value).to_bytes(8, "big") + value)
    return sizes[0].to_bytes(8, "big") + b"".join(items)
