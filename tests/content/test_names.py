"""Columns that are called as a catalog calls its own: their rows are exact, or the table is held."""

from __future__ import annotations

import duckdb
import pytest

from tests.content.conftest import MakeMirrors
from tests.content.line import Line
from truecut.errors import Retry
from truecut.lake import fault_of

# By these each kind of catalog tells its rows apart; in any case of their letters.
TAKEN = [("duckdb", "row_id"), ("sqlite", "RowId"), ("sqlite", "Begin_Snapshot"), ("postgres", "xmin")]
REFUSED = [("duckdb", "row_id", 5), ("postgres", "xmin", None)]


@pytest.mark.parametrize(("sinks", "name"), TAKEN)
def test_a_column_with_a_name_of_the_catalogs_own(make_mirrors: MakeMirrors, sinks: str, name: str) -> None:
    """Its table is made, gets the column later, and takes small commits."""
    world = make_mirrors(source="duckdb", sinks=sinks, routes={"a": "a"}, inlining=0)
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, {name} VARCHAR)",
        "INSERT INTO lake.t VALUES (1, 'a', 'x'), (2, 'a', '7'), (3, 'a', NULL)",
    )
    if sinks == "postgres":  # where no such table is made, but may get such a column
        world.at_sink("a", "CALL lake.set_option('data_inlining_row_limit', 0)")
    line = Line(world.pipeline())
    line.seed("a")
    assert line.held("a") is None
    if sinks == "postgres":
        world.at_sink("a", "CALL lake.set_option('data_inlining_row_limit', 10)")
    for change in (
        f"UPDATE lake.t SET {name} = 'y' WHERE id = 1",
        "DELETE FROM lake.t WHERE id = 2",
        f"ALTER TABLE lake.t DROP COLUMN {name}",
        "INSERT INTO lake.t VALUES (4, 'a')",
        f"ALTER TABLE lake.t ADD COLUMN {name} INTEGER DEFAULT 3",
        "INSERT INTO lake.t VALUES (5, 'a', 1)",
    ):
        world.source(change)
        assert line.stream(["a"]) == {}
        assert line.held("a") is None, change
        world.assert_exact()


def test_rows_that_a_source_mixes_up_hold_the_table(make_mirrors: MakeMirrors) -> None:
    """SQLite has a column rowid of its own. With another one DuckLake loses rows that it keeps in the
    catalog: what it reads then is nobody's truth."""
    world = make_mirrors(source="sqlite", sinks="duckdb", routes={"a": "a"}, inlining=0)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, RowID INTEGER)",
        "INSERT INTO lake.t VALUES (1, 'a', 7), (2, 'a', NULL), (3, 'a', 7)",
    )
    line = Line(world.pipeline())
    line.seed("a")
    world.source("UPDATE lake.t SET RowID = 8 WHERE id = 1")
    assert line.stream(["a"]) == {}
    world.assert_exact()  # all of it in files
    world.source(
        "CALL lake.set_option('data_inlining_row_limit', 10)", "INSERT INTO lake.t VALUES (4, 'a', 9)"
    )
    line.stream(["a"])
    assert line.held("a") == "TC2027"
    line.seed("a")
    assert line.held("a") == "TC2027"
    world.source(
        "CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE OR REPLACE TABLE lake.t AS FROM lake.t"
    )
    line.seed("a")
    assert line.held("a") is None
    world.assert_exact()


def test_rows_that_cannot_even_be_counted_hold_the_table(make_mirrors: MakeMirrors) -> None:
    """What stands in the column may not be a number: whoever scans by it is refused."""
    world = make_mirrors(source="sqlite", sinks="duckdb", routes={"a": "a"}, inlining=10)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, rowid TIMESTAMP)",
        "INSERT INTO lake.t VALUES (1, 'a', TIMESTAMP '1677-01-01 00:00:00.000001')",
    )
    line = Line(world.pipeline())
    line.seed("a")
    assert line.held("a") == "TC2027"


@pytest.mark.parametrize(
    "said",
    [
        'Failed to flush changes: Invalid type in column "rowid": column was declared as integer',
        'exceeded the maximum retry count: ERROR:  column name "xmin" conflicts with a system column name',
    ],
)
def test_a_name_that_the_catalog_refuses_is_no_lost_race(said: str) -> None:
    """It would be refused for ever."""
    fault = fault_of(
        duckdb.TransactionException(f"Failed to commit DuckLake transaction. {said}"), what="a lake"
    )
    assert fault.code == "TC4016"
    assert fault.retry is Retry.NOT_RETRYABLE


@pytest.mark.parametrize(("sinks", "name", "limit"), REFUSED)
def test_a_lake_that_inlines_takes_no_such_table(
    make_mirrors: MakeMirrors, sinks: str, name: str, limit: int | None
) -> None:
    """DuckLake itself refuses it: the table is held and says why, and the lake's own setting stays."""
    world = make_mirrors(source="duckdb", sinks=sinks, routes={"a": "a"}, inlining=0)
    told = "SELECT value FROM ducklake_options('lake') WHERE option_name = 'data_inlining_row_limit'"
    if limit is not None:
        world.at_sink("a", f"CALL lake.set_option('data_inlining_row_limit', {limit})")
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, {name} INTEGER)",
        "INSERT INTO lake.t VALUES (1, 'a', 7)",
    )
    line = Line(world.pipeline())
    line.seed("a")
    assert line.held("a") == "TC3035"
    assert world.sink_rows("a", told) == ([] if limit is None else [(str(limit),)])
    world.at_sink("a", "CALL lake.set_option('data_inlining_row_limit', 0)")
    line.seed("a")
    assert line.held("a") is None
    world.assert_exact()


def test_columns_change_again_beside_one_of_the_catalogs_own(make_mirrors: MakeMirrors) -> None:
    """That the table is never inlined is noted once."""
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=10, routes={"a": "a"})
    world.source("CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, c INTEGER, rowid FLOAT)")
    world.source("INSERT INTO lake.t VALUES (1, 'a', 1, 1.5)")
    line = Line(world.pipeline())
    line.seed("a")
    world.source(
        "ALTER TABLE lake.t ALTER c SET DATA TYPE FLOAT", "INSERT INTO lake.t VALUES (2, 'a', 1, 1.5)"
    )
    assert line.stream(["a"]) == {}
    world.source("UPDATE lake.t SET c = 2", "ALTER TABLE lake.t ALTER rowid SET DATA TYPE DOUBLE")
    line.seed("a")
    world.assert_exact()
