"""Where rows go is decided by each table, whatever other sinks of the same process are doing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from truecut.lake import parse_address
from truecut.model.table import Column, TableSchema
from truecut.sinks.ducklake.inlining import exact_rows, inlines_exactly
from truecut.sinks.ducklake.pool import Lake, attached, session

FIELD = Column(3, "a", "VARCHAR")
NESTED = TableSchema("1", (Column(1, "id", "INTEGER"), Column(2, "s", "STRUCT(a VARCHAR)", None, (FIELD,))))


def test_a_sink_that_is_done_does_not_let_another_inline(tmp_path: Path) -> None:
    """The switch is one for the whole process: it stays off until the last one who needs it off is done."""
    one, other = (parse_address(f"sqlite:{n}.db", f"{n}-data", base=tmp_path) for n in ("one", "other"))
    with (
        closing(session()) as first,
        closing(session()) as second,
        attached(first, one, create=True) as a,
        attached(second, other, create=True) as b,
    ):
        usual = _limit(b)
        assert usual > 0
        with exact_rows(b, "main.t", NESTED):
            with exact_rows(a, "main.t", NESTED):
                assert _limit(a) == 0
            assert _limit(b) == 0, "the first one has switched it on again"
        assert _limit(b) == usual


def test_rows_beside_a_name_of_a_catalogs_own_are_not_inlined() -> None:
    """A column that every table of SQLite or PostgreSQL has would be taken for the source's one, whatever its
    case. SQLite is asked; PostgreSQL's are those of its documentation."""
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.execute("CREATE TABLE t (a)")
        sqlite.execute("INSERT INTO t VALUES (1)")
        for name in ("rowid", "oid", "_rowid_"):
            assert sqlite.execute(f"SELECT {name} FROM t").fetchone() == (1,)
            assert not inlines_exactly([Column(1, "id", "INTEGER"), Column(2, name.upper(), "INTEGER")])
    for name in ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"):
        assert not inlines_exactly([Column(1, name, "INTEGER")])
    assert inlines_exactly([Column(1, "id", "INTEGER")])


def _limit(lake: Lake) -> int:
    row = lake.connection.execute(
        "SELECT current_setting('ducklake_default_data_inlining_row_limit')"
    ).fetchone()
    assert row is not None
    return int(row[0])
