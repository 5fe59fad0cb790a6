"""The grammar of types: what is spelled is read as it was meant, and spelled the same again."""

from __future__ import annotations

import duckdb
import pytest

from truecut.model.table import Column
from truecut.model.types import Type, parse

WHOLE = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"]
TIMES = [
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
]
OTHERS = ["BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL(38,10)", "VARCHAR", "BLOB", "UUID", "JSON"]
NAMES = [*WHOLE, *(f"U{name}" for name in WHOLE), *TIMES, *OTHERS]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_one_that_duckdb_has_and_spells_so(name: str) -> None:
    """The names of the grammar mean what DuckDB means by them, alone and inside of others."""
    with duckdb.connect() as duck:
        for text in (name, f"{name}[]", f"MAP(VARCHAR, {name})", f'STRUCT("a b" {name}, "c" {name}[])'):
            assert str(parse(text)) == text
            spelled = duck.execute(f"SELECT typeof(CAST(NULL AS {text}))").fetchone()
            assert spelled is not None
            assert parse(spelled[0]) == parse(text)


def test_parts_are_taken_apart_at_every_depth() -> None:
    """A name may hold whatever a type is written with."""
    inner = Type(
        "struct", parts=(Type("scalar", "DECIMAL", (10, 2)), Type("scalar", "DATE")), names=('a"]', "MAP(x")
    )
    whole = Type("list", parts=(Type("map", parts=(Type("scalar", "VARCHAR"), inner)),))
    assert str(whole) == 'MAP(VARCHAR, STRUCT("a""]" DECIMAL(10,2), "MAP(x" DATE))[]'
    assert parse(str(whole)) == whole
    assert [Column(1, "c", text).kind for text in (str(whole), str(inner), "BIGINT")] == [
        "list",
        "struct",
        "scalar",
    ]


def test_a_type_that_nobody_takes_is_found_at_every_depth() -> None:
    """What the source could not spell stays visible; a name in angle brackets is no type."""
    assert parse('STRUCT("<x>" BIGINT, "y" MAP(DATE, <interval>[]))').unknown == "interval"
    assert parse('STRUCT("<x>" BIGINT)').unknown is None


@pytest.mark.parametrize(
    "text", ["", "(", "BIGINT)", "MAP(DATE)", "STRUCT()", "DECIMAL(a)", "[]", "BIGINT[", "a, b", '"q"']
)
def test_what_is_no_type_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="not a type"):
        parse(text)


def test_a_column_keeps_its_native_type_in_a_cursor() -> None:
    """What a cursor wrote is what it reads, the source's own type included, also of parts."""
    part = Column(2, "amount", "VARCHAR", native="postgres:numeric")
    column = Column(1, "c", 'STRUCT("amount" VARCHAR)', None, (part,), "postgres:money_of")
    assert Column.from_list(column.to_list()) == column
