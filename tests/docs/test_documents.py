"""What the documents say can be checked: tests, links, commands, files and pictures that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
import yaml

from docs import record_demo
from docs.error_codes import harvest
from tests.cli.demo_story import told_in_order
from truecut.cli.main import COMMANDS
from truecut.config.load import load
from truecut.sources.ducklake import schema

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"))
    if path.is_file()
)
PROMISES = ("docs/guarantees.md",)

_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```sh\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_COMMAND = re.compile(r"(?<![\w/-])(?:\S*\.venv/bin/)?truecut ([a-z]+)([^#\n]*)")


def names(pattern: str) -> list[str]:
    """Documents by their names, for parameters."""
    return [str(path.relative_to(ROOT)) for path in DOCUMENTS if re.search(pattern, str(path))]


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def defined_in(file: Path) -> set[str]:
    """The test functions that a file defines, or takes over from the laws of `truecut.testing`."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    shared = [node.module for node in body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    laws = [ROOT / "src" / f"{str(module).replace('.', '/')}.py" for module in shared]
    own = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return own.union(*map(defined_in, laws))


@pytest.mark.parametrize("document", names(r"\.md$"))
def test_every_test_that_is_named_exists(document: str) -> None:
    """A promise whose test is gone is no promise."""
    for file, test in _TEST.findall(text_of(document)):
        assert (ROOT / file).is_file(), f"{document} names {file}"
        assert test in defined_in(ROOT / file), f"{document} names {file}::{test}"


@pytest.mark.parametrize("document", PROMISES)
def test_every_promise_names_a_test(document: str) -> None:
    """Each row of a table of promises has a test, and there are promises."""
    rows = list(promises(text_of(document)))
    assert len(rows) >= 8
    assert [row for row in rows if not _TEST.search(row)] == []


def promises(text: str) -> Iterator[str]:
    """The rows of tables whose first column is `promise`."""
    inside = False
    for line in text.splitlines():
        if line.startswith("| promise |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            yield line


@pytest.mark.parametrize("document", names(r"\.md$"))
def test_every_local_link_leads_somewhere(document: str) -> None:
    """Files exist; a part after `#` is a heading there."""
    for link in _LINK.findall(text_of(document)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, part = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        assert target.exists(), f"{document} links to {link}"
        if part:
            assert part in headings(target.read_text(encoding="utf-8")), f"{document} links to {link}"


def headings(text: str) -> set[str]:
    """The anchors that a document's headings get."""
    plain = [re.sub(r"[^\w\s-]", "", title.lower()) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"\s", "-", title.strip()) for title in plain}


@pytest.mark.parametrize(
    "document",
    names(
        r"(README|CONTRIBUTING|ARCHITECTURE|operations|ducklake|journal|spark|installing|ten-minutes)\.md$"
    ),
)
def test_every_command_that_is_shown_exists(document: str) -> None:
    """`truecut NAME --option`: the command is there and knows the option."""
    for name, arguments in commands_in(text_of(document)):
        assert name in COMMANDS, f"{document} shows truecut {name}"
        command = import_module(f"truecut.cli.{name}").command
        if isinstance(command, click.Group):
            name, command = " ".join([name, arguments.split()[0]]), command.commands[arguments.split()[0]]
        assert isinstance(command, click.Command)
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {"--log-level", "--log-format", "--help"}
        unknown = [option for option in re.findall(r"--[a-z-]+", arguments) if option not in known]
        assert unknown == [], f"{document} shows truecut {name}{arguments}"


def commands_in(text: str) -> list[tuple[str, str]]:
    """Commands in code: (name, what follows)."""
    code = ["".join(found) for found in _CODE.findall(text)]
    return [match for piece in code for match in _COMMAND.findall(piece)]


def test_commands_are_found() -> None:
    """The search for commands finds them in blocks and in lines, and nothing in prose or paths."""
    text = "truecut is `truecut run F --accept`\n```sh\n.venv/bin/truecut status F  # --not this\n```\n"
    text += "`src/truecut/cli` and truecut status"
    assert commands_in(text) == [("run", " F --accept"), ("status", " F  ")]


@pytest.mark.parametrize("document", names(r"(README|CONTRIBUTING)\.md$"))
def test_every_make_target_that_is_shown_exists(document: str) -> None:
    """`make NAME` is in the Makefile."""
    makefile = text_of("Makefile")
    shown = {
        name
        for piece in _CODE.findall(text_of(document))
        for name in re.findall(r"\bmake ([a-z]+)", "".join(piece))
    }
    assert {name for name in shown if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


def test_the_readmes_pipeline_is_right(tmp_path: Path) -> None:
    """What the README shows can be copied."""
    shown = re.search(r"```yaml\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert shown is not None
    (tmp_path / "pipeline.yaml").write_text(shown[1])
    (tmp_path / "tenants.csv").write_text("tenant\nacme\nglobex\n")
    pipeline = load(tmp_path / "pipeline.yaml", environ={})
    assert [(sink.name, sink.route) for sink in pipeline.sinks] == [("acme", "acme"), ("globex", "globex")]


def test_every_example_is_right() -> None:
    """`truecut validate` accepts each pipeline file of the examples."""
    files = sorted(ROOT.glob("examples/**/*.yaml"))
    assert files != []
    for file in files:
        assert yaml.safe_load(file.read_text(encoding="utf-8"))["kind"] == "Pipeline"
        assert load(file, environ={}).sinks != ()


def test_each_error_has_one_remedy() -> None:
    """Whoever looks a code up is told one thing to do, the one that the program says."""
    fixes: dict[str, set[str]] = {}
    for use in harvest():
        fixes.setdefault(use.code, set()).update({use.fix} - {""})
    assert {code: found for code, found in fixes.items() if len(found) > 1} == {}


def test_the_picture_shows_the_transcript() -> None:
    """`python docs/record_demo.py --render` would change nothing."""
    transcript = record_demo.TRANSCRIPT.read_text(encoding="utf-8")
    assert record_demo.PICTURE.read_text(encoding="utf-8") == record_demo.render(transcript)
    assert max(map(len, transcript.splitlines())) <= record_demo.COLUMNS


def test_the_picture_is_of_the_demo_as_it_is() -> None:
    """The transcript tells the story that the demo tells today, and the README says what it shows."""
    lines = record_demo.TRANSCRIPT.read_text(encoding="utf-8").splitlines()
    told_in_order(lines)
    assert sum(line.endswith("✓ equal") for line in lines) == 4
    assert [line for line in lines if re.match(r"The certificate, explained: \S+/certificate\.html$", line)]
    shown = re.search(r"!\[([^\]]+)\]\(docs/demo\.svg\)", text_of("README.md"))
    assert shown is not None
    words = ["PostgreSQL", "lake", "killed", "resumed", "verified", "tampered", "repaired", "compared"]
    places = [shown[1].find(word) for word in words]
    assert places == sorted(places)
    assert places[0] >= 0


def test_the_readme_is_one_screen() -> None:
    """Whoever wants more is led further; the pipeline it shows has five lines."""
    readme = text_of("README.md")
    assert len(readme.splitlines()) <= 46
    (pipeline,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert pipeline.count("\n") <= 5


def test_the_table_of_types_is_the_codes() -> None:
    """docs/ducklake.md names every type that is copied, and every one that is refused with its reason."""
    section = text_of("docs/ducklake.md").partition("### Types")[2].partition("\n## ")[0]
    copied: dict[str, str] = {}
    refused: dict[str, str] = {}
    for left, right in re.findall(r"^\| (`.*`) \| (.+) \|$", section, re.MULTILINE):
        types = re.findall(r"`([^`]+)`", left)
        if types[0] in schema._REASONS:
            refused.update(dict.fromkeys(types, right))
        elif types[0] == "timestamptz":
            copied["timestamptz"] = right
        else:
            copied.update(zip(types, right.split(), strict=True))
    assert copied.pop("decimal(p,s)") == "DECIMAL(p,s)"
    assert copied == schema._SCALARS
    assert refused == schema._REASONS


KNOW_DUCKLAKE = ("sources/ducklake/", "sinks/ducklake/", "lake.py", "object_store.py", "demo/", "cli/demo.py")


def test_nobody_else_names_ducklake() -> None:
    """It is one kind of source and of sink: what is its own stands with it. The two modules that both its
    connectors use, and the demo, are the exceptions."""
    source = ROOT / "src/truecut"
    named = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if "ducklake" in file.read_text(encoding="utf-8").lower()
    }
    assert {name for name in named if not name.startswith(KNOW_DUCKLAKE)} == set()
    assert len(named) > 20
