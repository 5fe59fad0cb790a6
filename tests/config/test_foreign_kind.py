"""A sink of somebody else's: a package that names itself in the entry points is found as ours are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import truecut
from tests.config.pipelines import MINIMAL

MODULE = """
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from truecut.config.kinds import Unusable
from truecut.config.section import SinkSection, Text


class ShelfSection(SinkSection):
    type: Literal["shelf"]
    label: Text


@dataclass(frozen=True)
class ShelfAddress:
    label: str

    def identity(self, folders):
        return ("shelf", self.label)

    def folders(self):
        return iter(())

    def data_folder(self):
        return None

    def places(self):
        return iter(())


class ShelfKind:
    title = "a shelf"
    section = ShelfSection
    worker_modules = ()

    def settle(self, section, *, base):
        if section.label == "broken":
            raise Unusable("label", "no such shelf")
        return ShelfAddress(section.label)

    def called(self, address, table):
        return table


KIND = ShelfKind()
"""
ENTRY_POINTS = "[truecut.sinks]\nshelf = foreign_shelf:KIND\n"
SINK = "{name: copy, type: ducklake, catalog: ./copy.ducklake}"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """As an installer would leave it."""
    folder = tmp_path / "site"
    (folder / "foreign_shelf-1.0.dist-info").mkdir(parents=True)
    (folder / "foreign_shelf.py").write_text(MODULE)
    (folder / "foreign_shelf-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: foreign-shelf\nVersion: 1.0\n"
    )
    (folder / "foreign_shelf-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.mark.parametrize(
    ("sink", "code", "said"),
    [
        ("{name: copy, type: shelf, label: north}", 0, "1 sink"),
        ("{name: copy, type: shelf, lable: north}", 2, 'did you mean "label"'),
        ("{name: copy, type: shelf, label: broken}", 2, "no such shelf"),
        ("{name: copy, type: shelve, label: north}", 2, 'did you mean "shelf"'),
        (SINK, 0, "1 sink"),
    ],
    ids=["right", "misspelt key", "unusable", "misspelt type", "ours beside it"],
)
def test_a_foreign_sink_is_validated_by_its_own_section(
    installed: Path, tmp_path: Path, sink: str, code: int, said: str
) -> None:
    """Its keys, its suggestions and its own objections, without a word about it in our code."""
    (tmp_path / "pipeline.yaml").write_text(MINIMAL.replace(SINK, sink))
    done = truecut("validate", "pipeline.yaml", cwd=tmp_path, PYTHONPATH=str(installed))
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
