"""The state folder belongs to Truecut alone: it neither is nor holds what is the user's."""

from __future__ import annotations

import pytest

from tests.config.pipelines import MINIMAL, Folder, changed

SOURCE = "catalog: ./source.ducklake"


@pytest.mark.parametrize("state", [".", "..", "./link", "x/.."])
def test_the_files_own_folder_is_refused(folder: Folder, state: str) -> None:
    """However it is written: what lies beside the pipeline file is not Truecut's."""
    (folder.path / "link").symlink_to(folder.path)
    assert folder.lines(MINIMAL + f"  state: {state}\n") == [
        "p.yaml:10  TC1069  state: is or holds the folder of the pipeline file; "
        "name a folder that holds nothing else"
    ]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("./source.ducklake", "./state/source.ducklake", "the source's catalog"),
        (SOURCE, SOURCE + ", data_path: ./state/files", "the source's data_path"),
        (SOURCE, SOURCE + ", data_path: ./state", "the source's data_path"),
        ("./copy.ducklake", "sqlite:state/deep/copy.db", 'the catalog of the sink "copy"'),
        ("./copy.ducklake", "./copy.ducklake, data_path: ./state", 'the data_path of the sink "copy"'),
    ],
)
def test_a_folder_with_a_source_or_a_sink_is_refused(folder: Folder, old: str, new: str, what: str) -> None:
    """Catalogs and data paths are data: none of them lies in the state folder."""
    text = changed(MINIMAL, old, new) + "  state: ./state\n"
    line = text[: text.index("  state:")].count("\n") + 1
    assert folder.lines(text) == [
        f"p.yaml:{line}  TC1069  state: is or holds {what}; name a folder that holds nothing else"
    ]


def test_a_sink_in_the_default_state_folder_is_refused(folder: Folder) -> None:
    """Where the file does not name the state folder, the sink is what has to move."""
    text = changed(MINIMAL, "./copy.ducklake", "./.truecut/p/copy.ducklake")
    name = folder.load(MINIMAL).name
    assert folder.lines(text.replace("/p/", f"/{name}/")) == [
        f"p.yaml:9  TC1069  sinks.copy.name: its catalog lies in the state folder .truecut/{name}; "
        "put it elsewhere, or name another `state`"
    ]


@pytest.mark.parametrize("state", ["./state", "./state/inner", "../elsewhere", "./copy.ducklake.state"])
def test_a_folder_of_its_own_is_taken(folder: Folder, state: str) -> None:
    """Beside the file, below it or elsewhere; names that only begin alike are no trouble."""
    assert folder.load(MINIMAL + f"  state: {state}\n").state == folder.path / state
