"""Whatever the bytes: only ConfigError comes out, soon, and never with what the environment holds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.config.pipelines import MINIMAL, TENANTS, VALID
from truecut.config import reserved
from truecut.config.finding import ConfigError
from truecut.config.load import load
from truecut.config.schema import json_schema

SECONDS_MAX = 5.0
ENVIRON = {
    "SECRET": "hidden-{leaked}*.x",
    "NUMBER": "0hidden0leaked0",
    "EMPTY": "",
    "BROKEN": "hidden\0\udcffleaked\n",
}
HIDDEN = ("hidden", "leaked")
FULL = (
    VALID
    + """\
    - name: more
      type: ducklake
      catalog: postgres:dbname=more
      existing: refuse
      tables: [{name: main.events, mode: append}]
  batch: {rows_max: 1, bytes_max: 1MiB, interval: 1s, deadline: 1s}
  lease: {duration: 10s}
  control: ./control.db
  state: ./state
  spark: {master: local, conf: {a: b}}
"""
)
EXAMPLES = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def names() -> list[str]:
    """Every key that the file knows or will know."""
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    return sorted({*reserved.KEYS, *(key for section in sections for key in section["properties"])})


KEYS = st.sampled_from([*names(), "pathh", "<<", "", "${SECRET}", "é", "x" * 200])
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
TROUBLE = [
    *("${SECRET}", "${NUMBER}", "${EMPTY}", "${BROKEN}", "${NOPE}", "${file:secret}", "${file:.}"),
    *("x-${SECRET}", "postgres:password=${SECRET}", "${SECRET:-d}", "$$", "${", "${}", "${file:\0}"),
    *("postgres:postgresql://[/x", "postgres:postgresql://h:x/d", "sqlite:", "a\0b", "\x1b[2J", "/", ".", ""),
    *("{", "{tenant}", "{nope}", "main.*", "postgres", "history", "../" * 50, "x" * 5000),
]
WORDS = st.sampled_from(
    [
        *TROUBLE,
        *("ducklake", "mirror", "append", "main.events", "acme", "id", "truecut/v1", "Pipeline"),
        *("tenants.csv", "./a.ducklake", "sqlite:x", "postgres:dbname=a", "2s", "64MiB", "500", "t-{tenant}"),
    ]
)
SCALARS = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
TREES = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=6),
    max_leaves=25,
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """One folder for all examples."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tenants.csv").write_text(TENANTS)
        (Path(name) / "secret").write_text("hidden.leaked")
        yield Path(name)


def fault(path: Path) -> ConfigError | None:
    """What is wrong with a file, if anything is. Any other exception fails the test."""
    try:
        load(path, environ=ENVIRON)
    except ConfigError as error:
        return error
    return None


def survives(place: Path, content: bytes) -> None:
    """The law of all tests here."""
    path = place / "p.yaml"
    path.write_bytes(content)
    start = time.process_time()
    error = fault(path)
    assert time.process_time() - start < SECONDS_MAX
    if error is not None:
        message = str(error)
        assert message.replace("\n", "").isprintable()
        assert all(finding.line >= 1 for finding in error.findings)
        assert not any(word in message for word in HIDDEN)


@EXAMPLES
@given(content=st.binary(max_size=400))
@example(content=b"\xef\xbb\xbf")
@example(content=b"\xff\xfea\x00")
@example(content=b"%YAML 9.9\n---\na")
def test_random_bytes(place: Path, content: bytes) -> None:
    """No sequence of bytes brings anything but a ConfigError."""
    survives(place, content)


@EXAMPLES
@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?~<\n \t$0.", max_size=200))
def test_text_of_yaml_signs(place: Path, text: str) -> None:
    """Nor does text made of what means something to YAML."""
    survives(place, text.encode())


@EXAMPLES
@given(tree=TREES)
def test_random_trees(place: Path, tree: object) -> None:
    """Nor does any tree of known and unknown keys with values of any type in any place."""
    survives(place, yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"))


@EXAMPLES
@given(parts=st.dictionaries(KEYS, TREES, min_size=1, max_size=3), data=st.data())
def test_trees_that_are_nearly_right(place: Path, parts: dict[str, object], data: st.DataObject) -> None:
    """Nor does a file with anything at all in one of its places."""
    document = yaml.safe_load(data.draw(st.sampled_from([VALID, MINIMAL])))
    spec = document["spec"]
    target = data.draw(
        st.sampled_from(
            [document, document["metadata"], spec, spec["source"], spec["tables"][0], *spec["sinks"]]
        )
    )
    target.update(parts)
    survives(place, yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


def leaves(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value that is neither list nor mapping."""
    if isinstance(tree, dict | list):
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(child, (*path, key))
    else:
        yield path


@pytest.mark.parametrize(
    "path", list(leaves(yaml.safe_load(FULL))), ids=lambda path: ".".join(map(str, path))
)
def test_every_word_in_every_place(place: Path, path: tuple[str | int, ...]) -> None:
    """Nor does any troublesome word, alone or beside another fault, in the place of any value."""
    for word in TROUBLE:
        document = yaml.load(FULL, Loader=LOADER)
        target = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = word
        survives(place, yaml.dump(document, Dumper=DUMPER).encode())
        document["spec"]["sinks"].append({"name": "acme", "unknown": 1})
        survives(place, yaml.dump(document, Dumper=DUMPER).encode())


@EXAMPLES
@given(data=st.data())
def test_mutated_files(place: Path, data: st.DataObject) -> None:
    """Nor does a right file with words replaced, cut, doubled or moved."""
    text = data.draw(st.sampled_from([VALID, MINIMAL]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        middle = data.draw(st.one_of(WORDS, KEYS, st.just(""), st.just(text[start:end] * 2), st.just("\n")))
        text = text[:start] + middle + text[end:]
    survives(place, text.encode())


@EXAMPLES
@given(
    content=st.one_of(st.binary(max_size=100), st.text("tenan,\"\n\r\0 {}'$", max_size=60).map(str.encode))
)
def test_random_for_each_files(place: Path, content: bytes) -> None:
    """Nor does any for_each file."""
    (place / "fuzz.csv").write_bytes(content)
    survives(place, VALID.replace("tenants.csv", "fuzz.csv").encode())
