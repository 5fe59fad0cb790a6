"""docs/ten-minutes.md, as its reader follows it: its script, its files, its commands and what they show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.inside import call, seed
from tests.patience import PATIENCE_S
from truecut.config.load import load
from truecut.lake import connect

ROOT = Path(__file__).parent.parent.parent
PIECES = (ROOT / "docs" / "ten-minutes.md").read_text(encoding="utf-8").split("```")[1::2]


def block(language: str, *, holds: str) -> str:
    """The page's one piece of code of the language in which this stands."""
    pieces = [piece.partition("\n") for piece in PIECES]
    (found,) = (code for kind, _, code in pieces if kind == language and holds in code)
    return found


def shown() -> dict[str, list[str]]:
    """What the page shows, line by line, below each command."""
    said: dict[str, list[str]] = {}
    for piece in (piece for piece in PIECES if piece.startswith("\n$ ")):
        for line in piece.strip().splitlines():
            if line.startswith("$ "):
                said[line[2:]] = []
            else:
                said[list(said)[-1]].append(line)
    return said


def missing(lines: list[str], said: str) -> list[str]:
    """Lines of the page that were not said, in their order; `…` stands for anything."""
    lost, rest = [], said.splitlines()
    for line in lines:
        pattern = ".*".join(map(re.escape, line.strip().split("…")))
        place = next((n for n, one in enumerate(rest) if re.fullmatch(pattern, one.strip())), None)
        if place is None:
            lost.append(line)
        else:
            rest = rest[place + 1 :]
    return lost


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, into which the script was copied; the commands are called there."""
    shutil.copy(ROOT / "examples/tenants/make_source.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(*arguments: str) -> str:
    """What make_source.py prints."""
    command = [sys.executable, "make_source.py", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return ran.stdout


def test_the_page_can_be_followed(folder: Path) -> None:
    """From the empty folder to lakes of their own: what the page shows of a command is what it prints, and
    its query finds as many rows as it says. The sinks are filled without Spark."""
    page = shown()
    assert missing(page.pop("python make_source.py"), script()) == []
    assert call("init", "--dsn", "sqlite:source.ducklake", "--output", "begin.yaml").code == 0
    (folder / "pipeline.yaml").write_text(block("yaml", holds="kind: Pipeline"))
    (folder / "tenants.csv").write_text(block("", holds="tenant\nacme"))
    (run,) = (command for command in page if command.startswith("truecut run"))
    carried = page.pop(run)
    assert set(page) == {f"truecut {name} pipeline.yaml" for name in ("validate", "doctor", "plan")}
    for command, lines in page.items():
        answer = call(*command.split()[1:])
        assert (answer.code, missing(lines, answer.stdout)) == (0, []), answer.stdout + answer.stderr
    seed(load(folder / "pipeline.yaml", environ={}), "acme", "globex")
    query = block("sql", holds="ATTACH")
    with connect() as duckdb:
        counted = duckdb.execute(query).fetchone()
        assert counted is not None
        assert query.rstrip().endswith(f"-- {counted[0]}")
        assert [line for line in carried if re.fullmatch(rf"  acme: current at .*, {counted[0]} rows", line)]
    script("--more")
    assert "behind" in call("status", "pipeline.yaml").stdout
    (folder / "tenants.csv").write_text("tenant\nacme\nglobex\nhooli\n")
    planned = call("plan", "pipeline.yaml").stdout
    assert "main.events to sink hooli (new)" in planned
    assert re.search(r"^  acme: 3 snapshots after ", planned, re.MULTILINE)


def test_what_a_page_shows_and_nobody_said_is_found() -> None:
    """The comparison: `…` is anything, the order counts, a line that is not there is named."""
    said = "one: 12 rows\ntwo\nthree"
    assert missing(["one: … rows", "three"], said) == []
    assert missing(["three", "two"], said) == ["two"]
    assert missing(["one: 13 rows"], said) == ["one: 13 rows"]
