"""`truecut init`: a commented pipeline file to begin with, for the tables of a lake when one is named."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from truecut.errors import ExitCode, TruecutError

_CATALOG_VARIABLE = "SOURCE_CATALOG"
_COLUMNS_SHOWN_MAX = 12
_PLAIN = re.compile(r"(\./)?[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the source, and its columns."""

    schema: str
    name: str
    columns: tuple[str, ...]


@click.command()
@click.option("--source", default="ducklake", show_default=True, metavar="TYPE", help="Kind of source.")
@click.option("--dsn", metavar="DSN", help="The source's catalog: PATH, sqlite:PATH or postgres:CONNINFO.")
@click.option("--sink", default="ducklake", show_default=True, metavar="TYPE", help="Kind of sink.")
@click.option(
    "--output",
    default="pipeline.yaml",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; never overwritten.",
)
def command(source: str, dsn: str | None, sink: str, output: Path) -> None:
    """Write a commented pipeline file. With --dsn it lists the tables found there."""
    _refuse_type("source", source)
    _refuse_type("sink", sink)
    _refuse_overwriting(output)
    tables = None if dsn is None else _find_tables(dsn)
    _write(output, pipeline_text(output, dsn, tables))
    click.echo(f"wrote {output}; next: truecut validate {output}", err=True)
    if dsn is not None and dsn.startswith("postgres:"):
        click.echo(f"set the environment variable {_CATALOG_VARIABLE} to the --dsn you gave", err=True)


def _refuse_type(what: str, name: str) -> None:
    from truecut.config import reserved

    if name == "ducklake":
        return
    taken = name in (reserved.SOURCE_TYPES if what == "source" else reserved.SINK_TYPES)
    raise TruecutError(
        "TC1061",
        f"The {what} type is not available yet" if taken else f"There is no such {what} type",
        fix=f"Use --{what} ducklake.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def _refuse_overwriting(output: Path) -> None:
    if output.exists():
        raise TruecutError(
            "TC1062",
            f"{output} exists already; init never overwrites a file",
            fix="Choose another with --output, or move it away.",
            exit_code=ExitCode.WRONG_INPUT,
        )


def _write(output: Path, text: str) -> None:
    try:
        with output.open("x", encoding="utf-8") as stream:  # x: somebody may have been faster
            stream.write(text)
    except FileExistsError:
        _refuse_overwriting(output)
    except OSError:
        raise TruecutError(
            "TC1063",
            f"{output} cannot be written",
            fix="Check that its folder exists and is writable.",
            exit_code=ExitCode.WRONG_INPUT,
        ) from None


def _find_tables(dsn: str) -> list[FoundTable]:
    import duckdb

    from truecut.config.resolve import catalog_is_usable
    from truecut.lake import attach_sql, connect, fault_of, literal, parse_address
    from truecut.sinks.ducklake.cursor import SCHEMA

    if not catalog_is_usable(dsn):
        raise click.BadParameter("write PATH, sqlite:PATH or postgres:CONNINFO", param_hint="--dsn")
    address = parse_address(dsn, None, base=Path.cwd())
    if address.kind != "postgres" and not Path(address.target.reveal()).is_file():
        raise TruecutError(
            "TC1064",
            f"There is no catalog at {address}",
            fix="Give --dsn the path of a DuckLake's catalog, or leave it out.",
            exit_code=ExitCode.WRONG_INPUT,
        )
    connection = connect()
    try:
        connection.execute(attach_sql(address, "lake", read_only=True, trust_data_path=True))
        rows = connection.execute(
            "SELECT schema_name, table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            f"WHERE database_name = 'lake' AND schema_name <> {literal(SCHEMA)} AND NOT internal "
            "AND (schema_name, table_name) IN "
            "(SELECT (schema_name, table_name) FROM duckdb_tables() WHERE database_name = 'lake') "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    except duckdb.Error as error:
        raise TruecutError.of(fault_of(error, what=f"The catalog {address}")) from None
    finally:
        connection.close()
    return [FoundTable(schema, name, tuple(columns)) for schema, name, columns in rows]


def pipeline_text(output: Path, dsn: str | None, tables: Sequence[FoundTable] | None) -> str:
    """The whole file. Without a lake to look at it shows one table as an example."""
    if tables is None:
        entries = _table_entry(FoundTable("main", "events", ("id",)))
    else:
        entries = (
            "".join(map(_table_entry, tables))
            or "    []                            # the lake has no tables yet\n"
        )
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in output.stem)[:63]
    return _TEXT.format(name=_quoted(name or "pipeline"), catalog=_catalog(output, dsn), tables=entries)


def _catalog(output: Path, dsn: str | None) -> str:
    """As the file says it: relative to the file, and without a password in it."""
    if dsn is None:
        return "./source.ducklake"
    if dsn.startswith("postgres:"):
        return "${" + _CATALOG_VARIABLE + "}"
    prefix = "sqlite:" if dsn.startswith("sqlite:") else ""
    path = dsn.removeprefix("sqlite:")
    relative = os.path.relpath(Path.cwd() / path, output.absolute().parent)
    return _quoted(prefix + (path if os.path.isabs(path) else f"./{relative}"))


def _table_entry(table: FoundTable) -> str:
    name = f"{table.schema}.{table.name}"
    if "." in table.schema or set("*?[") & set(name):
        return f"    # {_quoted(name)}: a schema with a dot, or a name with * ? [, cannot be replicated yet\n"
    key = next((column for column in table.columns if column.lower() == "id"), None)
    if key is not None:
        return f"    - name: {_quoted(name)}\n      key: [{_quoted(key)}]\n"
    columns = ", ".join(map(_quoted, table.columns[:_COLUMNS_SHOWN_MAX]))
    more = ", …" if len(table.columns) > _COLUMNS_SHOWN_MAX else ""
    comment = f"# name the columns that identify a row; it has {columns}{more}"
    return f"    - name: {_quoted(name)}\n      key: []  {comment}\n"


def _quoted(text: str) -> str:
    """Text for YAML: as it is where that is plainly safe, otherwise as JSON, which YAML reads the same."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text.replace("$", "$$"), ensure_ascii=False)


_TEXT = """\
# A Truecut pipeline. Check it with `truecut validate`, see what it would do with `truecut plan`,
# start it with `truecut run`. Relative paths are relative to this file. ${{NAME}} takes a value from
# the environment, ${{file:PATH}} from a file, $$ is a dollar.
apiVersion: truecut/v1
kind: Pipeline
metadata:
  name: {name}
spec:
  source:
    type: ducklake
    catalog: {catalog}    # a DuckDB file; or sqlite:PATH; or postgres:CONNINFO
    # data_path: ./source-data      # where the catalog does not already know it

  tables:
    # route_by: COLUMN              the column whose value chooses the sink
    # broadcast: true               every sink gets all rows, also sinks with a route
    # unrouted: stop                stop when a row matches no sink (default: count it)
    # on_gap: stop                  stop when history has expired (default: read the table again)
{tables}
  sinks:
    - name: copy
      type: ducklake
      catalog: ./copy.ducklake      # created when it does not exist
      data_path: ./copy-data
      # route: acme                 only rows whose route_by column equals this
      # mode: append                one row for each change (default: mirror, the same rows)
      # existing: replace           take over tables that are there already (default: refuse)

    # One sink for each line of a CSV file; the names in its header are the placeholders:
    # - name: "t-{{tenant}}"
    #   type: ducklake
    #   catalog: "./lakes/{{tenant}}.ducklake"
    #   data_path: "./lakes/{{tenant}}"
    #   route: "{{tenant}}"
    #   for_each: {{file: tenants.csv}}

  # batch: {{rows_max: 500000, bytes_max: 64MiB, interval: 500ms, deadline: 30s}}
  # lease: {{duration: 10s}}
  # control: ./control.db           or postgresql://… when several machines run this pipeline
  # state: ./state                  default: .truecut/NAME beside this file
  # spark: {{master: "local[*]", conf: {{}}}}
"""
