"""`truecut doctor`: connect, check everything a run needs, and say how to fix what is amiss."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from truecut.model.finding import Check, Finding

LINES_MAX = 10
_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}
_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command()
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.doctor/v1) on stdout.")
def command(file: Path, as_json: bool) -> None:
    """Check the machine, the source, its tables and every sink of FILE. Nothing is written anywhere.

    The exit code is 3 when something is not fit for a run; warnings do not count.
    """
    from truecut.cli.output import print_json
    from truecut.config.load import load
    from truecut.runtime.doctor import examine
    from truecut.runtime.settled_tables import settled_or_not

    pipeline = load(file, environ=os.environ)
    checks = []
    for check in examine(*settled_or_not(pipeline)):
        checks.append(check)
        if not as_json:
            _print(check)
    fit = all(check.outcome != "error" for check in checks)
    if as_json:
        print_json(_document(pipeline.name, checks, fit=fit))
    else:
        click.echo(f"{pipeline.name} is fit to run" if fit else f"{pipeline.name} is not fit to run")
    if not fit:
        raise SystemExit(ExitCode.UNFIT_ENVIRONMENT)


def _print(check: Check) -> None:
    """A line for the check, and the worst of what it found."""
    _say(check.outcome, f"{check.name}: {check.detail}")
    worst = sorted(check.findings, key=lambda finding: finding.severity != "error")
    for finding in worst[:LINES_MAX]:
        _say(finding.severity, f"{finding.fault.code} {finding.fault.message}", indent="  ")
        click.echo(f"      fix: {finding.fault.fix}")
    if len(worst) > LINES_MAX:
        click.echo(f"    and {len(worst) - LINES_MAX:,} more (--json lists all)")


def _say(outcome: str, text: str, indent: str = "") -> None:
    colour = None if "NO_COLOR" in os.environ else _COLOURS[outcome]
    click.echo(f"{indent}{click.style(_MARKS[outcome], fg=colour)} {text}")


def _document(pipeline: str, checks: Sequence[Check], *, fit: bool) -> dict[str, Any]:
    return {
        "schema": "truecut.doctor/v1",
        "pipeline": pipeline,
        "fit": fit,
        "checks": [
            {"name": check.name, "outcome": check.outcome, "detail": check.detail} for check in checks
        ],
        "findings": [_finding(check, finding) for check in checks for finding in check.findings],
    }


def _finding(check: Check, finding: Finding) -> dict[str, Any]:
    return {
        "check": check.name,
        "severity": finding.severity,
        "object": finding.object,
        "code": finding.fault.code,
        "what": finding.fault.message,
        "fix": finding.fault.fix,
    }
