"""Which tests run in one process when two run at once (`pytest -n 2 --dist loadfile`), and in which order.

A file's tests stay together, so that what a module shares is made once; but for `APART`. Files that share
something larger stay together, too: `SHARED`. Those that take minutes come first: whoever is done early takes
the small ones, and nobody waits for a long one in the end.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

SHARED = {
    "tests/e2e/test_cluster.py": "cluster",
    "tests/docs/test_spark.py": "cluster",
}
# Each test of these alone: it shares nothing with its file's others, and together they would take minutes.
APART = ("tests/specs/test_models.py::test_everything_holds_in_every_state",)
LONG = (
    "tests/specs/test_models.py",
    "tests/e2e/test_kills.py",
    "tests/e2e/test_sinks_come_and_go.py",
    "tests/e2e/test_mirror.py",
    "cluster",
    "tests/e2e/test_two_runners.py",
    "tests/e2e/test_faults.py",
    "tests/specs/test_segment_log.py",
    "tests/specs/test_segment_log_conformance.py",
    "tests/cli/test_troubled_run.py",
    "tests/journal/test_replicated_kills.py",
    "tests/journal/test_replica_damage.py",
    "tests/journal/test_faults.py",
)


def group_of(nodeid: str) -> str:
    """What a test shares its process with: its file, or whatever several files share, or nothing."""
    if nodeid.partition("[")[0] in APART:
        return nodeid
    file = nodeid.split("::", 1)[0]
    return SHARED.get(file, file)


class TogetherScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Each process takes one group after the other, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> TogetherScheduling | None:
    """In the process that hands out the tests."""
    return TogetherScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the processes that run them: the long ones first."""
    items.sort(key=lambda item: _rank(group_of(item.nodeid)))


def _rank(group: str) -> int:
    name = group.partition("::")[0]
    return LONG.index(name) if name in LONG else len(LONG)
