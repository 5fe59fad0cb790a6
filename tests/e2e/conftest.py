"""One Spark session for all end-to-end tests that run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.world import World
from truecut.spark.session import open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session(app="tests", master=None, conf={}, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def make_world(tmp_path: Path, spark: SparkSession) -> Callable[[dict[str, Any]], World]:
    return lambda document: World(tmp_path, spark, document)
