"""A PostgreSQL source that is read by the independent verifier while its owner works on."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from truecut_verify.documents import Copy
from truecut_verify.postgres import open_postgres
from truecut_verify.verdict import Unknown


def a_copy(table: str) -> Copy:
    given: dict[str, Any] = dict.fromkeys(field.name for field in fields(Copy))
    return Copy(**given | {"table": f"public.{table}", "columns": (("v", 1, "text"),)})


def test_what_was_truncated_meanwhile_is_unknown_and_nobody_waits(postgres: PostgresServer) -> None:
    """A table that has been read is let go; one that was emptied or rewritten before it was read is not said
    to be without its rows; the others are read as they were."""
    dsn = postgres.create_database("live_source")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SET lock_timeout = '5s'")
        for table in ("first", "emptied", "rewritten", "written"):
            owner.execute(f"CREATE TABLE {table} (v text)".encode())
            owner.execute(f"INSERT INTO {table} VALUES ('a'), ('b')".encode())
        with open_postgres(dsn, is_source=True) as reader:

            def values(table: str) -> list[bytes | None]:
                return [one for batch in reader.rows(a_copy(table)) for one in batch[0]]

            assert values("first") == [b"a", b"b"]
            owner.execute("TRUNCATE first, emptied")
            owner.execute("ALTER TABLE rewritten ADD n float DEFAULT random()")
            owner.execute("DELETE FROM written")
            for table in ("emptied", "rewritten"):
                with pytest.raises(Unknown, match="truncated, rewritten"):
                    values(table)
            assert values("written") == [b"a", b"b"]
