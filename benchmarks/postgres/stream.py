"""A backlog of changes of a PostgreSQL, in transactions of several sizes: into a lake, into the journal
alone, and handed to an empty callback by Debezium's engine.

All three run already and have seen a first few changes when they are stopped (SIGSTOP); then the backlog is
written, and the clock starts when they may go on: nobody's start counts. It ends for us when the sink's
cursor (or the released slot) has everything, for the engine when its callback was given the last change. What
stands in the lake is compared.

    python -m benchmarks.postgres.stream [--changes 1000000] [--each 1 10 1000] [--form lake capture debezium]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import Measured, measured
from benchmarks.postgres.copies import in_lake
from benchmarks.postgres.peers import DEBEZIUM, ENGINE, python_with
from benchmarks.postgres.shop import LAKE, Shop, shop
from benchmarks.postgres.watched import Command, reached, running, truecut, until

FORMS = ("lake", "capture", "debezium")
WARM = 20_000  # changes, before anything is measured


def main() -> None:
    """Print each form, and ratios to Debezium's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=1_000_000, help="a multiple of 1,000")
    parser.add_argument("--each", type=int, nargs="+", default=[1, 10, 1000], help="changes in a transaction")
    parser.add_argument("--form", nargs="+", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    for each in options.each:
        print(f"{options.changes:,} changes in transactions of {each:,}", flush=True)
        costs = {form: _measure(form, options.changes, each) for form in options.form}
        if peer := costs.get("debezium"):
            for form in [form for form in options.form if form != "debezium"]:
                _compare(form, costs[form], peer)


@dataclass(frozen=True)
class Cost:
    """Of all processes of the reader, and of the server meanwhile (the writer has ended)."""

    run: Measured
    server_s: float


def _measure(form: str, changes: int, each: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name, shop(Path(name)) as source:
        with FOLLOWING[form](source, changes) as follower:
            source.work(low=1, changes=WARM, each=each)
            until(partial(follower.has_all, source.end_of_log(), WARM), follower.command)
            with follower.command.asleep():
                source.work(low=1 + WARM, changes=changes, each=each)
                end, before = source.end_of_log(), source.server_cpu_s()
            with measured() as run:
                until(partial(follower.has_all, end, WARM + changes), follower.command, every_s=0.05)
            cost = Cost(run, source.server_cpu_s() - before)
        follower.check(source)
    print(
        f"  {form:9} {changes / run.wall_s:10,.0f} changes/s  {run.wall_s:7.2f} s  {run.cpu_s:7.2f} CPU s,"
        f" server {cost.server_s:6.2f}  {run.peak_rss_mb:6.0f} MB",
        flush=True,
    )
    return cost


def _compare(form: str, cost: Cost, peer: Cost) -> None:
    rate, cpu = peer.run.wall_s / cost.run.wall_s, cost.run.cpu_s / peer.run.cpu_s
    print(f"  {form} / debezium: {rate:.1f} x the rate, {cpu:.2f} x the CPU seconds", flush=True)


@dataclass(frozen=True)
class Follower:
    """Who reads the changes: whether all before a place, so many, have arrived, and are right."""

    command: Command
    has_all: Callable[[int, int], bool]
    check: Callable[[Shop], None]


@contextmanager
def _into_lake(source: Shop, _: int) -> Iterator[Follower]:
    file = source.pipeline("stream", [LAKE])
    with running(truecut("run", str(file)), source.folder / "run.log") as command:
        until(lambda: reached(file, 0), command)
        yield Follower(
            command, lambda place, _: reached(file, place), lambda shop: _is_equal(shop, file.parent)
        )


def _is_equal(source: Shop, folder: Path) -> None:
    assert in_lake(folder) == source.content(), "the lake differs from its source"


@contextmanager
def _into_journal(source: Shop, _: int) -> Iterator[Follower]:
    file = source.pipeline("capture", [LAKE])
    with running(truecut("capture", str(file)), source.folder / "capture.log") as command:
        until(lambda: source.released("truecut_capture") > 0, command)
        yield Follower(command, lambda place, _: source.released("truecut_capture") >= place, lambda _: None)


@contextmanager
def _to_callback(source: Shop, changes: int) -> Iterator[Follower]:
    dsn = dict(part.split("=") for part in source.dsn.split())
    wanted = [str(WARM), str(WARM + changes)]
    command = [
        python_with("debezium", DEBEZIUM),
        "-c",
        ENGINE,
        dsn["port"],
        dsn["dbname"],
        str(source.folder),
    ]
    with running([*command, *wanted], source.folder / "engine.log") as engine:
        until(lambda: source.streams("debezium"), engine)
        yield Follower(engine, lambda _, count: engine.has_said(f"all {count}"), lambda _: None)


FOLLOWING = {"lake": _into_lake, "capture": _into_journal, "debezium": _to_callback}

if __name__ == "__main__":
    main()
