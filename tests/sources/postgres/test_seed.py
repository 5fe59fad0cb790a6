"""Units that are read while their tables change, spliced with the log: the source at a place, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer, postgres_server
from tests.sources.postgres.busy import TABLES, Busy, busy
from tests.sources.postgres.copying import Copying, at_source, copying, shared_snapshot
from tests.sources.postgres.shop import Shop
from truecut.errors import TruecutError

SETTINGS = ("fsync=off", "wal_level=logical", "logical_decoding_work_mem=64kB", "max_replication_slots=40")
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(settings=SETTINGS) as running:
        yield running


def read_units(copy: Copying, life: Busy, tables: list[str]) -> None:
    """One after another, in any order, with steps between them: so snapshots differ, and some transactions
    began before one unit and committed behind the next."""
    with ExitStack() as stack:
        work = []
        for table in tables:
            edition = copy.begin(table)
            life.steps(5)
            shared = None
            if not edition.plan.by:
                shared = stack.enter_context(shared_snapshot(copy.shop.address, edition.plan))
            work += [(edition, unit, shared) for unit in range(len(edition.plan.parts))]
        assert len(work) > 8
        life.rng.shuffle(work)
        for edition, unit, shared in work:
            life.steps(12)
            if shared is not None:
                copy.read(edition, unit, shared)  # holds a lock: no truncate while it is held
            else:
                copy.read(edition, unit)


def compare(copy: Copying, life: Busy, tables: list[str]) -> None:
    """At the next place where nothing runs."""
    life.settle()
    at, held = at_source(copy.shop, tables)
    life.steps(8)  # what comes behind does not matter
    copy.wait_for(at)
    for table in tables:
        found = seeded(copy, table, at)
        assert found == held[table], (table, found - held[table], held[table] - found)


def seeded(copy: Copying, table: str, at: int) -> object:
    return copy.seeded(table, at)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_units_and_log_are_the_source_at_a_place(server: PostgresServer, tmp_path: Path, seed: int) -> None:
    """Overlapping transactions with savepoints, rollbacks, changed keys, large values and truncates, before,
    between and after the units: at several places the content is that of a plain SELECT there."""
    shop = Shop(server, f"seed{next(_numbers)}")
    tables = ["items", "pairs"]
    with copying(shop, tmp_path) as copy, busy(shop, seed) as life:
        life.steps(30)
        read_units(copy, life, tables)
        for _ in range(3):
            life.steps(25)
            compare(copy, life, tables)
