"""What tests share: one PostgreSQL and one Spark for the whole run, and hypothesis without stopwatches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests.postgres_server import PostgresServer, postgres_server
from truecut.spark.session import open_session

# Speed is measured by benchmarks, never by tests.
settings.register_profile("truecut", deadline=None)
settings.load_profile("truecut")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private server; tests make their own databases in it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As `truecut run` starts it by default."""
    session = open_session(app="tests", master=None, conf={}, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
