"""What a table was called, which types its columns had, which files it got: no past makes a copy differ."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.content.conftest import MakeMirrors
from truecut.model.table import Mode

BIG = 16777217  # the first integer that no FLOAT holds


@pytest.mark.parametrize("first", [f"v INTEGER, {BIG}", "w INTEGER, 0"], ids=["values", "a default"])
def test_a_type_that_is_changed_twice(make_mirrors: MakeMirrors, first: str) -> None:
    """The source reads an old file in the new type at once, as if the one in the middle had never been; so do
    the mirrors, also of rows that they took in the middle."""
    column, value = first.split(", ")
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=0)
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, {column})",
        f"INSERT INTO lake.t VALUES (1, 'a', {value}), (2, 'b', {value})",
    )
    if column == "v INTEGER":
        world.source("ALTER TABLE lake.t ALTER v SET DATA TYPE FLOAT")
    else:
        world.source("ALTER TABLE lake.t ADD COLUMN v FLOAT DEFAULT 0.1")
    assert world.catch_up().reached
    world.source("INSERT INTO lake.t BY NAME SELECT 3 AS id, 'a' AS tenant, 1 AS v")
    assert world.catch_up().reached
    world.assert_exact()
    world.source("ALTER TABLE lake.t ALTER v SET DATA TYPE DOUBLE")
    assert world.catch_up().reached
    world.assert_exact()


def test_an_append_table_whose_values_changed_unseen_is_held(make_mirrors: MakeMirrors) -> None:
    """Its rows are what the source said once, in a type that it denies now: that is told."""
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=0, mode="append")
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, v INTEGER)",
        f"INSERT INTO lake.t VALUES (1, 'a', {BIG})",
        "ALTER TABLE lake.t ALTER v SET DATA TYPE FLOAT",
    )
    assert world.catch_up().reached
    world.source("ALTER TABLE lake.t ALTER v SET DATA TYPE DOUBLE")
    outcome = world.catch_up()
    assert not outcome.reached
    assert "column v" in outcome.stragglers["a"]


@pytest.mark.parametrize("mode", ["mirror", "append"])
@pytest.mark.parametrize(("old", "new"), [("SMALLINT", "BIGINT"), ("DECIMAL(4,1)", "DECIMAL(9,3)")])
def test_a_type_that_only_grows_goes_on(make_mirrors: MakeMirrors, mode: Mode, old: str, new: str) -> None:
    """Nothing is lost on any way, so nothing is made anew, however often."""
    world = make_mirrors(source="sqlite", sinks="sqlite", mode=mode)
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, v {old})",
        "INSERT INTO lake.t VALUES (1, 'a', 1.5), (2, 'b', -2)",
    )
    assert world.catch_up().reached
    middle = "INTEGER" if old == "SMALLINT" else "DECIMAL(6,2)"
    for wider in (middle, new):
        world.source(f"ALTER TABLE lake.t ALTER v SET DATA TYPE {wider}")
        assert world.catch_up().reached
        world.assert_exact()


@pytest.mark.parametrize("name", ["filename", "snapshot_id"])
def test_a_dropped_column_that_hid_ours(make_mirrors: MakeMirrors, name: str) -> None:
    """Older versions of the table still have it; no row is lost by that."""
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=0)
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, {name} VARCHAR)",
        "INSERT INTO lake.t SELECT n, if(n < 4, 'a', 'b'), NULL FROM range(8) r(n)",
        "INSERT INTO lake.t SELECT n, if(n < 12, 'a', 'b'), 'x' FROM range(8, 16) r(n)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "INSERT INTO lake.t SELECT n, 'a', NULL FROM range(16, 20) r(n)",
    )
    assert world.catch_up().reached
    world.source(f"ALTER TABLE lake.t DROP COLUMN {name}", "DELETE FROM lake.t WHERE id IN (1, 5)")
    assert world.catch_up().reached
    world.assert_exact()


SWAP = ["lake.t RENAME TO x", "lake.u RENAME TO t", "lake.x RENAME TO u"]


@pytest.mark.parametrize("merged", [False, True], ids=["feed", "difference"])
@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_names_swapped_and_swapped_back(make_mirrors: MakeMirrors, mode: Mode, merged: bool) -> None:
    """A table is itself under whatever name: its own changes come, and none of the other's."""
    world = make_mirrors(mode=mode)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, v INTEGER)",
        "CREATE TABLE lake.u (id INTEGER, tenant VARCHAR, v INTEGER)",
        "INSERT INTO lake.t VALUES (1, 'a', 1), (2, 'b', 2)",
        "INSERT INTO lake.u VALUES (1, 'a', 100), (7, 'b', 700)",
    )
    assert world.catch_up().reached
    swap = [f"ALTER TABLE {step}" for step in SWAP]
    world.source(
        "INSERT INTO lake.t VALUES (3, 'a', 3)",
        *swap,
        "INSERT INTO lake.u VALUES (4, 'a', 4)",  # into what was t, and will be
        "INSERT INTO lake.t VALUES (9, 'a', 900)",
        *swap,
        "INSERT INTO lake.t VALUES (5, 'b', 5)",
    )
    if merged:
        world.source("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert world.catch_up().reached
    world.assert_exact()


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_a_name_given_away_and_taken_back(make_mirrors: MakeMirrors, mode: Mode) -> None:
    """It is read under its other name, too, instead of being tried for ever."""
    world = make_mirrors(mode=mode)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR)", "INSERT INTO lake.t VALUES (1, 'a'), (2, 'b')"
    )
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.t RENAME TO away",
        "INSERT INTO lake.away VALUES (3, 'a')",
        "CALL ducklake_flush_inlined_data('lake')",
        "INSERT INTO lake.away VALUES (4, 'a')",
        "ALTER TABLE lake.away RENAME TO t",
    )
    assert world.catch_up().reached
    world.assert_exact()


@pytest.mark.parametrize("mode", ["mirror", "append"])
@pytest.mark.parametrize("seeded", [False, True], ids=["later", "at first"])
def test_one_file_added_twice(make_mirrors: MakeMirrors, tmp_path: Path, mode: Mode, seeded: bool) -> None:
    """Each of its keys is there twice, as for whoever reads the source: the table is held for that."""
    world = make_mirrors(mode=mode, inlining=0)
    extra = tmp_path / "extra.parquet"
    duckdb.execute(f"COPY (SELECT 5::INTEGER AS id, 'a' AS tenant) TO '{extra}'")
    twice = [f"CALL ducklake_add_data_files('lake', 't', '{extra}')"] * 2
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR)",
        "INSERT INTO lake.t VALUES (1, 'a')",
        "INSERT INTO lake.t VALUES (2, 'a')",
        "CALL ducklake_merge_adjacent_files('lake')",
    )
    if not seeded:
        assert world.catch_up().reached
    world.source(*twice)
    assert not world.catch_up().reached
    hold = world.hold("a")
    assert hold is not None
    assert hold.code in ("TC2008", "TC3020")


@pytest.mark.parametrize("sinks", ["duckdb", "sqlite", "postgres"])
def test_a_nan_keeps_its_bits_in_a_small_commit(make_mirrors: MakeMirrors, sinks: str) -> None:
    """Few rows, which a lake would keep in its catalog, and a catalog may know one NaN only."""
    world = make_mirrors(source="duckdb", sinks=sinks, inlining=0)
    world.source("CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, d DOUBLE, f FLOAT)")
    assert world.catch_up().reached
    d, f = f"{0x7FFAAAAAA0000000:064b}", f"{0x7FD55555:032b}"
    world.source(f"INSERT INTO lake.t VALUES (1, 'a', '{d}'::BIT::DOUBLE, '{f}'::BIT::FLOAT)")
    assert world.catch_up().reached
    world.assert_exact()
