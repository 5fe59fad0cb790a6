"""What tests share: one PostgreSQL, one object store, one Spark and one cluster for all that run in a
process, and hypothesis without stopwatches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests.e2e.cluster import Cluster, spark_cluster
from tests.postgres_server import PostgresServer, postgres_server
from tests.s3_server import S3Server, s3_server
from truecut.spark.session import open_session

pytest_plugins = ("tests.sharing", "tests.timing")

# Speed is measured by benchmarks, never by tests.
settings.register_profile("truecut", deadline=None)
settings.load_profile("truecut")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private server; tests make their own databases in it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A private object store; tests make their own buckets in it."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As `truecut run` starts it by default."""
    session = open_session(app="tests", master=None, conf={}, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers; whoever kills one leaves the other."""
    with spark_cluster(tmp_path_factory.mktemp("spark-cluster"), workers=2) as cluster:
        yield cluster
