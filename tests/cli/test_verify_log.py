"""`truecut verify --level log`: what is said where nobody keeps the source's log for a second reader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.verify import issuer
from truecut.cli.verify import command


def verified(file: Path) -> tuple[int, set[tuple[str, str, str, str]]]:
    done = CliRunner().invoke(command, [str(file), "--level", "log", "--json"])
    told = json.loads(done.stdout)
    return done.exit_code, {(c["table"], c["sink"], c["level"], c["verdict"]) for c in told["checks"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline whose certificates are honest, of a lake as its source."""
    (tmp_path / "pipeline.yaml").write_text(
        "apiVersion: truecut/v1\nkind: Pipeline\nmetadata: {name: small}\nspec:\n"
        "  source: {type: ducklake, catalog: ./source.ducklake}\n"
        "  tables: [{name: main.t, key: [id]}]\n"
        "  sinks: [{name: x, type: ducklake, catalog: ./x.ducklake, data_path: ./x}]\n"
        "  certificate: {path: certificates}\n"
    )
    return tmp_path / "pipeline.yaml"


def test_without_a_witness_the_log_is_unknown(file: Path) -> None:
    """Never a pass, although all files are as they were signed: the exit code is 5."""
    world = issuer.live(file.parent / "certificates", 3)
    code, checks = verified(file)
    names = [(copy.table, copy.sink) for copy in world.copies]
    assert code == 5
    files = {(*name, level, "pass") for name in names for level in ("V0", "V1", "V2")}
    assert checks == files | {(*name, "V3", "unknown") for name in names}


def test_where_nothing_is_certified_nothing_is_known(file: Path) -> None:
    """A pipeline that has not issued a certificate, and one that never will."""
    assert verified(file) == (5, {("", "", "V0", "unknown")})
    file.write_text(file.read_text().replace("  certificate: {path: certificates}\n", ""))
    assert verified(file) == (5, {("", "", "V0", "unknown")})
