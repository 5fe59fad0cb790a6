"""Names are data: whatever a sink is called, it is shown as it is; a misspelt one gets a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import truecut
from tests.config.pipelines import MINIMAL, changed


def test_a_sink_whose_name_looks_like_markup_is_shown(tmp_path: Path) -> None:
    """`[/x]` is a name, not the end of a style."""
    (tmp_path / "p.yaml").write_text(changed(MINIMAL, "name: copy", 'name: "[/x]"'))
    result = truecut("status", "p.yaml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "[/x]" in result.stdout


def test_what_is_longer_than_a_line_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one row, however narrow the terminal: nothing is cut off that somebody will look for."""
    monkeypatch.setenv("COLUMNS", "40")
    name = "of-somebody-with-a-rather-long-name-for-a-sink"
    (tmp_path / "p.yaml").write_text(changed(MINIMAL, "name: copy", f"name: {name}"))
    result = truecut("status", "p.yaml", cwd=tmp_path)
    rows = [line.split()[:2] for line in result.stdout.splitlines()]
    assert [name, "behind"] in rows, result.stdout


@pytest.mark.parametrize(
    ("option", "name", "message", "fix"),
    [
        ("--sink", "copie", 'no sink "copie"; did you mean "copy"?', "Its sinks are copy."),
        ("--table", "main.event", 'no table "main.event"; did you mean "main.events"?', "main.events."),
        ("--table", "zzz", 'no table "zzz"', "Its tables are main.events."),
    ],
)
def test_a_name_that_the_pipeline_does_not_have(
    tmp_path: Path, option: str, name: str, message: str, fix: str
) -> None:
    """The one that was probably meant, and the ones there are; nothing is paused."""
    (tmp_path / "p.yaml").write_text(MINIMAL)
    result = truecut("pause", "p.yaml", option, name, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert fix in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]
