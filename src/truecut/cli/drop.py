"""`truecut drop`: forget a pipeline's state; never data at a sink."""

from __future__ import annotations

import os
from pathlib import Path

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import TruecutError

NAMED_MAX = 20


@click.command()
@pipeline_argument
@click.option("--keep-source", is_flag=True, help="Leave the source as it is: slot and publication stay.")
@click.option(
    "--certificates",
    is_flag=True,
    help="Remove certificates, too, with their evidence, the secret and the key that signs.",
)
def command(file: Path, keep_source: bool, certificates: bool) -> None:
    """Remove the state of FILE: leases, pauses, reports, what was captured; slot and publication at the
    source; nothing that Truecut did not make.

    Data and cursors at the sinks stay: a later run of the same file goes on where it was, if the source still
    has the history for it. So do certificates: they are the proof of what was copied.
    """
    from truecut.config.load import load
    from truecut.runtime.capture_start import drop_at_source, forget_capture
    from truecut.runtime.certified import forget_certificates
    from truecut.runtime.control import open_control
    from truecut.state_folder import CONTROL, remove

    pipeline = load(file, environ=os.environ)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    try:
        if control.reports().running:
            raise TruecutError(
                "TC1091",
                f"pipeline {pipeline.name} is running",
                fix="Stop it first, then drop it.",
            )
        gone, left = ([], []) if keep_source else drop_at_source(pipeline)
        forget_capture(pipeline)
        proof = forget_certificates(pipeline, proof=certificates)
        alone = control.forget()
    finally:
        control.close()
    here = pipeline.control.reveal() == str(pipeline.state / CONTROL)
    kept = remove(pipeline.state, control=alone and here)
    click.echo(f"dropped the state of {pipeline.name}; data at the sinks was not touched")
    for what in gone:
        click.echo(f"dropped the {what} at the source")
    for what in left:
        click.echo(f"kept the {what} at the source: Truecut did not make it")
    if proof is not None:
        click.echo(f"kept the certificates in {proof}; --certificates removes them, with their keys")
    if kept:
        names = ", ".join(path.name for path in kept[:NAMED_MAX])
        more = f" and {len(kept) - NAMED_MAX} more" if len(kept) > NAMED_MAX else ""
        click.echo(f"kept in {pipeline.state}: {names}{more}")
