"""`${…}` in values."""

from __future__ import annotations

import pytest

from tests.config.pipelines import MINIMAL, VALID, Folder, changed


def route(folder: Folder, written: str, **environ: str) -> str | None:
    return folder.load(changed(VALID, "route: acme", f"route: {written}"), environ).sinks[0].route


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${A}", "1"),
        ("x${A}y${B}", "x1y{two}"),
        ("${UNSET:-else}", "else"),
        ("${EMPTY:-else}", "else"),
        ("${A:-else}", "1"),
        ("'${UNSET:-a b:c#}'", "a b:c#"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$1"),
        ("$A", "$A"),
        ("a$", "a$"),
    ],
)
def test_references_expand_after_parsing(folder: Folder, written: str, expected: str) -> None:
    """Each form gives text, whatever it looks like; `$$` is a dollar, a lone `$` stays."""
    assert route(folder, written, A="1", B="{two}", EMPTY="") == expected


def test_values_are_not_parsed_again(folder: Folder) -> None:
    """What a variable holds is text, never YAML and never another reference."""
    for value in ("[a, b]", "x: y", "${OTHER}", "# no comment", "'quoted'"):
        assert route(folder, "${V}", V=value, OTHER="no") == value


def test_keys_are_not_expanded(folder: Folder) -> None:
    """References work in values only."""
    lines = folder.lines(changed(MINIMAL, "metadata:", "${A}: 1\nmetadata:"), {"A": "kind"})
    assert lines == ["p.yaml:3  TC1010  ${A}: unknown key"]


def test_files_are_read_without_their_last_line_end(folder: Folder) -> None:
    """`${file:PATH}` is relative to the pipeline file."""
    folder.write("secret.txt", "geheim\r\n")
    assert route(folder, "${file:secret.txt}") == "geheim"
    assert route(folder, f"${{file:{folder.path}/secret.txt}}") == "geheim"


@pytest.mark.parametrize(
    ("written", "finding"),
    [
        (
            "${NOPE}",
            "TC1020  sinks.acme.route: the environment variable NOPE is not set; "
            "set it, or write ${NOPE:-default}",
        ),
        ("${file:nope}", 'TC1021  sinks.acme.route: there is no file "nope"'),
        ("${file:large}", 'TC1021  sinks.acme.route: the file "large" is larger than 64 KiB'),
        ("${file:binary}", 'TC1021  sinks.acme.route: the file "binary" is not UTF-8 text'),
        ("a${", "TC1022  sinks.acme.route: ${ is never closed; write ${NAME}, or $$ for a plain dollar"),
        (
            "${A:-${B}}",
            "TC1022  sinks.acme.route: a ${…} cannot stand inside another, nor a $ in its default",
        ),
        (
            "${1 2}",
            "TC1022  sinks.acme.route: not a reference; write ${NAME}, ${NAME:-default} or ${file:PATH}, "
            "or $$ for a plain dollar",
        ),
    ],
)
def test_a_bad_reference_is_found_with_its_place(folder: Folder, written: str, finding: str) -> None:
    """The finding names the reference, and nothing else is said about the value."""
    folder.write("large", b"x" * 70_000)
    folder.write("binary", b"\xff\xfe")
    assert folder.lines(changed(VALID, "route: acme", f"route: '{written}'")) == [f"p.yaml:19  {finding}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mode: mirror", "mode: ${S}"),
        ("route_by: tenant", "route_by: tenant\n      unrouted: ${S}"),
        ("name: tenants", "name: ${S}"),
        ("name: main.events", "name: ${S}"),
        ("key: [id]", "key: ${S}"),
        ("type: ducklake\n    catalog", "type: ${S}\n    catalog"),
        ("file: tenants.csv", "file: '${S}'"),
        ("./lakes/{tenant}.ducklake", "${S}"),
        ('name: "t-{tenant}"', "name: ${S}"),
        ("name: acme", "name: ${S}\n      foo: 1"),
        ("catalog: ./acme.ducklake", "catalog: postgresql://${S}"),
        ("route: acme", "route: acme\n      tables: [{name: '${S}'}]"),
        ("kind: Pipeline", "kind: ${S}"),
    ],
)
def test_what_a_reference_gave_is_never_shown(folder: Folder, old: str, new: str) -> None:
    """No finding holds any part of a value that came from `${…}`, wherever it stands."""
    text = changed(VALID, old, new) + "  batch: {interval: '${S}', rows_max: '${S}'}\n  control: x://${S}\n"
    for secret in ("hidden*{leaked}", "hidden leaked", "hidden.leaked"):
        lines = "\n".join(folder.lines(text, {"S": secret}))
        assert "batch.interval" in lines
        assert "hidden" not in lines
        assert "leaked" not in lines


def test_sinks_named_by_a_reference_are_named_by_number(folder: Folder) -> None:
    """A path uses names only where the file itself says them."""
    text = changed(MINIMAL, "name: copy,", "name: '${S}', foo: 1,")
    assert folder.lines(text, {"S": "hidden"}) == ["p.yaml:9  TC1010  sinks[0].foo: unknown key"]
