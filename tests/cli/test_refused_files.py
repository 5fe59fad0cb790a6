"""Files that are wrong in themselves, as a user meets them: refused before anything is touched, with a clear
message (place, code, remedy) and the right exit code, and without a secret in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.canaries import SECRET, assert_silent
from tests.cli.inside import call, untouched
from tests.config.pipelines import TENANTS, VALID, changed

WRONG_FILES = {
    "unknown key": (
        ("data_path: ./acme-data", "data_pathh: ${SECRET}"),
        'p.yaml:18  TC1010  sinks.acme.data_pathh: unknown key; did you mean "data_path"?',
    ),
    "wrong type": (("key: [id]", "key: {id: 1}"), "p.yaml:12  TC1011  tables.main.events.key"),
    "missing variable": (("./acme-data", "${NOT_THERE_AT_ALL}"), "p.yaml:18  TC1020  sinks.acme.data_path"),
    "duplicate sink names": (("name: acme", "name: t-globex"), "TC1040"),
    "placeholder without a column": (("lakes/{tenant}.ducklake", "lakes/{tenat}.ducklake"), "TC1035"),
    "the same table twice": (("./lakes/{tenant}.ducklake", "./acme.ducklake"), "TC1041"),
    "not yaml": (("kind: Pipeline", "kind: [Pipeline"), "TC1004"),
    "no column to route by": (("      route_by: tenant\n", ""), "TC1047"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
@pytest.mark.parametrize("command", ["run", "plan", "doctor", "status"])
def test_a_wrong_file_stops_every_command_before_it_does_anything(
    command: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 with file, line, code and path; no file is made."""
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    (old, new), expected = WRONG_FILES[case]
    (tmp_path / "p.yaml").write_text(changed(VALID, old, new))
    (tmp_path / "tenants.csv").write_text(TENANTS)
    with untouched(tmp_path):
        answer = call(command, "p.yaml")
    assert answer.code == 2
    assert expected in answer.stderr
    assert re.match(r"(p\.yaml|tenants\.csv):\d+  TC1\d{3}  ", answer.stderr)
    assert_silent(answer.stdout, answer.stderr)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("tenant,region\n", "TC1031"),
        ("tenant,region\nglobex,eu\nglobex,eu\n", "tenants.csv:3  TC1034"),
        ("tenant,region\nglobex,eu\nglobex,us\n", "TC1040"),
        ("tenant,region\nglobex,eu\n\ninitech,us\n", "tenants.csv:3  TC1033"),
    ],
    ids=["empty", "the same line twice", "the same name twice", "an empty line"],
)
def test_a_wrong_for_each_file_is_named_with_its_line(
    lines: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 before anything is touched."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(VALID)
    (tmp_path / "tenants.csv").write_text(lines)
    with untouched(tmp_path):
        answer = call("run", "p.yaml", "--until-caught-up")
    assert (answer.code, answer.stdout) == (2, "")
    assert expected in answer.stderr


def test_a_hundred_megabytes_are_no_pipeline(tmp_path: Path) -> None:
    """Refused by its size, whatever is in it."""
    path = tmp_path / "big.yaml"
    with path.open("wb") as big:
        big.truncate(100 << 20)
    answer = call("run", path)
    assert (answer.code, answer.stdout) == (2, "")
    assert "TC1002" in answer.stderr
