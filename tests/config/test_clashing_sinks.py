"""Sinks that would meet, by name or in one table, are refused; those that only look alike are not."""

from __future__ import annotations

import pytest

from tests.config.pipelines import MINIMAL, Folder, changed


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


def test_two_sinks_in_one_schema_are_told_apart_by_a_schema(folder: Folder) -> None:
    """A PostgreSQL has no catalog that one could choose."""
    sink = "type: postgres, dsn: host=a dbname=b, schema: s"
    text = changed(MINIMAL, "type: ducklake, catalog: ./copy.ducklake", sink)
    assert folder.lines(text + f"    - {{name: two, {sink}}}\n") == [
        'p.yaml:10  TC1041  sinks.two.name: writes "main.events" into the same schema as the sink "copy"; '
        "give it its own schema"
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
