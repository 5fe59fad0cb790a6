"""Whatever the owner of a lake does to it, what we read makes the same table: compared at every poll."""

from __future__ import annotations

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.churn import TABLE, Churn
from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from truecut.model.position import Position
from truecut.model.table import Mode
from truecut.sources.contract import WindowLimits


@pytest.mark.parametrize(
    ("seed", "inlining", "mode", "catalog"),
    [
        (1, 0, "mirror", "source.ducklake"),
        (2, 10, "append", "source.ducklake"),
        (3, 10, "mirror", "sqlite:source.sqlite"),
    ],
)
def test_copy_equals_source_at_every_poll(
    make_lake: MakeLake, seed: int, inlining: int, mode: Mode, catalog: str
) -> None:
    """Random commits, random maintenance, small windows: no difference, and both ways of reading used."""
    churn = Churn(make_lake(catalog, inlining=inlining), seed=seed, mode=mode)
    churn.live_long(polls=40)
    assert churn.tasks["FeedTask"] > 0
    assert churn.tasks["DifferenceTask"] > 0


def test_copy_equals_source_on_postgres(make_lake: MakeLake, postgres: PostgresServer) -> None:
    """The same with the catalog in a real PostgreSQL."""
    catalog = "postgres:" + postgres.create_database("churn")
    churn = Churn(make_lake(catalog, inlining=10), seed=4, mode="mirror")
    churn.live_long(polls=8)
    assert churn.tasks["FeedTask"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["mirror", "append"])
@pytest.mark.parametrize("inlining", [0, 10])
@pytest.mark.parametrize("seed", range(100, 110))
def test_copy_equals_source_for_long(make_lake: MakeLake, seed: int, inlining: int, mode: Mode) -> None:
    """Over 1,000 polls in all, over many seeds; both ways of reading used in each life."""
    churn = Churn(make_lake(inlining=inlining), seed=seed, mode=mode)
    churn.live_long(polls=30)
    assert churn.tasks["FeedTask"] > 0
    assert churn.tasks["DifferenceTask"] > 0


def test_the_lake_is_let_go_between_reads(make_lake: MakeLake) -> None:
    """A DuckDB-file catalog is free for its owner as soon as a read has been gathered, before it is used."""
    churn = Churn(make_lake(inlining=0), seed=1, mode="mirror")
    churn.writer.run("INSERT INTO events SELECT i, 'a', 'x', 1 FROM range(100) r(i)")
    churn.writer.release()
    head = churn.source.observe().head
    window = churn.source.plan_window(
        {TABLE.name: (TABLE, churn.position, frozenset({"mirror"}))},
        upto_max=head,
        limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
        parallelism=1,
    )
    batches = window.tasks[0].read()
    first = next(batches)
    churn.writer.run("DELETE FROM events")  # would not get in while the reader holds the file
    rest = list(batches)
    assert first.batch.num_rows + sum(batch.num_rows for _, batch in rest) == 100


def test_older_versions_are_not_read_with_the_statistics_of_the_head(make_lake: MakeLake) -> None:
    """The extension tells the optimizer the head's minimum and maximum, also for versions where they do not
    hold; the plain client then loses rows silently, and we must not."""
    writer = make_lake(inlining=0)
    churn = Churn(writer, seed=0, mode="mirror")
    writer.run("INSERT INTO events SELECT i, 'a', 'x', i FROM range(100) r(i)")
    full = writer.head()
    writer.run("DELETE FROM events WHERE id > 10")
    writer.run("CALL ducklake_rewrite_data_files('lake', 'events', delete_threshold => 0.0)")
    misled = writer.rows(f"SELECT count(*) FROM events AT (VERSION => {full}) WHERE id > 10")
    assert misled == [(0,)], "the plain client is no longer misled: the precaution may go"
    writer.release()
    seen = []
    for after, upto in ((full - 1, full), (full, full + 1)):
        window = churn.source.plan_window(
            {TABLE.name: (TABLE, Position(1, after), frozenset({"mirror"}))},
            upto_max=Position(1, upto),
            limits=WindowLimits(rows_max=1000, bytes_max=1 << 30),
            parallelism=1,
        )
        seen.append(sorted(row["id"] for row in changes_of(b for t in window.tasks for _, b in t.read())))
    assert seen == [list(range(100)), list(range(11, 100))]
