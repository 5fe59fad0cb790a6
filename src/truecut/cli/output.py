"""What commands print: facts on stdout, everything else on stderr.

Colour only on a terminal and never with NO_COLOR (rich sees to both). Logs are text or JSON lines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from truecut.config.finding import plain
from truecut.errors import ExitCode, TruecutError

if TYPE_CHECKING:
    from rich.console import Console

    from truecut.events import Facts


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


def counted(number: int, noun: str) -> str:
    """`1 table`, `2,000 tables`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def set_up_logging(*, level: str, form: str, file: Path | None = None) -> None:
    """Log to stderr, or to a file. Libraries are heard only when they warn."""
    handler = _Stderr() if file is None else _log_file(file)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("truecut").setLevel(level.upper())


class _Stderr(logging.StreamHandler[TextIO]):
    """To whatever stderr is when a line comes: above the live table while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


def _log_file(path: Path) -> logging.Handler:
    try:
        return logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise TruecutError(
            "TC1066",
            f"the log file {path} cannot be written ({error.strerror})",
            fix="Check that its folder exists and is writable.",
            exit_code=ExitCode.WRONG_INPUT,
        ) from None


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: Facts | None = getattr(record, "facts", None)
        if facts is None:
            return f"{_time(record)} {record.levelname.lower()} {record.name}: {_message(record)}"
        code = f"{facts.code} " if facts.code else ""
        place = f" [{facts.position}]" if facts.position else ""
        return f"{_time(record)} {record.levelname.lower()} {code}{_message(record)}{place}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: Facts | None = getattr(record, "facts", None)
        return json.dumps(
            {
                "time": _time(record),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": _message(record),
                **dict(facts.items() if facts else ()),
            }
        )


def _message(record: logging.LogRecord) -> str:
    """The message with the kind of an exception, but not its text: that may hold a row's values."""
    kind = record.exc_info[0] if record.exc_info else None
    return plain(record.getMessage()) + (f" ({kind.__name__})" if kind else "")
