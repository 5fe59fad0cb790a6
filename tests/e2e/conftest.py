"""Worlds for the end-to-end tests that run in this process, and a judge of their traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.world import World
from tests.specs.tracecheck import Case, cases_of, read, refused
from tests.timing import PLUGIN, Timing


@pytest.fixture(scope="session", autouse=True)
def judged_traces(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """Every run of these tests leaves a trace in the spec's words; at the end TLC judges them all."""
    yield
    runs: dict[Path, list[Path]] = {}
    found_files = {path.resolve() for path in tmp_path_factory.getbasetemp().rglob("traces/*.jsonl")}
    for path in sorted(found_files):
        runs.setdefault(path.parent.parent, []).append(path)
    assert runs, "no run left a trace"
    lives = [case for world, paths in runs.items() for case in cases_of(world.name, read(paths))]
    timing: Timing = pytestconfig.pluginmanager.get_plugin(PLUGIN)  # type: ignore[assignment]
    with timing.charged_to("tests/specs/tracecheck.py"):
        found = [str(refusal) for alike in _alike(lives) for refusal in refused(alike)]
    assert not found, "\n".join(found)


def _alike(lives: list[Case]) -> list[list[Case]]:
    """One start of TLC for all lives of a size: its constants grow with the longest and with the runners."""
    sizes: dict[tuple[int, int], list[Case]] = {}
    for case in lives:
        sizes.setdefault((len(case.runners), case.length.bit_length()), []).append(case)
    return list(sizes.values())


@pytest.fixture
def make_world(tmp_path: Path, spark: SparkSession) -> Callable[[dict[str, Any]], World]:
    return lambda document: World(tmp_path, spark, document)
