"""Where rows go is decided by each table, whatever other sinks of the same process are doing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from truecut.lake import parse_address
from truecut.model.table import Column, TableSchema
from truecut.sinks.ducklake.inlining import exact_rows
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


def _limit(lake: Lake) -> int:
    row = lake.connection.execute(
        "SELECT current_setting('ducklake_default_data_inlining_row_limit')"
    ).fetchone()
    assert row is not None
    return int(row[0])
