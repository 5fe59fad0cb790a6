"""A new lake for each test, on each kind of catalog."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import PostgresServer
from tests.s3_server import S3Server
from tests.sinks.world import reach
from truecut.config.secret import Secret
from truecut.lake import LakeAddress, parse_address
from truecut.object_store import StorageSection, settle
from truecut.sinks.postgres.address import PostgresAddress

KINDS = ("duckdb", "sqlite", "postgres")
_numbers = itertools.count(1)

MakeLake = Callable[[str], LakeAddress]
MakeDatabase = Callable[[], PostgresAddress]


@pytest.fixture
def make_lake(tmp_path: Path, postgres: PostgresServer) -> MakeLake:
    """Addresses of lakes that do not exist yet, by kind of catalog."""

    def make(kind: str) -> LakeAddress:
        number = next(_numbers)
        data = f"lakes/{number}-data"
        if kind == "postgres":
            return parse_address(
                f"postgres:{postgres.create_database(f'sink_{number}')}", data, base=tmp_path
            )
        scheme = "sqlite:" if kind == "sqlite" else ""
        return parse_address(f"{scheme}lakes/{number}.{kind}", data, base=tmp_path)

    return make


@pytest.fixture
def make_lake_in_store(tmp_path: Path, s3: S3Server) -> Callable[..., LakeAddress]:
    """Addresses of lakes that do not exist yet, their files in a bucket; `storage` as the test changes it."""
    reach(s3)
    s3.bucket("sinks")

    def make(*, bucket: str = "sinks", **storage: Any) -> LakeAddress:
        number = next(_numbers)
        data = f"s3://{bucket}/{number}"
        said = settle(StorageSection(**s3.storage(**storage)), data)
        return parse_address(f"sqlite:lakes/{number}.db", data, base=tmp_path, storage=said)

    return make


@pytest.fixture(params=KINDS)
def address(request: Any, make_lake: MakeLake) -> LakeAddress:
    """One lake of each kind."""
    kind: str = request.param
    return make_lake(kind)


@pytest.fixture
def make_database(postgres: PostgresServer) -> MakeDatabase:
    """Addresses of empty databases."""

    def make() -> PostgresAddress:
        return PostgresAddress(Secret(postgres.create_database(f"target_{next(_numbers)}")))

    return make


@pytest.fixture
def target(make_database: MakeDatabase) -> PostgresAddress:
    """One of them."""
    return make_database()
