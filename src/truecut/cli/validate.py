"""`truecut validate`: check a pipeline file without connecting to anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from truecut.config.finding import Finding
    from truecut.config.settings import Pipeline


@click.command()
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.validate/v1) on stdout.")
def command(file: Path, as_json: bool) -> None:
    """Check FILE, and the files it refers to, without connecting to source or sinks.

    Every fault is listed with its place; the exit code is 2 when there is one.
    """
    from truecut.cli.output import counted, print_json
    from truecut.config.finding import ConfigError
    from truecut.config.load import load

    try:
        pipeline = load(file, environ=os.environ)
    except ConfigError as error:
        if not as_json:
            raise
        print_json(_document(file, None, error.findings))
        raise SystemExit(ExitCode.WRONG_INPUT) from None
    if as_json:
        print_json(_document(file, pipeline, ()))
    else:
        tables, sinks = counted(len(pipeline.tables), "table"), counted(len(pipeline.sinks), "sink")
        click.echo(f"{file}: ok; pipeline {pipeline.name}, {tables}, {sinks}")


def _document(file: Path, pipeline: Pipeline | None, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "schema": "truecut.validate/v1",
        "file": str(file),
        "valid": pipeline is not None,
        "pipeline": None if pipeline is None else pipeline.name,
        "tables": None if pipeline is None else len(pipeline.tables),
        "sinks": None if pipeline is None else len(pipeline.sinks),
        "findings": [
            {
                "file": finding.file,
                "line": finding.line,
                "code": finding.rule.code,
                "path": finding.path,
                "message": finding.message,
                "fix": finding.rule.fix,
            }
            for finding in findings
        ],
    }
