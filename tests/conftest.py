"""What all tests share: one PostgreSQL for the whole run, and hypothesis without stopwatches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.postgres_server import PostgresServer, postgres_server

# Speed is measured by benchmarks, never by tests.
settings.register_profile("truecut", deadline=None)
settings.load_profile("truecut")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private server; tests make their own databases in it."""
    with postgres_server() as server:
        yield server
