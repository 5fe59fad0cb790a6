"""TLC's verdict on every bug that a backfill can be given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from specs import tlc

# A bug, the model that shows it, and the law that it breaks.
BUGS = {
    "watermark_only": ("cut", "SinkTrue"),
    "row_order": ("cut", "SinkTrue"),
    "end_is_last_key": ("cut", "SinkTrue"),
    "snapshot_apart": ("cut", "SinkTrue"),
    "absent_is_null": ("cut", "SinkTrue"),
    "truncate_ignored": ("cut", "SinkTrue"),
    "subtransactions_forgotten": ("cut", "SinkTrue"),
    "hi_ignored": ("cut", "SinkTrue"),
    "replayed_from_cursor": ("cut", "SinkTrue"),
    "lock_after_snapshot": ("cut", "SinkTrue"),
    "torn_kept": ("cut-units", "SinkTrue"),
    "start_unchecked": ("cut-slot", "SinkTrue"),
    "writers_unawaited": ("cut-published", "SinkTrue"),
    "applied_unrecorded": ("cut", "Evidenced"),
    "applied_again": ("cut", "AppliedOnce"),
}
EARLIER = ("EvidenceTrue", "Claimed")  # they would notice some of these before the sink is wrong
MODULE = tlc.module_of("cut")


@pytest.fixture(scope="module")
def broken() -> dict[str, str | None]:
    """bug → what TLC says is violated. One worker each, so that the answer is always the same."""

    def violated(bug: str) -> str | None:
        configuration = tlc.config(BUGS[bug][0], bugs=bug)
        for law in EARLIER:
            configuration = configuration.replace(f"  {law}\n", "")
        return tlc.check(configuration, module=MODULE, brief=True).violated

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BUGS, pool.map(violated, BUGS), strict=True))


@pytest.mark.parametrize("bug", BUGS)
def test_no_bug_survives(bug: str, broken: dict[str, str | None]) -> None:
    """Each bug, switched on in the spec, is caught, by the law it breaks: nearly always the sink is wrong."""
    assert broken[bug] == BUGS[bug][1]


def test_every_bug_switch_has_its_test() -> None:
    """A switch in the spec that no test turns on would prove nothing."""
    assert set(tlc.switches((tlc.SPECS / "Cut.tla").read_text())) == set(BUGS)
