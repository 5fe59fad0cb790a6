"""What tests share: one PostgreSQL, one object store, one Spark and one cluster for all that run in a
process, and hypothesis without stopwatches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests.e2e.cluster import Cluster, spark_cluster
from tests.postgres_server import ON_BOTH, PostgresServer, postgres_server
from tests.s3_server import S3Server, s3_server
from truecut.config.kinds import SINKS, SOURCES, worker_modules
from truecut.spark.session import open_session

pytest_plugins = ("tests.sharing", "tests.timing")

# Speed is measured by benchmarks, never by tests.
settings.register_profile("truecut", deadline=None)
settings.load_profile("truecut")


class Servers:
    """One server for each version that somebody asks for, until the end."""

    def __init__(self, until_the_end: ExitStack) -> None:
        self._stack = until_the_end
        self._running: dict[int, PostgresServer] = {}

    def __getitem__(self, version: int) -> PostgresServer:
        if version not in self._running:
            self._running[version] = self._stack.enter_context(postgres_server(version=version))
        return self._running[version]

    def drop_slots(self) -> None:
        """Of those that run."""
        for server in self._running.values():
            server.drop_slots()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """None runs yet."""
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="module", autouse=True)
def _no_slot_is_left(servers: Servers) -> Iterator[None]:
    """A server has so many slots, and a file's tests do not take those of the next."""
    yield
    servers.drop_slots()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest, servers: Servers) -> PostgresServer:
    """A private server; tests make their own databases in it. The newest, but for those below."""
    return servers[getattr(request, "param", 18)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`make soak` runs every test of a server on the oldest version, too, unless it names versions itself."""
    if "postgres" in metafunc.fixturenames:
        metafunc.parametrize("postgres", ON_BOTH, indirect=True, scope="session")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A private object store; tests make their own buckets in it."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As `truecut run` starts it by default."""
    modules = [module for name in SOURCES.names for module in worker_modules(name, SINKS.names)]
    session = open_session(
        app="tests",
        master=None,
        conf={},
        scratch=tmp_path_factory.mktemp("spark"),
        worker_modules=modules,
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers; whoever kills one leaves the other. So tests/e2e/test_large_seed.py, which
    begins with two that live and ends with one, has a cluster of its own."""
    with spark_cluster(tmp_path_factory.mktemp("spark-cluster"), workers=2) as cluster:
        yield cluster
