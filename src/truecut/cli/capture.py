"""`truecut capture`: only the capture of a source into the journal, for those who run it apart."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from truecut.cli.parameters import pipeline_argument
from truecut.cli.signals import stopped_by_signals
from truecut.errors import ExitCode, TruecutError
from truecut.events import tell

if TYPE_CHECKING:
    from truecut.config.settings import Pipeline

_log = logging.getLogger(__name__)


@click.command()
@pipeline_argument
def command(file: Path) -> None:
    """Capture the changes of FILE's source into the journal, until stopped with Ctrl-C.

    `truecut run` does it by itself; where one runs apart, whoever has the lease captures and the other waits.
    """
    from truecut.config.load import load
    from truecut.runtime.capturing import is_captured
    from truecut.runtime.tables import settled

    written = load(file, environ=os.environ)
    pipeline = settled(written)
    if not is_captured(pipeline):
        raise TruecutError(
            "TC1094",
            f"a source of type {pipeline.source.type} keeps its own history: there is nothing to capture",
            fix="Use `truecut run`.",
            exit_code=ExitCode.WRONG_INPUT,
        )
    stop = threading.Event()
    with stopped_by_signals(stop.set) as received:
        tell(_log, logging.INFO, f"capturing {pipeline.name}")
        came: set[str] = set()
        while (joined := _capture(written, pipeline, stop, came)) is not None:
            pipeline = joined
            stop.clear()
            if received:  # by a signal, not by what has come
                break
    tell(_log, logging.INFO, "ended: everything that was read is in the journal")


def _capture(written: Pipeline, pipeline: Pipeline, stop: threading.Event, came: set[str]) -> Pipeline | None:
    """Until it is stopped: None; or until tables have come that the file means: the pipeline with them."""
    from truecut.runtime.capturing import capture
    from truecut.runtime.joining import TableWatch

    owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    watch = TableWatch(lambda: written, pipeline, stop.set)
    try:
        capture(pipeline, owner=owner, stop=stop, came=came)
    finally:
        watch.close()
    return None if watch.joined is None else watch.joined.pipeline
