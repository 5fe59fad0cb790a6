"""What is no pipeline file at all: said at once, whatever it is and however large."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.config.pipelines import VALID, Folder
from truecut.config.finding import ConfigError
from truecut.config.load import load
from truecut.errors import ExitCode

# content, the one finding (after "p.yaml:")
NO_TREE: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "1  TC1006  the file is empty; `truecut init` writes one to begin with"),
    "comment": ("# nothing\n---\n", "1  TC1006  the file is empty; `truecut init` writes one to begin with"),
    "two documents": (
        VALID + "---\n" + VALID,
        "27  TC1005  a second YAML document begins here; a file holds one pipeline",
    ),
    "tab": ("a:\n\tb: 1\n", "2  TC1004  not YAML: found character that cannot start any token at column 1"),
    "open quote": ("a: 'b\nc: d\n", "3  TC1004  not YAML: found unexpected end of stream at column 1"),
    "colon": ("a: b: c", "1  TC1004  not YAML: mapping values are not allowed in this context at column 5"),
    "control": ("a: 1\nb: \x01\n", "2  TC1004  not YAML: a character that is not allowed"),
    "alias": ("a: *b\n", '1  TC1004  not YAML: no anchor "b" before this'),
    "tag": (
        "a: !!python/object:os.system x\n",
        '1  TC1004  the tag "tag:yaml.org,2002:python/object:os.system" is not supported; write plain values',
    ),
    "list key": ("? [a]\n: b\n", "1  TC1004  a key must be text, not a list or a mapping"),
    "not UTF-8": (b"a: 1\nb: \xff\n", "2  TC1003  not UTF-8 text (byte 9 of the file); save it as UTF-8"),
    "list": ("- a\n", "1  TC1011  expected a mapping, found a list"),
    "text": ("hello", "1  TC1011  expected a mapping, found text"),
    "deep": ("[" * 500_000, "1  TC1008  nested more than 40 levels deep"),
    "deep mappings": ("{a: " * 100_000, "1  TC1008  nested more than 40 levels deep"),
    "itself": ("&a\nspec: {x: *a}\n", "2  TC1008  aliases unfold into too much; write the settings out"),
    "bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{c}: &{c} [{','.join(9 * ['*' + p])}]\n" for p, c in zip("abcdefghi", "bcdefghij", strict=True)
        ),
        "1  TC1008  aliases unfold into too much; write the settings out",
    ),
    "too large": (
        b"#" * ((1 << 20) + 1),
        "1  TC1002  the file is larger than 1 MiB; is it a pipeline file? List many sinks in a for_each file",
    ),
}


@pytest.mark.parametrize("case", NO_TREE)
def test_what_is_no_pipeline_at_all(folder: Folder, case: str) -> None:
    """The place of the first fault, within a second."""
    content, finding = NO_TREE[case]
    start = time.process_time()
    assert folder.lines(content) == [f"p.yaml:{finding}"]
    assert time.process_time() - start < 2


def test_a_hundred_megabytes_are_refused_before_they_are_read(folder: Folder) -> None:
    """Size is checked first."""
    path = folder.path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    start = time.process_time()
    with pytest.raises(ConfigError, match="TC1002"):
        load(path, environ={})
    assert time.process_time() - start < 2


def test_files_that_cannot_be_read(folder: Folder) -> None:
    """Missing, a folder, or a name that no file can have."""
    for path, message in (
        (folder.path / "nope.yaml", "there is no such file"),
        (folder.path, "this is a folder"),
        (folder.path / "tenants.csv" / "x", "cannot be read"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            load(path, environ={})
        assert caught.value.fault.code == "TC1001"
        assert caught.value.exit_code == ExitCode.WRONG_INPUT
