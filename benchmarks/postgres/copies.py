"""What a copy holds, in brief, as its own client tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from benchmarks.postgres.shop import content
from truecut.lake import attach_sql, connect, parse_address


def in_lake(folder: Path) -> tuple[Any, ...]:
    """Of the table in the lake of a pipeline's folder."""
    with connect() as lake:
        lake.execute(attach_sql(parse_address("sqlite:lake.db", "lake", base=folder), "lake", read_only=True))
        row = lake.execute(content("lake.public.events").decode()).fetchone()
    assert row is not None
    return tuple(row)


def in_postgres(dsn: str) -> tuple[Any, ...]:
    """Of the table in a PostgreSQL."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(content("events")).fetchone()
    assert row is not None
    return tuple(row)
