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
from truecut.cli.signals import Interrupted, received_signals
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
    with received_signals() as signals:  # also while we import, and wait for a server that does not answer
        from truecut.config.load import load
        from truecut.runtime.settled_tables import settled

        written = load(file, environ=os.environ)
        try:
            pipeline = signals.waiting_for(lambda: settled(written))
        except Interrupted:
            tell(_log, logging.INFO, "stopped before it had begun")
            return
        _refuse_what_keeps_its_own_history(pipeline)
        stop = threading.Event()
        with signals.calling(stop.set):
            tell(_log, logging.INFO, f"capturing {pipeline.name}")
            came: set[str] = set()
            while (joined := _capture(written, pipeline, stop, came)) is not None:
                pipeline = joined
                stop.clear()
                if signals.received:  # by a signal, not by what has come
                    break
    tell(_log, logging.INFO, "ended: everything that was read is in the journal")


def _refuse_what_keeps_its_own_history(pipeline: Pipeline) -> None:
    from truecut.runtime.capture_start import is_captured

    if not is_captured(pipeline):
        raise TruecutError(
            "TC1094",
            f"a source of type {pipeline.source.type} keeps its own history: there is nothing to capture",
            fix="Use `truecut run`.",
            exit_code=ExitCode.WRONG_INPUT,
        )


def _capture(written: Pipeline, pipeline: Pipeline, stop: threading.Event, came: set[str]) -> Pipeline | None:
    """Until it is stopped: None; or until tables have come that the file means: the pipeline with them."""
    from truecut.runtime.capture_start import capture
    from truecut.runtime.joining_tables import TableWatch

    owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    watch = TableWatch(lambda: written, pipeline, stop.set)
    try:
        capture(pipeline, owner=owner, stop=stop, came=came)
    finally:
        watch.close()
    return None if watch.joined is None else watch.joined.pipeline
