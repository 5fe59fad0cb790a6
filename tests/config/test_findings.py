"""How findings are told: all at once, in a length that can be read, safe to print and to send."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest

from tests.config.pipelines import MINIMAL, VALID, Folder, changed
from truecut.config.finding import ConfigError
from truecut.config.load import load


def test_all_faults_are_found_at_once(folder: Folder) -> None:
    """A misspelt key does not hide a missing variable, a duplicated sink or a bad line of a for_each file."""
    folder.write("tenants.csv", "tenant\nglobex\n\nglobex\n")
    text = changed(VALID, "data_path: ./source-data", "pth: ${NOPE}")
    text = changed(text, "kind: Pipeline", "kind: Pipelin")
    text += "    - {name: acme, type: ducklake, catalog: ./acme.ducklake}\n"
    assert [(f.rule.code, f.line, Path(f.file).name) for f in folder.findings(text)] == [
        ("TC1012", 2, "p.yaml"),
        ("TC1020", 9, "p.yaml"),
        ("TC1040", 27, "p.yaml"),
        ("TC1033", 3, "tenants.csv"),
        ("TC1034", 4, "tenants.csv"),
    ]


def test_a_file_wrong_everywhere_is_quick_and_short(folder: Folder) -> None:
    """A mebibyte of unknown keys costs seconds at most, and a message that can be read."""
    text = "".join(f"sinkss{i}: [{{x: '${{NOPE}}'}}]\n" for i in range(30_000))
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        folder.load(text)
    assert time.process_time() - start < 8
    assert len(str(caught.value)) < 20_000
    assert str(caught.value).endswith(" more")


def test_what_terminals_obey_is_not_printed(folder: Folder) -> None:
    """Control characters of a key or value are shown as escapes, long text is cut."""
    text = changed(MINIMAL, "kind: Pipeline", 'kind: "\\e[31mred"\n"\\e[2J": 1\n' + "k" * 300 + ": 1")
    shown = "\n".join(folder.lines(text))
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown
    assert max(map(len, shown.splitlines())) < 150


def test_config_errors_survive_pickling(folder: Folder) -> None:
    """An error that crosses a process keeps its findings."""
    with pytest.raises(ConfigError) as caught:
        folder.load("a: 1")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, ConfigError)
    assert again.findings == caught.value.findings
    assert str(again) == str(caught.value)


def test_relative_files_are_shown_as_given(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding names the file as the user did, so that an editor can jump to it."""
    monkeypatch.chdir(folder.path.parent)
    relative = Path(os.path.relpath(folder.write("p.yaml", VALID), folder.path.parent))
    folder.write("tenants.csv", "tenant\n\n")
    with pytest.raises(ConfigError) as caught:
        load(relative, environ={})
    assert caught.value.findings[0].file == f"{folder.path.name}/tenants.csv"
