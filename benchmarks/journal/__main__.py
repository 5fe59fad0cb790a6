"""The journal beside Kafka, at equal durability: an append is on disk before it is answered.

Four forms: a folder (`local`), three nodes and a coordinator as processes with two replicas (`replicated`),
three Kafka brokers with two replicas, both in sync (`kafka`), and one Kafka broker (`kafka-1`), all of which
sync every message set; in one run, in turn. Speed: 256 KiB batches with
one and with sixteen unacknowledged, single appends of 1 KiB, reading by one process; `disk` is a file that
is written and synced. Then how soon a reader sees an append on an idle log, how soon the log goes on after a
node is killed, and the nodes' memory while gigabytes go through them. Random bytes, and whatever is read is
compared with what was written. A ratio above 1 is ahead of Kafka.

    python -m benchmarks.journal [--form replicated] [--part speed] [--megabytes 256] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.journal.failover import failovers
from benchmarks.journal.kafka_peer import kafka
from benchmarks.journal.logs import LocalLog, ReplicatedLog
from benchmarks.journal.memory import memory
from benchmarks.journal.report import Found
from benchmarks.journal.speed import Make, of_disk, of_log, speeds
from benchmarks.journal.visibility import visibility
from tests.journal.cluster import Cluster

FORMS = ("local", "replicated", "kafka", "kafka-1")
PARTS = ("speed", "visibility", "failover", "memory")


def main() -> None:
    """Print a table, or JSON."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whatever was started ends, too
    options = _options()
    found = Found(
        {name: getattr(options, name) for name in ("megabytes", "singles", "rounds", "gigabytes")},
        load=os.getloadavg()[0],
        cores=os.cpu_count() or 1,
    )
    forms = options.form or FORMS
    parts = options.part or PARTS
    with tempfile.TemporaryDirectory(prefix="truecut-bench-", dir=options.folder) as name:
        folder = Path(name)
        _require_room(folder, options.megabytes * (options.rounds + 1))
        if "speed" in parts:
            _measure_speed(found, folder, forms, options)
        if "visibility" in parts:
            with _running(folder / "visibility", forms) as makes:
                for form, make in makes.items():
                    _say(f"visibility, {form}")
                    found.visibility_s[form] = visibility(make("idle"), appends=options.appends)
        if "failover" in parts and "replicated" in forms:
            _say("failover")
            with _cluster(folder / "failover") as cluster:
                log = ReplicatedLog(cluster.address, "failover")
                found.failover_s = failovers(cluster, log, rounds=options.failovers)
        if "memory" in parts and "replicated" in forms:
            _say("memory")
            with _cluster(folder / "memory") as cluster:
                log = ReplicatedLog(cluster.address, "memory")
                found.memory = memory(cluster, log, gigabytes=options.gigabytes)
    print(json.dumps(found.document(), indent=2) if options.json else "\n".join(found.lines()), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=FORMS, action="append", help="may be given again; all by default")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be given again; all by default")
    parser.add_argument("--megabytes", type=int, default=256, help="of 256 KiB batches for each figure")
    parser.add_argument("--singles", type=int, default=2_000, help="appends of 1 KiB")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are taken")
    parser.add_argument("--appends", type=int, default=100, help="whose visibility is measured")
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="written while memory is watched")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the system's own by default")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _measure_speed(found: Found, folder: Path, forms: tuple[str, ...], options: argparse.Namespace) -> None:
    sizes = {"megabytes": options.megabytes, "singles": options.singles}
    with _running(folder / "speed", forms) as makes:
        _say(f"speed, {', '.join(makes)}")
        measures = {form: of_log(make, **sizes) for form, make in makes.items()}
        found.speed = speeds({"disk": of_disk(folder / "speed", **sizes), **measures}, rounds=options.rounds)


@contextmanager
def _running(folder: Path, forms: tuple[str, ...]) -> Iterator[dict[str, Make]]:
    """What makes a log of each form, while all of them run; their data is gone afterwards."""
    makes: dict[str, Make] = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if "local" in forms:
            makes["local"] = lambda name: LocalLog(folder / "local" / name)
        if "replicated" in forms:
            cluster = stack.enter_context(_cluster(folder / "replicated"))
            makes["replicated"] = lambda name: ReplicatedLog(cluster.address, name, _processes(cluster))
        if "kafka" in forms:
            makes["kafka"] = stack.enter_context(kafka(folder / "kafka", brokers=3, copies=2)).make
        if "kafka-1" in forms:
            makes["kafka-1"] = stack.enter_context(kafka(folder / "kafka-1", brokers=1, copies=1)).make
        yield makes


@contextmanager
def _cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def _processes(cluster: Cluster) -> tuple[int, ...]:
    running = (one.running for one in (cluster.coordinator, *cluster.nodes))
    return tuple(one.pid for one in running if one is not None)


def _require_room(folder: Path, megabytes: int) -> None:
    needed, free = 10 * (megabytes << 20), shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"{folder.parent} has {free / 1e9:.1f} GB free; this run may need {needed / 1e9:.1f} GB. "
            "Make room, name a folder on another disk with --folder, or measure with fewer --megabytes."
        )


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
