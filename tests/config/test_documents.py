"""Generated documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.error_codes import Use, harvest, mentioned
from docs.generate import documents
from truecut.config import rules

RANGES = set("1234567")


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    """Every code of the source, with its words."""
    return harvest()


def test_generated_documents_are_current() -> None:
    """`python docs/generate.py` would change nothing."""
    for path, text in documents().items():
        assert path.read_text(encoding="utf-8") == text


def test_every_code_has_words(uses: list[Use]) -> None:
    """No code of the source is without a meaning, and none outside delivery without a fix."""
    assert mentioned() == {use.code for use in uses}
    assert {use.code for use in uses if not use.fix and not use.code.startswith("TC3")} == set()
    assert {use.code[2] for use in uses} <= RANGES


def test_a_code_has_one_meaning(uses: list[Use]) -> None:
    """Two modules never use one code, each with words of its own."""
    modules: dict[str, set[str]] = {}
    for use in uses:
        modules.setdefault(use.code, set()).add(use.module)
    assert {code: found for code, found in modules.items() if len(found) > 1} == {}


def test_every_rule_of_the_file_has_its_own_code() -> None:
    """Codes of the pipeline file are distinct and of the form TC1xxx."""
    codes = [rule.code for rule in vars(rules).values() if isinstance(rule, rules.Rule)]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"TC1\d{3}", code) for code in codes)


def test_the_harvest_finds_every_way_to_write_a_code(tmp_path: Path) -> None:
    """Calls, tuples, constants, imported constants, variables and keywords."""
    (tmp_path / "one.py").write_text(
        'GONE = "TC2001"\nraise Error(GONE, f"{what.name} is gone: {f(x)}", fix="Look.")\n'
    )
    (tmp_path / "two.py").write_text(
        "from one import GONE\n\n\ndef f():\n"
        '    message = "first"\n    a = ("TC3001", message)\n'
        '    message = "second"\n    return Stop(table, "TC3002", message, "Do " "it.")\n'
        '\n\ndef g():\n    return x == GONE or Hold(at, GONE, "odd" if y else "even")\n'
    )
    found = [(use.code, use.module, use.meaning, use.fix) for use in harvest(tmp_path)]
    assert found == [
        ("TC2001", "one", "{name} is gone: {…}", "Look."),
        ("TC2001", "two", "odd / even", ""),
        ("TC3001", "two", "first", ""),
        ("TC3002", "two", "second", "Do it."),
    ]
