"""One sink for each line of a CSV file."""

from __future__ import annotations

import pytest

from tests.config.pipelines import VALID, Folder, changed

PLACE = "sinks.t-{tenant}.for_each"
ASTRAY = " leads to another folder (/, \\, ..)"


def test_values_are_text_as_they_stand(folder: Folder) -> None:
    """Quotes, commas, line ends for a route, numbers and dollars: nothing is read into a value."""
    values = ["007", "a,b", 'say "x"', "${HOME}", "{tenant}", "Ärzte", "null"]
    quoted = ['"' + value.replace('"', '""') + '"' for value in values]
    folder.write("tenants.csv", "\ufefftenant\r\n" + "\r\n".join(quoted))
    assert [sink.route for sink in folder.load(VALID).sinks[1:]] == values


def test_columns_may_stand_anywhere(folder: Folder) -> None:
    """Several placeholders in one text, columns that nobody uses."""
    text = changed(VALID, '"t-{tenant}"', '"{region}-{tenant}-{region}"')
    assert [sink.name for sink in folder.load(text).sinks[1:]] == ["eu-globex-eu", "us-initech-us"]


@pytest.mark.parametrize(
    ("content", "findings"),
    [
        (b"", ["1  TC1031  the file is empty; its first line must name the columns"]),
        (b"\n", ["1  TC1031  the file is empty; its first line must name the columns"]),
        (b"tenant\n", ["1  TC1031  no line below the header; add one for each sink"]),
        (b"tenant\na\n\nb\n", ["3  TC1033  the line is empty; remove it"]),
        (b"tenant\na\nb\na\n", ["4  TC1034  the same as line 2; remove one"]),
        (b"tenant,tenant\na,b\n", ['1  TC1032  the column "tenant" stands twice']),
        (b"tenant;region\na;b\n", [
            "1  TC1032  the columns are separated by ; here; separate them by commas",
        ]),
        (b"tenant\tregion\na\tb\n", [
            "1  TC1032  the columns are separated by tabs here; separate them by commas",
        ]),
        (b"tenant\n a\n", ["2  TC1033  a value that name needs has blanks around it, or" + ASTRAY]),
        (b"tenant\n../a\nb\n", ["2  TC1033  a value that name needs has blanks around it, or" + ASTRAY]),
        (b"tenant\na\\b\n", ["2  TC1033  a value that name needs has blanks around it, or" + ASTRAY]),
        (b"tenant,\na,b\n", ["1  TC1032  column 2 has no name"]),
        (b"tenant,x\na\nb,c,d\n", [
            "2  TC1033  the header has 2 columns, this line has 1",
            "3  TC1033  the header has 2 columns, this line has 3",
        ]),
        (b'tenant\na\n"b\n', ["3  TC1033  not CSV: a quote that is not closed, or text after one"]),
        (b'tenant\n"a"b\n', ["2  TC1033  not CSV: a quote that is not closed, or text after one"]),
        (b'tenant\n"a\nb"\n', [
            "2  TC1033  a value for a name or a path holds line ends or control characters",
        ]),
        (b"tenant,x\n,1\n", ["2  TC1033  a value that name needs is empty"]),
        (b"tenant\na\n\xff\n", ["3  TC1003  not UTF-8 text; save the file as UTF-8"]),
        (b"tenant,x\na,1\na,2\n", [
            '3  TC1040  the same name as the sink "t-a" (line 2); names of sinks must differ',
        ]),
    ],
)  # fmt: skip
def test_a_bad_file_is_found_with_its_line(folder: Folder, content: bytes, findings: list[str]) -> None:
    """File and line are those of the CSV file."""
    folder.write("tenants.csv", content)
    places = (finding.split("  ") for finding in findings)
    expected = [f"tenants.csv:{line}  {code}  {PLACE}: {message}" for line, code, message in places]
    assert folder.lines(VALID) == expected


def test_a_file_that_is_too_large(folder: Folder) -> None:
    """A for_each file is bounded, too."""
    folder.write("tenants.csv", b"tenant\n" + b"x" * (16 << 20))
    assert folder.lines(VALID) == [
        f"p.yaml:25  TC1030  {PLACE}.file: tenants.csv: the file is larger than 16 MiB"
    ]


def test_a_missing_file_is_told_where_it_is_named(folder: Folder) -> None:
    """There is no line of its own to point to."""
    (folder.path / "tenants.csv").unlink()
    assert folder.lines(VALID) == [f"p.yaml:25  TC1030  {PLACE}.file: tenants.csv: there is no such file"]


def test_a_placeholder_that_is_the_whole_path_may_lead_anywhere(folder: Folder) -> None:
    """Then the file says where things are; a part of a path may not."""
    folder.write("tenants.csv", "tenant,lake\na,/lakes/a.ducklake\nb,../b.ducklake\n")
    text = changed(VALID, "./lakes/{tenant}.ducklake", "{lake}")
    assert [str(sink.address) for sink in folder.load(text).sinks[1:]] == [
        "duckdb:/lakes/a.ducklake",
        f"duckdb:{folder.path}/../b.ducklake",
    ]


def test_a_password_is_no_path(folder: Folder) -> None:
    """Slashes in what goes into a connection string are nobody's business."""
    folder.write("tenants.csv", "tenant,pw\na,x/y\n")
    text = changed(VALID, "./lakes/{tenant}.ducklake", "postgres:dbname={tenant} password={pw}")
    assert folder.load(text).sinks[1].name == "t-a"


def test_a_placeholder_without_a_column(folder: Folder) -> None:
    """It is named, with the column that was probably meant, or with all of them."""
    text = changed(VALID, 'route: "{tenant}"', 'route: "{tennant}"')
    text = changed(text, '"./lakes/{tenant}"', '"./lakes/{}"')
    assert folder.lines(text) == [
        'p.yaml:23  TC1035  sinks.t-{tenant}.data_path: the placeholder "{}" has no column of that name; '
        'the columns are "tenant", "region"',
        'p.yaml:24  TC1035  sinks.t-{tenant}.route: the placeholder "{tennant}" has no column of that name; '
        'did you mean "tenant"?',
    ]


def test_a_name_without_a_placeholder(folder: Folder) -> None:
    """All its sinks would have one name."""
    assert folder.lines(changed(VALID, '"t-{tenant}"', "fixed")) == [
        "p.yaml:20  TC1036  sinks.fixed.name: needs a placeholder, so that each line gives a "
        "sink of its own, "
        'e.g. "t-{column}"'
    ]


def test_lines_that_meet_in_one_catalog(folder: Folder) -> None:
    """Two tenants never share a lake by a slip; the line that repeats it is named."""
    folder.write("tenants.csv", "tenant,lake\na,one\nb,two\nc,one\n")
    text = changed(VALID, "./lakes/{tenant}.ducklake", "./lakes/{lake}.ducklake")
    assert folder.lines(text) == [
        f'tenants.csv:4  TC1041  {PLACE}: writes "main.events" into the same catalog as the '
        'sink "t-a" (line 2); '
        "give it its own catalog"
    ]


def test_values_of_the_file_are_not_shown(folder: Folder) -> None:
    """A column may hold passwords: findings name lines and columns, not values."""
    folder.write("tenants.csv", "tenant,pw\na,geheim\nb,geheim,geheim\n,geheim\na,geheim2\n")
    text = changed(VALID, "./lakes/{tenant}.ducklake", "postgres:dbname={tenant} password={pw}")
    lines = folder.lines(text)
    assert len(lines) == 3
    assert "geheim" not in "\n".join(lines)


def test_a_placeholder_without_for_each(folder: Folder) -> None:
    """Every text with a placeholder that nothing fills is named."""
    lines = folder.lines(changed(VALID, "      for_each: {file: tenants.csv}\n", ""))
    assert lines == [
        f'p.yaml:{line}  TC1035  sinks.t-{{tenant}}.{field}: the placeholder "{{tenant}}" '
        f"needs a for_each: {{file: …}}"
        for line, field in ((20, "name"), (22, "catalog"), (23, "data_path"), (24, "route"))
    ]
