"""`truecut journal`: the log on its own.

A record is a line. `append` prints a line's position once it is durable; `read` prints what is committed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

from truecut.cli.entry import give_back
from truecut.cli.journal_options import Place, place_options
from truecut.cli.journal_processes import coordinate, serve, status
from truecut.cli.parameters import POSITION
from truecut.cli.signals import Interrupted, received_signals
from truecut.errors import ExitCode, TruecutError
from truecut.model.position import Position

if TYPE_CHECKING:
    from truecut.journal.contract import Entry, Journal, JournalReader
    from truecut.journal.inspection import Listed

FOLLOW_S = 1.0
LOOK_S = 0.1  # for a signal


@click.group()
def command() -> None:
    """A log of records, durable when their positions are printed.

    \b
      printf 'one\\ntwo\\n' | truecut journal append --data ./logs --log events
      truecut journal read --data ./logs --log events --positions

    On several nodes, any of which may fail:

    \b
      truecut journal coordinate --data ./c --listen 127.0.0.1:7000 &
      truecut journal serve --data ./n1 --listen 127.0.0.1:7001 --coordinator 127.0.0.1:7000 &
      truecut journal serve --data ./n2 --listen 127.0.0.1:7002 --coordinator 127.0.0.1:7000 &
      truecut journal serve --data ./n3 --listen 127.0.0.1:7003 --coordinator 127.0.0.1:7000 &
      printf 'one\\ntwo\\n' | truecut journal append --coordinator 127.0.0.1:7000 --log events
    """


for process in (serve, coordinate, status):
    command.add_command(process)


@command.command()
@place_options
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=2,
    show_default=True,
    metavar="N",
    help="With --coordinator: on how many nodes a record is before its position is printed.",
)
def append(place: Place, replicas: int) -> None:
    """Make each line of stdin a record; print its position once it is durable."""
    answers: SimpleQueue[Future[Position] | None] = SimpleQueue()
    with received_signals() as signals:
        try:
            opened = signals.waiting_for(lambda: place.writer(replicas=replicas))
        except Interrupted:
            sys.exit(128 + signals.received[0])
        with closing(opened) as journal, _saying_why_it_waits(journal):
            feeder, printer = _Feeder(journal, answers), _Printer(answers)
            feeder.start()
            printer.start()
            while feeder.is_alive() and not signals.received:
                feeder.join(LOOK_S)
            if signals.received:
                journal.close()  # what waits for nodes that do not come is not waited for
                answers.put(None)
            printer.join()
    if signals.received:
        sys.exit(128 + signals.received[0])
    if (failed := feeder.failed or printer.failed) is not None:
        raise failed


@command.command()
@place_options
@click.option("--after", type=POSITION, metavar="P", help="Begin behind this position.")
@click.option("--upto", type=POSITION, metavar="P", help="End with this position.")
@click.option("--follow", is_flag=True, help="Go on with what is appended later, until stopped.")
@click.option("--positions", is_flag=True, help="Print position, a tab, and the line.")
def read(place: Place, after: Position | None, upto: Position | None, follow: bool, positions: bool) -> None:
    """Print the committed records in order, a line each."""
    stopped = threading.Event()
    out = sys.stdout.buffer
    with received_signals() as signals, signals.calling(stopped.set):
        try:
            entries = _entries(place.reader(), after, upto, stopped, follow=follow)
            first = signals.waiting_for(lambda: next(entries, None))
        except Interrupted:
            sys.exit(0 if follow else 128 + signals.received[0])
        for entry in () if first is None else chain([first], entries):
            prefix = f"{entry.position}\t".encode() if positions else b""
            out.write(prefix + entry.record.payload + b"\n")
            if stopped.is_set():
                break
    out.flush()
    if signals.received and not follow:
        sys.exit(128 + signals.received[0])


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON document (truecut.journal/v1) on stdout.")
@click.option(
    "--repair",
    is_flag=True,
    help="Cut damaged segments of a log with one copy off; it goes on behind the damage.",
)
def inspect(folder: Path, as_json: bool, repair: bool) -> int:
    """Show the segments of the logs in DIR and check every byte; exit 4 when something is damaged.

    DIR is the folder of one log or of several, or of a log node, which holds copies of segments.
    """
    give_back()
    from truecut.cli.output import print_json
    from truecut.journal.inspection import is_node

    found = (_node if is_node(folder) else _local)(folder, repair=repair)
    if as_json:
        documents = [_document(log, segments) for log, segments in found.items()]
        print_json({"schema": "truecut.journal/v1", "logs": documents})
    else:
        for log, segments in found.items():
            _show(log, segments)
    damaged = any(one.damage for segments in found.values() for one in segments)
    return ExitCode.VERIFICATION_FAILED if damaged else ExitCode.OK


class _Feeder(threading.Thread):
    """Submits the lines of stdin. A thread of its own: a read that blocks does not notice signals."""

    def __init__(self, journal: Journal, answers: SimpleQueue[Future[Position] | None]) -> None:
        super().__init__(daemon=True)
        self._journal = journal
        self._answers = answers
        self.failed: TruecutError | None = None

    def run(self) -> None:
        from truecut.journal.record import Record

        try:
            with os.fdopen(os.dup(0), "rb") as lines:
                for line in lines:
                    self._answers.put(self._journal.submit([Record(line.removesuffix(b"\n"))]))
        except TruecutError as error:
            self.failed = error
        finally:
            self._answers.put(None)


def _local(folder: Path, *, repair: bool) -> dict[Path, list[Listed]]:
    from truecut.journal import faults, inspection

    logs = inspection.logs_in(folder)
    if not logs:
        raise faults.no_log(folder)
    for log in logs if repair else ():
        for one in inspection.repair(log):
            click.echo(f"{one.path}: cut off behind record {one.reach.last} ({one.damage})", err=True)
    return {log: [one.listed for one in inspection.inspect(log)] for log in logs}


def _node(folder: Path, *, repair: bool) -> dict[Path, list[Listed]]:
    from truecut.journal.replicated import faults, inspection

    if repair:
        raise faults.repaired_from_peers(folder)
    return inspection.inspect_node(folder)


class _Printer(threading.Thread):
    """Prints positions in order, each as soon as it is durable."""

    def __init__(self, answers: SimpleQueue[Future[Position] | None]) -> None:
        super().__init__(daemon=True)
        self._answers = answers
        self.failed: TruecutError | None = None

    def run(self) -> None:
        while (answer := self._answers.get()) is not None:
            try:
                print(answer.result(), flush=True)
            except TruecutError as error:
                self.failed = self.failed or error


@contextmanager
def _saying_why_it_waits(journal: Journal) -> Iterator[None]:
    """On stderr, once for each reason."""
    over = threading.Event()

    def watch() -> None:
        said = None
        while not over.wait(1.0):
            if (fault := journal.hindrance()) != said and fault is not None:
                click.echo(f"waiting: {fault.code} {fault.message}", err=True)
            said = fault

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _entries(
    reader: JournalReader,
    after: Position | None,
    upto: Position | None,
    stopped: threading.Event,
    *,
    follow: bool,
) -> Iterator[Entry]:
    while True:
        for entry in reader.read(after=after, upto=upto):
            yield entry
            after = entry.position
        sys.stdout.buffer.flush()
        reached = upto is not None and after is not None and after >= upto
        if not follow or reached or stopped.is_set():
            return
        reader.wait(after=after, timeout_s=FOLLOW_S)


def _show(log: Path, segments: list[Listed]) -> None:
    click.echo(f"{log}")
    for one in segments:
        what = f"records {one.first} to {one.last}" if one.last >= one.first > 0 else "no records"
        notes = [f"{one.torn_bytes} torn bytes, not committed"] if one.torn_bytes else []
        notes += [f"{one.lost} records lost behind it"] if one.lost else []
        notes += [f"DAMAGED: {one.damage}"] if one.damage else []
        behind = "".join(f"; {note}" for note in notes)
        click.echo(f"  {one.file}  {one.state:6}  {what}, {one.bytes:,} bytes{behind}")


def _document(log: Path, segments: list[Listed]) -> dict[str, object]:
    return {"folder": str(log), "segments": [asdict(one) for one in segments]}
