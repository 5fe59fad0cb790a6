"""Whatever happens to a table's columns, each copy follows exactly or is held with the true reason."""

from __future__ import annotations

import pytest

from tests.content.conftest import MakeMirrors
from tests.content.mirrors import Mirrors
from truecut.model.table import Mode

STRUCT = "STRUCT(a INTEGER, b INTEGER, f FLOAT)"
NESTED = f"s {STRUCT}, l {STRUCT}[], m MAP(VARCHAR, {STRUCT})"
VALUE = "{{'a': {0}, 'b': {0} + 1, 'f': {0}.1}}"


def nested_row(key: int, tenant: str) -> str:
    value = VALUE.format(key)
    return f"({key}, '{tenant}', {value}, [{value}, NULL], MAP {{'k': {value}}})"


def nested(make_mirrors: MakeMirrors, *, inlining: int, mode: Mode = "mirror") -> Mirrors:
    """Both tenants have rows, some of them NULL inside."""
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=inlining, mode=mode)
    rows = ", ".join(nested_row(n, "ab"[n % 2]) for n in range(4))
    world.source(
        f"CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, {NESTED})",
        f"INSERT INTO lake.t VALUES {rows}, (10, 'a', NULL, NULL, NULL), (11, 'b', NULL, [], MAP {{}})",
    )
    assert world.catch_up().reached
    world.assert_exact()
    return world


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_columns_reach_a_sink_without_rows(make_mirrors: MakeMirrors, mode: Mode) -> None:
    """A window that changes a table's columns is for every sink that has the table, not only for those that
    get rows in it."""
    world = make_mirrors(mode=mode)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, v INTEGER, w INTEGER)",
        "INSERT INTO lake.t VALUES (1, 'a', 1, 1), (2, 'b', 2, 2)",
    )
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.t DROP COLUMN v",
        "ALTER TABLE lake.t ADD COLUMN v INTEGER DEFAULT 42",
        "ALTER TABLE lake.t ADD COLUMN x VARCHAR",
        "ALTER TABLE lake.t ALTER w SET DATA TYPE BIGINT",
        "INSERT INTO lake.t VALUES (3, 'a', 3, 3, 'x')",
    )
    assert world.catch_up().reached
    world.assert_exact()
    world.source("ALTER TABLE lake.t ADD COLUMN y VARCHAR DEFAULT 'y'")  # no rows for anybody
    assert world.catch_up().reached
    world.assert_exact()


def test_a_default_that_is_the_text_null(make_mirrors: MakeMirrors) -> None:
    """NULL and the text NULL are two defaults."""
    world = make_mirrors()
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR)", "INSERT INTO lake.t VALUES (1, 'a'), (2, 'b')"
    )
    assert world.catch_up().reached
    world.source(
        "ALTER TABLE lake.t ADD COLUMN n VARCHAR DEFAULT 'NULL'",
        "ALTER TABLE lake.t ADD COLUMN m VARCHAR DEFAULT NULL",
        "ALTER TABLE lake.t ADD COLUMN b BLOB DEFAULT 'NULL'",
        "ALTER TABLE lake.t ADD COLUMN i INTEGER DEFAULT NULL",
        "INSERT INTO lake.t VALUES (3, 'a', NULL, 'NULL', NULL, 1)",
    )
    assert world.catch_up().reached
    assert world.content("b", "n, m, b, i") == [("NULL", None, b"NULL", None)]
    world.assert_exact()


INSIDE = {
    "drop and add": ["DROP COLUMN {0}.b", "ADD COLUMN {0}.b INTEGER"],
    "drop": ["DROP COLUMN {0}.f"],
    "add with a default": ["ADD COLUMN {0}.c INTEGER DEFAULT 5", "ADD COLUMN {0}.t VARCHAR DEFAULT 'NULL'"],
    "add a struct": ["ADD COLUMN {0}.q STRUCT(x INTEGER)", "ADD COLUMN {0}.q.y VARCHAR DEFAULT 'y'"],
}
PATHS = {"struct": "s", "list": "l.element", "map": "m.value"}


@pytest.mark.parametrize("inlining", [0, 10], ids=["files", "inlined"])
@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_inside_a_nested_column(make_mirrors: MakeMirrors, mode: Mode, inlining: int) -> None:
    """Fields come and go in structs, in lists and maps, too; rows that nobody touched follow."""
    world = nested(make_mirrors, inlining=inlining, mode=mode)
    for n, change in enumerate(INSIDE.values()):
        alters = [f"ALTER TABLE lake.t {step.format(path)}" for path in PATHS.values() for step in change]
        world.source(*alters)
        if mode == "mirror":
            world.source(f"UPDATE lake.t SET s = NULL WHERE id = {n}")
        assert world.catch_up().reached
        world.assert_exact()


@pytest.mark.parametrize("path", ["l.element", "m.value"])
def test_the_oldest_field_inside_a_list_or_map_holds_the_table(make_mirrors: MakeMirrors, path: str) -> None:
    """Where a file has none of the fields that are left, the extension itself may take NULL for a value."""
    world = nested(make_mirrors, inlining=0)
    world.source(f"ALTER TABLE lake.t DROP COLUMN {path}.a")
    assert not world.catch_up().reached
    hold = world.hold("a")
    assert hold is not None
    assert hold.code == "TC3014"


def test_a_wider_type_inside_a_nested_column(make_mirrors: MakeMirrors) -> None:
    """As at the top level; old values are what the wider type makes of them."""
    world = nested(make_mirrors, inlining=0)
    wide = "STRUCT(a BIGINT, b INTEGER, f DOUBLE)"
    world.source(
        f"ALTER TABLE lake.t ALTER s SET DATA TYPE {wide}",
        f"ALTER TABLE lake.t ALTER l SET DATA TYPE {wide}[]",
        f"ALTER TABLE lake.t ALTER m SET DATA TYPE MAP(VARCHAR, {wide})",
        "UPDATE lake.t SET s = {'a': 1099511627776, 'b': 1, 'f': 0.1} WHERE id = 1",
    )
    assert world.catch_up().reached
    world.assert_exact()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_renamed_field_holds_the_table(make_mirrors: MakeMirrors, path: str) -> None:
    """As at the top level: the sink says so, and a seed repairs it. Swapped names are two renames."""
    world = nested(make_mirrors, inlining=0)
    before = world.content("a")
    world.source(
        f"ALTER TABLE lake.t RENAME COLUMN {path}.a TO z",
        f"ALTER TABLE lake.t RENAME COLUMN {path}.b TO a",
        f"ALTER TABLE lake.t RENAME COLUMN {path}.z TO b",
        "DELETE FROM lake.t WHERE id = 1",
    )
    assert not world.catch_up().reached
    for sink in ("a", "b"):
        hold = world.hold(sink)
        assert hold is not None
        assert hold.code == "TC3012"
    assert world.content("a") == before


def test_no_boolean_becomes_a_number(make_mirrors: MakeMirrors) -> None:
    """The extension lets it, and cannot read such a column any more where it is inlined: the sink's table
    stays readable."""
    world = make_mirrors(source="duckdb", sinks="duckdb", inlining=0)
    world.source(
        "CREATE TABLE lake.t (id INTEGER, tenant VARCHAR, v BOOLEAN)",
        "INSERT INTO lake.t VALUES (1, 'a', true), (2, 'b', false)",
    )
    assert world.catch_up().reached
    world.source("ALTER TABLE lake.t ALTER v SET DATA TYPE INTEGER")
    assert not world.catch_up().reached
    hold = world.hold("a")
    assert hold is not None
    assert hold.code == "TC3014"
    assert world.content("a", "id, v") == [(1, True)]
