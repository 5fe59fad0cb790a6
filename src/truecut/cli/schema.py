"""`truecut schema`: the pipeline file's JSON Schema."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Print the JSON Schema (draft 2020-12) of the pipeline file, for editors and other tools."""
    from truecut.cli.output import print_json
    from truecut.config.schema import json_schema

    print_json(json_schema())
