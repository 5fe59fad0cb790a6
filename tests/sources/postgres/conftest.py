"""Servers for the tests of PostgreSQL as a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.live import Live, live

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[PostgresServer]:
    """The oldest version that is supported."""
    with postgres_server(version=16) as server:
        yield server


@pytest.fixture(params=[18, 16])
def database(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A new database with a slot, on both versions."""
    server = request.getfixturevalue("postgres" if request.param == 18 else "postgres_16")
    with live(server, f"source_{next(_numbers)}") as found:
        yield found
