"""The verifier is small, and nobody else's."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pyarrow as pa
import pytest

import truecut_verify
from truecut_verify import batches, digest
from truecut_verify.verdict import Check, Verdict, claims, overall

FOLDER = Path(truecut_verify.__file__).parent
LINES_MAX = 1500
READERS = {"batches.py", "lake.py", "live.py", "postgres.py"}  # of what is there now
READERS_LINES_MAX = 550
LOG_READERS = {"pgoutput.py", "texts.py", "witness.py"}  # of what a source's log says
LOG_READERS_LINES_MAX = 600


def code_lines(text: str) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    ignored = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    told = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            told |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - told)


def test_it_can_be_read_in_an_afternoon() -> None:
    """What checks files has fewer than 1,500 lines of code; what reads lakes and databases, 550 more; what
    reads a log, 600."""
    lines = {file.name: code_lines(file.read_text()) for file in FOLDER.glob("*.py")}
    readers = sum(count for name, count in lines.items() if name in READERS)
    log_readers = sum(count for name, count in lines.items() if name in LOG_READERS)
    assert readers < READERS_LINES_MAX
    assert log_readers < LOG_READERS_LINES_MAX
    assert sum(lines.values()) - readers - log_readers < LINES_MAX


def test_it_needs_nothing_of_truecut() -> None:
    """Nor anything else but pyarrow and cryptography, until a lake or a database is read."""
    code = (
        "import sys, truecut_verify.main; "
        "print({name.split('.')[0] for name in sys.modules} & {'truecut', 'duckdb', 'psycopg', 'pandas'})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("truecut", "numpy", "pandas")], file


@pytest.mark.parametrize(
    ("missing", "works", "dsn"),
    [("duckdb", "postgres", "ducklake:x"), ("psycopg", "lake", "postgresql://x")],
)
def test_what_reads_the_one_does_not_need_the_other(missing: str, works: str, dsn: str) -> None:
    """Each extra is enough for what it promises, and the other is named when it is asked for."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; import truecut_verify.{works}\n"
        "from truecut_verify.live import WrongUsage, open_reader\n"
        f"try: open_reader({dsn!r}, is_source=False)\n"
        "except WrongUsage as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    extra = {"duckdb": "duckdb", "psycopg": "postgres"}[missing]
    assert f"truecut-verify[{extra}]" in said.stdout, said.stderr


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    """Digests of a batch, of values of any length, with NULL and a key of two columns."""
    table = digest.Table("s", [("a", "int"), ("b", "text")], [("c", 3, "text"), ("d", 4, "bytes")])
    rows = [
        {
            "a": pa.scalar(n),
            "b": pa.scalar("x" * (n % 40)),
            "c": pa.scalar(None if n % 3 else "y" * n, pa.string()),
            "d": pa.scalar(bytes(n)),
        }
        for n in range(50)
    ]
    forms = {"a": "int", "b": "text", "c": "text", "d": "bytes"}
    columns = {
        name: [digest.encode(row[name], form) if row[name].is_valid else None for row in rows]
        for name, form in forms.items()
    }
    found = [(key, row) for key, row, _ in batches.digests_of(bytes(16), table, columns)]
    assert found == [digest.row_digest(bytes(16), table, row) for row in rows]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([], "unknown"),
        (["pass"], "pass"),
        (["pass", "unknown"], "unknown"),
        (["unknown", "fail", "pass"], "fail"),
    ],
)
def test_unknown_is_never_a_pass(found: list[Verdict], wanted: str) -> None:
    """One failure fails all; what is not known, or not asked, is not passed."""
    assert overall([Check("V1", one, "") for one in found]) == wanted


def test_the_copy_equals_the_source_only_at_one_frontier() -> None:
    """V4 and V5 of the same copy at the same place; otherwise it is said that it is not said."""
    v4 = Check("V4", "pass", "", "t", "s", "1")
    assert any(
        "equals the source at 1" in one for one in claims([v4, Check("V5", "pass", "", "t", "s", "1")])
    )
    for other in (Check("V5", "pass", "", "t", "s", "2"), Check("V5", "unknown", "", "t", "s", "1")):
        assert not any("equals the source at" in one for one in claims([v4, other]))


def test_what_was_not_read_is_said() -> None:
    """A sentence about the copies stands only where every copy was read; the others are named."""
    files = [Check("V0", "pass", "", "t", sink, "1") for sink in ("s", "other")]
    said = claims([*files, Check("V5", "pass", "", "t", "s", "1")])
    assert not any(one.startswith("The copy, read by this program") for one in said)
    assert any("Not read" in one and "t at other" in one and "t at s" not in one for one in said)
    whole = claims([*files, *(Check("V5", "pass", "", "t", sink, "1") for sink in ("s", "other"))])
    assert any(one.startswith("The copy, read by this program") for one in whole)
    assert not any("Not read" in one for one in whole)
