"""Digests, as they are computed by columns and as the verifier computes them row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truecut.certificate.digest import Buckets, Keyed, Rows, digest_rows, number_of
from truecut.certificate.forms import form_of
from truecut.model.types import parse
from truecut_verify import digest as plain

SECRET = bytes(range(16))
VECTORS = Path(__file__).with_name("vectors.json")

# A type of the grammar, and literals of it that plain DuckDB makes values of.
VALUES = {
    "BOOLEAN": ["true", "false", "NULL"],
    "TINYINT": ["-128", "0", "127", "NULL"],
    "INTEGER": ["-2147483648", "7", "NULL"],
    "UBIGINT": ["18446744073709551615", "9223372036854775808", "7"],
    "BIGINT": ["-9223372036854775808", "7", "NULL"],
    "FLOAT": ["0.1", "'-0.0'", "'nan'", "'inf'", "NULL"],
    "DOUBLE": ["0.1", "0.0", "'-0.0'", "'nan'", "'-inf'"],
    "DECIMAL(10,2)": ["1.00", "-1.00", "99999999.99", "NULL"],
    "DECIMAL(38,10)": ["1", "-1234567890123456789012345678.0123456789"],
    "VARCHAR": ["''", "'a'", "'a '", "'fünfzehn zeichen'", "repeat('x', 1000)", "NULL"],
    "JSON": ["'{\"a\": 1}'", "'null'", "NULL"],
    "BLOB": ["''::BLOB", "'\\x00\\xFF'::BLOB", "NULL"],
    "UUID": ["'00112233-4455-6677-8899-aabbccddeeff'", "NULL"],
    "DATE": ["'1969-12-31'", "'infinity'", "'0044-03-15 (BC)'", "NULL"],
    "TIME": ["'23:59:59.999999'", "'00:00:00'", "NULL"],
    "TIMESTAMP": ["'1969-12-31 23:59:59.999999'", "'infinity'", "NULL"],
    "TIMESTAMP_S": ["'2026-01-01 00:00:00'", "NULL"],
    "TIMESTAMP_MS": ["'2026-01-01 00:00:00.001'"],
    "TIMESTAMP_NS": ["'2026-01-01 00:00:00.000001001'", "'1969-12-31 23:59:59.999999999'", "NULL"],
    "TIMESTAMP WITH TIME ZONE": ["'2026-01-01 00:00:00+02'", "'-infinity'"],
    "INTEGER[]": ["[1, NULL, 3]", "[]", "NULL"],
    'STRUCT("a" INTEGER, "b" VARCHAR)': ["{'a': 1, 'b': NULL}", "{'a': NULL, 'b': 'x'}", "NULL"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'b': 2, 'a': 1}", "MAP {}", "NULL"],
    "VARCHAR[][]": ["[['a', NULL], [], NULL]", "NULL"],
}


def table_of(kind: str, literals: list[str]) -> pa.Table:
    """A key and a column of that type, as DuckDB gives them."""
    rows = ", ".join(f"({n}, CAST({literal} AS {kind}))" for n, literal in enumerate(literals))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(f"SELECT * FROM (VALUES {rows}) t(id, v) ORDER BY id").to_arrow_table()


def digests(rows: pa.Table, kind: str, *, number: int = 2, scope: str = "shop\nmain.t") -> Rows:
    columns = {"id": (1, "INTEGER"), "v": (number, kind)}
    return digest_rows(Keyed(SECRET), rows, scope=scope, key=["id"], columns=columns)


def plainly(
    rows: pa.Table, kind: str, *, number: int = 2, scope: str = "shop\nmain.t"
) -> list[tuple[bytes, int]]:
    """Row by row, by the verifier's own code."""
    table = plain.Table(scope, [("id", "int")], [("v", number, form_of(parse(kind)))])
    return [
        plain.row_digest(SECRET, table, {name: rows.column(name)[n] for name in rows.column_names})
        for n in range(rows.num_rows)
    ]


@pytest.mark.parametrize("kind", VALUES)
def test_both_ways_come_to_the_same(kind: str) -> None:
    """By columns and row by row: the same digests of key and row, for every type, also of a slice."""
    rows = table_of(kind, VALUES[kind])
    for part in (rows, rows.slice(1)):
        found = digests(part, kind)
        assert [bytes(key) for key in found.keys] == [key for key, _ in plainly(part, kind)]
        assert [number_of(row) for row in found.sums] == [row for _, row in plainly(part, kind)]
        assert found.buckets().tolist() == [plain.bucket(key) for key, _ in plainly(part, kind)]


@pytest.mark.parametrize("kind", VALUES)
def test_other_values_have_other_digests(kind: str) -> None:
    """No two values of a type are taken for each other, NULL included."""
    literals = VALUES[kind]
    rows = table_of(kind, literals)
    same_key = rows.set_column(0, "id", pa.array([7] * len(literals), pa.int32()))
    assert len({number_of(row) for row in digests(same_key, kind).sums}) == len(literals)


def test_widths_do_not_matter() -> None:
    """A column that was widened at one end only still holds the same values."""
    wanted = digests(table_of("TINYINT", ["7", "-7"]), "TINYINT")
    for kind in ("SMALLINT", "BIGINT", "HUGEINT"):
        assert np.array_equal(digests(table_of(kind, ["7", "-7"]), kind).sums, wanted.sums)
    single, double = table_of("FLOAT", ["0.5"]), table_of("DOUBLE", ["0.5"])
    assert np.array_equal(digests(single, "FLOAT").sums, digests(double, "DOUBLE").sums)


def test_a_digest_is_bound_to_table_column_and_key() -> None:
    """The same value elsewhere is another digest: cells cannot be swapped."""
    rows = table_of("VARCHAR", ["'a'", "'b'"])
    swapped = table_of("VARCHAR", ["'b'", "'a'"])
    first = [number_of(row) for row in digests(rows, "VARCHAR").sums]
    assert sum(first) != sum(number_of(row) for row in digests(swapped, "VARCHAR").sums)
    assert first != [number_of(row) for row in digests(rows, "VARCHAR", number=3).sums]
    assert first != [number_of(row) for row in digests(rows, "VARCHAR", scope="shop\nmain.u").sums]


def test_columns_and_composite_keys_do_not_run_into_each_other() -> None:
    """("ab", "c") and ("a", "bc") are two keys."""
    rows = pa.table({"a": ["ab", "a"], "b": ["c", "bc"]})
    columns = {"a": (1, "VARCHAR"), "b": (2, "VARCHAR")}
    found = digest_rows(Keyed(SECRET), rows, scope="s", key=["a", "b"], columns=columns)
    table = plain.Table("s", [("a", "text"), ("b", "text")], [])
    expected = [plain.row_digest(SECRET, table, {n: rows.column(n)[i] for n in ("a", "b")}) for i in range(2)]
    assert [bytes(key) for key in found.keys] == [key for key, _ in expected]
    assert expected[0] != expected[1]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 50), st.text(max_size=40)), max_size=60), st.data())
def test_what_is_removed_leaves_nothing_behind(drawn: list[tuple[int, str]], data: Any) -> None:
    """Buckets after rows came and went are those of the rows that are left, in any order and any pieces."""
    rows = list(dict(drawn).items())
    left = [row for row in rows if data.draw(st.booleans())]
    gone = [row for row in rows if row not in left]
    state, other = Buckets.empty(), Buckets.empty()
    for row in rows:
        (state if data.draw(st.booleans()) else other).add(_rows([row]))
    state.merge(other)
    state.remove(_rows(gone))
    wanted = Buckets.empty()
    wanted.add(_rows(left))
    assert state.root() == wanted.root()
    assert state.counts.sum() == len(left)


def _rows(rows: list[tuple[int, str]]) -> Rows:
    table = pa.table(
        {"id": pa.array([k for k, _ in rows], pa.int32()), "v": pa.array([v for _, v in rows], pa.string())}
    )
    return digests(table, "VARCHAR")


def test_the_vectors() -> None:
    """What was published stays: a stranger's verifier may rely on it."""
    found = {
        kind: [[key.hex(), f"{row:032x}"] for key, row in plainly(table_of(kind, VALUES[kind]), kind)]
        for kind in VALUES
    }
    assert found == json.loads(VECTORS.read_text())["rows"]


def test_the_secret_is_not_printed() -> None:
    """It would let whoever reads a log aim at a collision."""
    assert SECRET.hex() not in repr(Keyed(SECRET))
    assert str(SECRET) not in repr(Keyed(SECRET))


def test_the_verifier_shares_no_code() -> None:
    """Neither imports the other, but for the two places that ask the verifier for its verdict, of files and
    of the log: what both get wrong, each got wrong by itself."""
    folder = Path(plain.__file__).parent
    imports = [
        line for file in folder.glob("*.py") for line in file.read_text().splitlines() if "import" in line
    ]
    assert imports
    assert not [line for line in imports if "truecut" in line and "truecut_verify" not in line]
    issuing = Path(__file__).parents[2] / "src" / "truecut"
    asking = {file.name for file in issuing.rglob("*.py") if "truecut_verify" in file.read_text()}
    assert asking == {"certificate_files.py", "witness.py"}


@pytest.mark.parametrize("kind", ["VARCHAR", "DECIMAL(10,2)", "INTEGER[]"])
def test_many_rows_have_the_digests_that_few_have(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed some at a time: keys, sums and kept cells are those of each row by itself."""
    literals = ["NULL", "repeat('x', 40)", "'a'"] if kind == "VARCHAR" else VALUES[kind][:3]
    rows = table_of(kind, literals * 7)
    monkeypatch.setattr("truecut.certificate.digest.SLICE_ROWS", 4)
    columns = {"id": (1, "INTEGER"), "v": (2, kind)}
    found = digest_rows(Keyed(SECRET), rows, scope="shop\nmain.t", key=["id"], columns=columns, keep=["v"])
    expected = plainly(rows, kind)
    assert [bytes(key) for key in found.keys] == [key for key, _ in expected]
    assert [number_of(one) for one in found.sums] == [row for _, row in expected]
    large = [n for n in range(rows.num_rows) if kind == "VARCHAR" and n % 3 == 1]
    assert not large or found.cells[2].rows.tolist() == large
    monkeypatch.setattr("truecut.certificate.digest.SLICE_ROWS", 1 << 15)
    whole = digest_rows(Keyed(SECRET), rows, scope="shop\nmain.t", key=["id"], columns=columns, keep=["v"])
    assert found.cells[2].rows.tolist() == whole.cells[2].rows.tolist()
    assert found.cells[2].digests.tolist() == whole.cells[2].digests.tolist()
