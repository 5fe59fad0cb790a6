"""Whatever the owner of a lake does to it, what we read makes the same table: compared at every poll."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.postgres_server import PostgresServer
from tests.sources.churn import TABLE, Churn
from tests.sources.conftest import MakeLake
from tests.sources.copy_model import changes_of
from truecut.model.position import Position
from truecut.model.table import Mode, TableName
from truecut.sources.contract import WindowLimits
from truecut.sources.ducklake import history, normal, tasks
from truecut.sources.ducklake.attach import Lake


def live(churn: Churn, *, polls: int) -> Churn:
    """Commits, maintenance and a poll, many times over."""
    for _ in range(polls):
        churn.live_a_while()
        churn.poll()
    return churn


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
    churn = live(Churn(make_lake(catalog, inlining=inlining), seed=seed, mode=mode), polls=40)
    assert churn.tasks["FeedTask"] > 0
    assert churn.tasks["DifferenceTask"] > 0


def test_copy_equals_source_on_postgres(make_lake: MakeLake, postgres: PostgresServer) -> None:
    """The same with the catalog in a real PostgreSQL."""
    catalog = "postgres:" + postgres.create_database("churn")
    live(Churn(make_lake(catalog, inlining=10), seed=4, mode="mirror"), polls=8)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["mirror", "append"])
@pytest.mark.parametrize("inlining", [0, 10])
@pytest.mark.parametrize("seed", range(100, 110))
def test_copy_equals_source_for_long(make_lake: MakeLake, seed: int, inlining: int, mode: Mode) -> None:
    """Over 1,000 polls in all, over many seeds."""
    live(Churn(make_lake(inlining=inlining), seed=seed, mode=mode), polls=30)


# --- faults that must be noticed ----------------------------------------------------------------------
# Each puts a known bug into one small function of the reader; the comparison above has to fail.


def assert_noticed(
    make_lake: MakeLake, *, maintenance: bool, inlining: int = 0, seeds: Sequence[int] = range(4)
) -> None:
    """The oracle objects within a few polls of a few seeds."""
    for seed in seeds:
        churn = Churn(make_lake(inlining=inlining), seed=seed, mode="mirror", maintenance=maintenance)
        try:
            live(churn, polls=12)
        except AssertionError:
            return
    pytest.fail("the fault was not noticed")


def test_an_inclusive_read_is_noticed(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit at `after` itself must not be read again."""
    monkeypatch.setattr(tasks, "first_wanted", lambda after: after)
    assert_noticed(make_lake, maintenance=False)


def test_resolution_by_rowid_is_noticed(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row ids survive a key change, collide and are reused: they say nothing about keys."""
    for name in ("before_sql", "after_sql"):
        monkeypatch.setattr(tasks, name, with_row_ids(getattr(tasks, name)))
    monkeypatch.setattr(normal, "same_key", lambda shape: "o.row_id = n.row_id")
    monkeypatch.setattr(tasks, "several_images", lambda *args, **kwargs: False)
    assert_noticed(make_lake, maintenance=False)


def test_a_key_change_without_delete_is_noticed(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old key of a changed key must go: here its image is dropped, as a pre-image would be."""
    before, after = with_row_ids(tasks.before_sql), with_row_ids(tasks.after_sql)

    def before_without_moved_keys(lake: Lake, table: TableName, expressions: Any, **bounds: int) -> str:
        old, new = before(lake, table, expressions, **bounds), after(lake, table, expressions, **bounds)
        return f"""SELECT o.* EXCLUDE (row_id) FROM ({old}) o WHERE NOT EXISTS (
                     FROM ({new}) n WHERE n.place = o.place AND n.row_id = o.row_id AND n.x0 <> o.x0)"""

    monkeypatch.setattr(tasks, "before_sql", before_without_moved_keys)
    assert_noticed(make_lake, maintenance=False)


def test_the_feed_after_maintenance_is_noticed(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change feed lies around maintenance: believing it always must show."""
    monkeypatch.setattr(history, "feed_is_exact", lambda *args, **kwargs: True)
    assert_noticed(make_lake, maintenance=True, inlining=10, seeds=(9, 4, 7))


def with_row_ids(build: Any) -> Any:
    """The same query with the row ids beside the rows."""

    def built(lake: Lake, table: TableName, expressions: Any, **bounds: int) -> str:
        sql: str = build(lake, table, expressions, **bounds)
        return sql.replace(" AS place,", " AS place, rowid AS row_id,", 1)

    return built


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
    assert first.num_rows + sum(batch.num_rows for batch in rest) == 100


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
        seen.append(sorted(row["id"] for row in changes_of(b for t in window.tasks for b in t.read())))
    assert seen == [list(range(100)), list(range(11, 100))]
