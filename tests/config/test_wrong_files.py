"""Files that are wrong: what is said about them, and where."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest

from tests.config.pipelines import MINIMAL, VALID, Folder, changed
from truecut.config.finding import ConfigError
from truecut.config.load import load
from truecut.errors import ExitCode

# old text, new text, the one finding (after "p.yaml:"); applied to VALID
ONE_FAULT = {
    "api version": (
        "truecut/v1",
        "truecut/v2",
        '1  TC1012  apiVersion: expected truecut/v1, found "truecut/v2"; did you mean "truecut/v1"?',
    ),
    "kind": (
        "kind: Pipeline",
        "kind: Job",
        '2  TC1012  kind: expected Pipeline, found "Job"',
    ),
    "misspelt section": (
        "metadata:",
        "metadatta: {}\nmetadata:",
        '3  TC1010  metadatta: unknown key; did you mean "metadata"?',
    ),
    "misspelt key": (
        "data_path: ./acme-data",
        "data_pathh: ./acme-data",
        '18  TC1010  sinks.acme.data_pathh: unknown key; did you mean "data_path"?',
    ),
    "misplaced key": (
        "route_by: tenant",
        "route_by: tenant\n      mode: append",
        "14  TC1010  tables.main.events.mode: unknown key; it belongs to spec.sinks",
    ),
    "twice": (
        "route: acme",
        "route: acme\n      route: b",
        "20  TC1007  sinks.acme.route: stands twice; first on line 19",
    ),
    "merge key": (
        "route: acme",
        "route: acme\n      <<: {mode: append}",
        "20  TC1004  sinks.acme.<<: merge keys are not supported; repeat the settings",
    ),
    "number for text": (
        "route: acme",
        "route: 42",
        "19  TC1011  sinks.acme.route: expected text, found a number; put it in quotes",
    ),
    "truth for text": (
        "route: acme",
        "route: true",
        "19  TC1011  sinks.acme.route: expected text, found true; put it in quotes",
    ),
    "text for list": (
        "key: [id]",
        "key: id",
        '12  TC1011  tables.main.events.key: expected a list, found text; write ["id"]',
    ),
    "text for truth": (
        "route_by: tenant",
        "broadcast: yes\n      route_by: tenant",
        "13  TC1011  tables.main.events.broadcast: expected true or false, found text",
    ),
    "nothing": (
        "catalog: ./acme.ducklake",
        "catalog:",
        "17  TC1011  sinks.acme.catalog: expected text, found nothing; give it a value or take the key out",
    ),
    "list for mapping": (
        "{file: tenants.csv}",
        "[tenants.csv]",
        "25  TC1011  sinks.t-{tenant}.for_each: expected a mapping, found a list",
    ),
    "enum": (
        "mode: mirror",
        "mode: mirorr",
        '26  TC1012  sinks.t-{tenant}.mode: expected mirror or append, found "mirorr"; did '
        'you mean "mirror"?',
    ),
    "missing": (
        "      type: ducklake\n      catalog: ./acme.ducklake\n",
        "      type: ducklake\n",
        "15  TC1013  sinks.acme.catalog: is missing (As for the source. Created when it does not exist)",
    ),
    "empty text": ("route: acme", 'route: ""', "19  TC1014  sinks.acme.route: must not be empty"),
    "blank name": ("name: acme", 'name: " "', "15  TC1014  sinks[0].name: must not be empty"),
    "control character": (
        "catalog: ./acme.ducklake",
        'catalog: "a\\0b"',
        "17  TC1014  sinks.acme.catalog: must not hold line ends or control characters",
    ),
    "mode not yet": (
        "mode: mirror",
        "mode: history",
        '26  TC1015  sinks.t-{tenant}.mode: "history" is not available yet; expected mirror or append',
    ),
    "sink type not yet": (
        "type: ducklake\n      catalog: ./acme.ducklake",
        "type: kafka\n      topic: x",
        '16  TC1015  sinks.acme.type: "kafka" is not available yet; expected ducklake',
    ),
    "source type not yet": (
        "    type: ducklake\n    catalog: ./source.ducklake\n    data_path: ./source-data\n",
        "    type: postgres\n    dsn: ${SHOP_DSN}\n    slot: s\n",
        '7  TC1015  source.type: "postgres" is not available yet; expected ducklake',
    ),
    "pipeline name": (
        "name: tenants",
        "name: ten ants",
        "4  TC1017  metadata.name: may hold letters, digits, - and _, at most 63 of them",
    ),
    "glob": (
        "name: main.events",
        "name: main.*",
        "11  TC1045  tables.main.*.name: wildcards do not work with a DuckLake source yet; name each table",
    ),
    "no schema": (
        "name: main.events",
        "name: events",
        '11  TC1044  tables.events.name: "events" is not schema.table; write e.g. main.events',
    ),
    "no key": (
        "      key: [id]\n",
        "",
        "11  TC1046  tables.main.events.key: is missing; DuckLake knows no primary keys: "
        "name the columns that identify a row, e.g. [id]",
    ),
    "empty key": (
        "key: [id]",
        "key: []",
        "12  TC1046  tables.main.events.key: names no column; DuckLake knows no primary keys: "
        "name the columns that identify a row, e.g. [id]",
    ),
    "key twice": ("key: [id]", "key: [id, ID]", "12  TC1014  tables.main.events.key: names a column twice"),
    "no route_by": (
        "      route_by: tenant\n",
        "",
        "11  TC1047  tables.main.events: has no route_by, but sinks.acme has a route and "
        "would get everybody's rows; "
        "add route_by, or broadcast: true if that is meant",
    ),
    "both": (
        "route_by: tenant",
        "route_by: tenant\n      broadcast: true",
        "14  TC1048  tables.main.events.broadcast: a table is routed (route_by) or broadcast, "
        "not both; take one out",
    ),
    "same table": (
        "  sinks:\n",
        "    - {name: main.EVENTS, key: [id], route_by: t}\n  sinks:\n",
        "14  TC1043  tables.main.EVENTS.name: the same table as on line 11",
    ),
    "sink's table": (
        "mode: mirror",
        "tables: [{name: main.event}]",
        '26  TC1049  sinks.t-{tenant}.tables.main.event.name: "main.event" is not a table of this pipeline; '
        'did you mean "main.events"?',
    ),
    "sink's table twice": (
        "mode: mirror",
        "tables: [{name: main.events}, {name: main.events}]",
        "26  TC1043  sinks.t-{tenant}.tables.main.events.name: stands twice in this sink's tables",
    ),
    "empty tables": (
        "    - name: main.events\n      key: [id]\n      route_by: tenant\n",
        "    []\n",
        "10  TC1014  tables: must not be empty",
    ),
    "sink is source": (
        "catalog: ./acme.ducklake",
        "catalog: ./x/../source.ducklake",
        "15  TC1042  sinks.acme.name: its catalog is the source's own; give the sink another",
    ),
    "URL for a catalog": (
        "catalog: ./acme.ducklake",
        "catalog: postgresql://u:geheim@h/d",
        "17  TC1014  sinks.acme.catalog: not a catalog; write the path of a DuckDB file, "
        "sqlite:PATH or postgres:CONNINFO",
    ),
    "duration": (
        "spec:\n",
        "spec:\n  batch: {interval: 2 sec}\n",
        '6  TC1016  batch.interval: not a duration; write e.g. 500ms, 2s, 10m or 1h; did you mean "2s"?',
    ),
    "size": (
        "spec:\n",
        "spec:\n  batch: {bytes_max: 64MB}\n",
        "6  TC1016  batch.bytes_max: not a size; write e.g. 64MiB (KiB, MiB, GiB or TiB); did "
        'you mean "64MiB"?',
    ),
    "no time": (
        "spec:\n",
        "spec:\n  lease: {duration: 0s}\n",
        "6  TC1014  lease.duration: must be longer than nothing",
    ),
    "too few": (
        "spec:\n",
        "spec:\n  batch: {rows_max: 0}\n",
        "6  TC1014  batch.rows_max: must be at least 1",
    ),
    "control": (
        "spec:\n",
        "spec:\n  control: mysql://x\n",
        "6  TC1014  control: write a file's path or postgresql://…",
    ),
    "journal": (
        "spec:\n",
        "spec:\n  journal: {path: ./j}\n",
        "6  TC1015  journal: is not available yet; take it out",
    ),
}


@pytest.mark.parametrize("case", ONE_FAULT)
def test_one_fault_gives_one_finding_with_its_place(folder: Folder, case: str) -> None:
    """File, line, code, path by name, what is wrong and what was probably meant; nothing beside it."""
    old, new, finding = ONE_FAULT[case]
    assert folder.lines(changed(VALID, old, new)) == [f"p.yaml:{finding}"]


def test_a_placeholder_without_for_each(folder: Folder) -> None:
    """Every text with a placeholder that nothing fills is named."""
    lines = folder.lines(changed(VALID, "      for_each: {file: tenants.csv}\n", ""))
    assert lines == [
        f'p.yaml:{line}  TC1035  sinks.t-{{tenant}}.{field}: the placeholder "{{tenant}}" '
        f"needs a for_each: {{file: …}}"
        for line, field in ((20, "name"), (22, "catalog"), (23, "data_path"), (24, "route"))
    ]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("./copy.ducklake", "./x/../copy.ducklake"),
        ("./copy.ducklake", "sqlite:copy.ducklake"),
        ("./copy.ducklake", "./link/copy.ducklake"),
        ("postgres:host=a dbname=b user=c", "postgres:user=d  dbname='b' host=a port=5432"),
        ("postgres:host=a dbname=b", "postgres:postgresql://user:geheim@a/b"),
    ],
)
def test_two_sinks_on_one_table_are_refused_however_it_is_written(folder: Folder, one: str, two: str) -> None:
    """Links, dots and the order of words do not hide that two sinks write the same table."""
    (folder.path / "link").symlink_to(folder.path)
    text = changed(MINIMAL, "./copy.ducklake", one)
    text += f'    - {{name: two, type: ducklake, catalog: "{two}"}}\n'
    assert folder.lines(text.replace(f"catalog: {one}", f'catalog: "{one}"')) == [
        'p.yaml:10  TC1041  sinks.two.name: writes "main.events" into the same catalog as the sink "copy"; '
        "give it its own catalog"
    ]


def test_different_databases_are_not_taken_for_one(folder: Folder) -> None:
    """Another port, host or database is another lake."""
    sinks = [
        "host=a dbname=b",
        "host=a dbname=b port=5433",
        "host=b dbname=b",
        "host=a dbname=c",
        "service=x",
    ]
    text = MINIMAL + "".join(
        f'    - {{name: s{i}, type: ducklake, catalog: "postgres:{conninfo}"}}\n'
        for i, conninfo in enumerate(sinks)
    )
    assert len(folder.load(text).sinks) == 1 + len(sinks)


def test_duplicate_sink_names(folder: Folder) -> None:
    """Both places are named."""
    text = MINIMAL + "    - {name: copy, type: ducklake, catalog: ./two.ducklake}\n"
    assert folder.lines(text) == [
        'p.yaml:10  TC1040  sinks.copy.name: the same name as the sink "copy"; names of sinks must differ'
    ]


def test_every_name_that_is_taken_says_not_yet(folder: Folder) -> None:
    """The contract's later settings are not called unknown, wherever they stand."""
    later = {
        "spec": ["journal", "certificate", "commit_policy", "dead_letters", "maintenance"],
        "table": ["backfill", "on_schema_change", "exclude", "columns", "filter", "on_error"],
        "sink": [
            "hold",
            "schema",
            "deletes",
            "as",
            "format",
            "required",
            "options",
            "dsn",
            "columns",
            "filter",
        ],
    }
    text = changed(MINIMAL, "key: [id]}", "key: [id], " + ", ".join(f"{k}: 1" for k in later["table"]) + "}")
    text = changed(
        text, "copy.ducklake}", "copy.ducklake, " + ", ".join(f"{k}: 1" for k in later["sink"]) + "}"
    )
    text += "".join(f"  {key}: 1\n" for key in later["spec"])
    findings = folder.findings(text)
    assert {finding.rule.code for finding in findings} == {"TC1015"}
    assert sorted(finding.path for finding in findings) == sorted(
        [f"tables.main.events.{k}" for k in later["table"]]
        + [f"sinks.copy.{k}" for k in later["sink"]]
        + later["spec"]
    )
    kinds = ["mariadb", "turso", "sharded", "pipeline", "postgres"]
    assert {
        folder.findings(changed(MINIMAL, "source: {type: ducklake", f"source: {{type: {k}"))[0].rule.code
        for k in kinds
    } == {"TC1015"}


def test_a_file_of_a_later_version_says_only_not_yet(folder: Folder) -> None:
    """The interface's second example: nothing in it is called unknown or missing."""
    text = """\
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: shop
spec:
  source:
    type: postgres
    dsn: ${SHOP_DSN}
    slot: truecut_shop
    publication: truecut_shop
  tables:
    - name: public.*
      exclude: [public.tmp_*]
    - name: public.lines
    - name: public.orders
      backfill: initial
      on_schema_change: evolve
  sinks:
    - {name: lake, type: ducklake, catalog: ./lake.ducklake, data_path: ./lake-data}
    - name: warehouse
      type: postgres
      dsn: ${WAREHOUSE_DSN}
      schema: shop
      tables:
        - {name: public.orders, mode: append}
  batch: {rows_max: 500000, bytes_max: 64MiB, interval: 2s}
  journal:
    path: ./journal
    bytes_max: 20GiB
  certificate: {path: ./certificates, interval: 10s, verify: {level: sink, interval: 1h}}
  control: ./control.db
  state: ./state
  spark: {master: "local[*]", conf: {}}
"""
    findings = folder.findings(text)
    assert {finding.rule.code for finding in findings} == {"TC1015"}
    assert [finding.path for finding in findings] == [
        "source.type",
        "tables.public.*.exclude",
        "tables.public.orders.backfill",
        "tables.public.orders.on_schema_change",
        "sinks.warehouse.type",
        "journal",
        "certificate",
    ]


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
    start = time.monotonic()
    assert folder.lines(content) == [f"p.yaml:{finding}"]
    assert time.monotonic() - start < 2


def test_a_hundred_megabytes_are_refused_before_they_are_read(folder: Folder) -> None:
    """Size is checked first."""
    path = folder.path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    start = time.monotonic()
    with pytest.raises(ConfigError, match="TC1002"):
        load(path, environ={})
    assert time.monotonic() - start < 2


def test_a_file_wrong_everywhere_is_quick_and_short(folder: Folder) -> None:
    """A mebibyte of unknown keys costs seconds at most, and a message that can be read."""
    text = "".join(f"sinkss{i}: [{{x: '${{NOPE}}'}}]\n" for i in range(30_000))
    start = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        folder.load(text)
    assert time.monotonic() - start < 8
    assert len(str(caught.value)) < 20_000
    assert str(caught.value).endswith(" more")


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
