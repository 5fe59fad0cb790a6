"""`truecut init`: a commented pipeline file to begin with, for the tables of a source when one is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

import click

from truecut.config.beginning import Beginning, FoundTable, quoted
from truecut.config.finding import did_you_mean
from truecut.errors import ExitCode, TruecutError

_COLUMNS_SHOWN_MAX = 12


@click.command()
@click.option("--source", metavar="TYPE", help="Kind of source.  [default: as the --dsn begins, else a lake]")
@click.option(
    "--dsn",
    metavar="DSN",
    help="Where it is; a lake's catalog: PATH, sqlite:PATH or postgres:CONNINFO; a server: postgresql://….",
)
@click.option("--sink", metavar="TYPE", help="Kind of sink.  [default: a lake]")
@click.option(
    "--output",
    default="pipeline.yaml",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; never overwritten.",
)
def command(source: str | None, dsn: str | None, sink: str | None, output: Path) -> None:
    """Write a commented pipeline file. With --dsn it lists the tables found there."""
    from truecut.config import reserved
    from truecut.config.kinds import SINKS, SOURCES, Unusable, kind_of

    source, sink = source or kind_of(dsn or ""), sink or kind_of("")
    source_kind, sink_kind = SOURCES.find(source), SINKS.find(sink)
    if source_kind is None:
        raise _no_such_type("source", source, SOURCES.names, reserved.SOURCE_TYPES)
    if sink_kind is None:
        raise _no_such_type("sink", sink, SINKS.names, reserved.SINK_TYPES)
    _refuse_overwriting(output)
    try:
        beginning = source_kind.begin(dsn, folder=output.absolute().parent)
    except Unusable as error:
        raise click.BadParameter(error.message, param_hint="--dsn") from None
    example, of_tenant = sink_kind.example("copy"), sink_kind.example("lakes/{tenant}")
    _write(output, pipeline_text(output, beginning, sink=example, tenant_sink=of_tenant))
    keyless = [f"{table.schema}.{table.name}" for table in beginning.tables or () if _lacks_a_key(table)]
    first = f"name the key of {', '.join(keyless[:3])}{', …' * (len(keyless) > 3)}, then " if keyless else ""
    click.echo(f"wrote {output}; next: {first}truecut validate {output}", err=True)
    if beginning.note:
        click.echo(beginning.note, err=True)


def _no_such_type(what: str, name: str, names: Sequence[str], reserved: frozenset[str]) -> TruecutError:
    taken = name in reserved
    hint = "" if taken else did_you_mean(name, names)
    return TruecutError(
        "TC1061",
        f"The {what} type is not available yet" if taken else f"There is no such {what} type{hint}",
        fix=f"Use one of: {', '.join(names)}.",
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


def pipeline_text(output: Path, beginning: Beginning, *, sink: str, tenant_sink: str) -> str:
    """The whole file. Without a source to look at it shows one table as an example."""
    if beginning.tables is None:
        entries = _table_entry(FoundTable("main", "events", ("id",)))
    else:
        entries = (
            "".join(map(_table_entry, beginning.tables))
            or "    []                            # the source has no tables yet\n"
        )
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in output.stem)[:63]
    return _TEXT.format(
        name=quoted(name or "pipeline"),
        source=indent(beginning.section, "    "),
        tables=entries,
        sink=indent(sink, "      ").rstrip(),
        tenant_sink=indent(tenant_sink, "    #   ").rstrip(),
    )


def _lacks_a_key(table: FoundTable) -> bool:
    return not table.key and _key(table) is None and not _cannot_be_named(table)


def _cannot_be_named(table: FoundTable) -> bool:
    return "." in table.schema or bool(set("*?[") & set(f"{table.schema}.{table.name}"))


def _key(table: FoundTable) -> str | None:
    """The column that is most likely one."""
    return next((column for column in table.columns if column.lower() == "id"), None)


def _table_entry(table: FoundTable) -> str:
    name = f"{table.schema}.{table.name}"
    if _cannot_be_named(table):
        return f"    # {quoted(name)}: a schema with a dot, or a name with * ? [, cannot be replicated yet\n"
    if table.key:
        return f"    - name: {quoted(name)}      # key: {', '.join(table.key)}\n"
    key = _key(table)
    if key is not None:
        return f"    - name: {quoted(name)}\n      key: [{quoted(key)}]\n{_identity(table)}"
    columns = ", ".join(map(quoted, table.columns[:_COLUMNS_SHOWN_MAX]))
    more = ", …" if len(table.columns) > _COLUMNS_SHOWN_MAX else ""
    comment = f"# name the columns that identify a row; it has {columns}{more}"
    return f"    - name: {quoted(name)}\n      key: []  {comment}\n{_identity(table)}"


def _identity(table: FoundTable) -> str:
    """A table without a primary key, at a source that knows keys: its changes do not tell which row they are
    of."""
    if table.key is None:
        return ""
    return "      # no primary key: ALTER TABLE … REPLICA IDENTITY FULL, or only mode: append\n"


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
{source}
  tables:
    # route_by: COLUMN              the column whose value chooses the sink
    # broadcast: true               every sink gets all rows, also sinks with a route
    # unrouted: stop                stop when a row matches no sink (default: count it)
    # on_gap: stop                  stop when history has expired (default: read the table again)
{tables}
  sinks:
    - name: copy
{sink}
      # route: acme                 only rows whose route_by column equals this
      # mode: append                one row for each change (default: mirror, the same rows)
      # existing: replace           take over tables that are there already (default: refuse)

    # One sink for each line of a CSV file; the names in its header are the placeholders:
    # - name: "t-{{tenant}}"
{tenant_sink}
    #   route: "{{tenant}}"
    #   for_each: {{file: tenants.csv}}

  # batch: {{rows_max: 500000, bytes_max: 64MiB, interval: 500ms, deadline: 30s}}
  # certificate: {{path: ./certificates, interval: 10s}}   # left out: none are issued
  # lease: {{duration: 10s}}
  # control: ./control.db           or postgresql://… when several machines run this pipeline
  # state: ./state                  default: .truecut/NAME beside this file
  # spark: {{master: "local[*]", conf: {{}}}}
  # listen: 127.0.0.1:9464          /metrics, /healthz and /readyz while it runs
"""
