"""`truecut validate`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import truecut
from tests.config.pipelines import TENANTS, VALID, changed


def test_a_right_file_is_ok(tmp_path: Path) -> None:
    """One line on stdout, exit 0, and nothing is created beside the file."""
    (tmp_path / "p.yaml").write_text(VALID)
    (tmp_path / "tenants.csv").write_text(TENANTS)
    result = truecut("validate", "p.yaml", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "p.yaml: ok; pipeline tenants, 1 table, 3 sinks\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.yaml", "tenants.csv"]


def test_a_wrong_file_gives_its_findings_on_stderr(tmp_path: Path) -> None:
    """`file:line  code  path: what; did you mean …`, a line each, exit 2."""
    text = changed(VALID, "data_path: ./acme-data", "data_pathh: ${SHOP}")
    (tmp_path / "p.yaml").write_text(changed(text, "mode: mirror", "mode: miror"))
    (tmp_path / "tenants.csv").write_text(TENANTS)
    result = truecut("validate", "p.yaml", cwd=tmp_path, SHOP="geheim")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        'p.yaml:18  TC1010  sinks.acme.data_pathh: unknown key; did you mean "data_path"?\n'
        'p.yaml:26  TC1012  sinks.t-{tenant}.mode: expected mirror or append, found "miror"; '
        'did you mean "mirror"?\n'
    )


def test_json_names_its_schema_and_every_finding(tmp_path: Path) -> None:
    """One document on stdout, whether the file is right or wrong; the exit code says which."""
    (tmp_path / "p.yaml").write_text(changed(VALID, "kind: Pipeline", "kind: Pipelin"))
    (tmp_path / "tenants.csv").write_text(TENANTS)
    wrong = truecut("validate", "p.yaml", "--json", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (2, "")
    assert json.loads(wrong.stdout) == {
        "schema": "truecut.validate/v1",
        "file": "p.yaml",
        "valid": False,
        "pipeline": None,
        "tables": None,
        "sinks": None,
        "findings": [
            {
                "file": "p.yaml",
                "line": 2,
                "code": "TC1012",
                "path": "kind",
                "message": 'expected Pipeline, found "Pipelin"; did you mean "Pipeline"?',
                "fix": "Use one that is listed.",
            }
        ],
    }
    (tmp_path / "p.yaml").write_text(VALID)
    right = truecut("validate", "--json", "p.yaml", cwd=tmp_path)
    assert (right.returncode, right.stderr) == (0, "")
    assert json.loads(right.stdout) == {
        "schema": "truecut.validate/v1",
        "file": "p.yaml",
        "valid": True,
        "pipeline": "tenants",
        "tables": 1,
        "sinks": 3,
        "findings": [],
    }


def test_a_missing_file(tmp_path: Path) -> None:
    """Wrong input, with the remedy."""
    result = truecut("validate", "nope.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "nope.yaml:1  TC1001  there is no such file; `truecut init` writes one\n"
