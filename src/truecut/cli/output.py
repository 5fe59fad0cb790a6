"""What commands print: facts on stdout, everything else on stderr.

Colour only on a terminal and never with NO_COLOR (rich sees to both). Logs are text or JSON lines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """For facts that people read."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def stderr_console() -> Console:
    """For progress, warnings and everything that is not the answer."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout; it must name its schema."""
    if "schema" not in document and "$schema" not in document:
        raise ValueError("a JSON document names its schema")
    click.echo(json.dumps(document, indent=2))


def set_up_logging(*, level: str, form: str) -> None:
    """Log to stderr. Libraries are heard only when they warn."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("truecut").setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname.lower()} {record.name}: {_message(record)}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": _time(record),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": _message(record),
            }
        )


def _message(record: logging.LogRecord) -> str:
    """The message with the kind of an exception, but not its text: that may hold a row's values."""
    kind = record.exc_info[0] if record.exc_info else None
    return record.getMessage() + (f" ({kind.__name__})" if kind else "")
