"""`truecut drop`: forget a pipeline's state; never data at a sink."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import TruecutError


@click.command()
@pipeline_argument
def command(file: Path) -> None:
    """Remove the state of FILE: leases, pauses, reports.

    Data and cursors at the sinks stay: a later run of the same file goes on where it was.
    """
    from truecut.config.load import load
    from truecut.runtime.control import open_control

    pipeline = load(file, environ=os.environ)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    try:
        if control.reports().running:
            raise TruecutError(
                "TC1091",
                f"pipeline {pipeline.name} is running",
                fix="Stop it first, then drop it.",
            )
        control.forget()
    finally:
        control.close()
    if pipeline.state.exists():
        shutil.rmtree(pipeline.state)
    click.echo(f"dropped the state of {pipeline.name}; data at the sinks was not touched")
