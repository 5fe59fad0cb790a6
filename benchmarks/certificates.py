"""What certificates cost: the same pipeline with them and without, CPU seconds of all processes.

A lake is copied to a lake. First a seed, from the start of the pipeline; then a stream of commits, inserts
and updates, carried as they come. With certificates it counts until everything is certified, folding
included; what the writer of the source costs does not. Both ways run in turn, in processes of their own, and
what both made is compared with the source.

    python -m benchmarks.certificates [--rows 500000] [--commits 40] [--changed 20000] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import psutil

from benchmarks.measure import measured
from benchmarks.rig import TABLE, Rig, lakes_in, rig
from truecut.certificate.issue import last_issued
from truecut.config.settings import CertificateSettings
from truecut.lake import LakeAddress, attach, connect, lake_of

INTERVAL_MS = 10_000  # the default
PARTS = ("seed", "stream")


def main() -> None:
    """Print both ways, and what certificates add."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000, help="of the seed")
    parser.add_argument("--commits", type=int, default=40, help="of the stream")
    parser.add_argument("--changed", type=int, default=20_000, help="rows of a commit, half of them updates")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two commits")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--way", choices=["on", "off"], help="one way only, as JSON")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(_one_way(options)))
        return
    found: dict[str, list[dict[str, dict[str, float]]]] = {"off": [], "on": []}
    for _ in range(options.rounds):
        for way, rounds in found.items():
            rounds.append(_in_a_process(way))
    for part in PARTS:
        cpu_s = {way: median(one[part]["cpu_s"] for one in rounds) for way, rounds in found.items()}
        added = cpu_s["on"] / cpu_s["off"] - 1
        print(
            f"{part:7} off {cpu_s['off']:7.1f} CPU s   on {cpu_s['on']:7.1f} CPU s   {added:+.0%}", flush=True
        )


def _in_a_process(way: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.certificates", *sys.argv[1:], "--way", way]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    told: dict[str, dict[str, float]] = json.loads(said.splitlines()[-1])
    print(f"  {way}: " + ", ".join(f"{part} {told[part]['cpu_s']:.1f} CPU s" for part in PARTS), flush=True)
    return told


def _one_way(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="truecut-bench-") as name:
        folder = Path(name)
        certificate = CertificateSettings(folder / "certificates", INTERVAL_MS)
        wanted = certificate if options.way == "on" else None
        with (
            rig(folder, lakes=lakes_in(folder, 1), routed=False, certificate=wanted) as bench,
            _writing(lake_of(bench.pipeline.source.address)) as writer,
        ):
            writer.commit(_inserting(0, options.rows))
            with measured() as whole, bench.running():
                _settle(bench)
                before_s = writer.cpu_s()
                with measured() as stream:
                    _stream(bench, writer, options)
                    _settle(bench)
                written_s = writer.cpu_s() - before_s
            _compare(bench)
    seed_s = whole.cpu_s - stream.cpu_s  # with the start of the pipeline
    return {"seed": {"cpu_s": seed_s}, "stream": {"cpu_s": stream.cpu_s - written_s}}


@dataclass(frozen=True)
class Writer:
    """A process that commits at the source."""

    process: psutil.Process
    pipe: Connection

    def commit(self, *statements: str) -> None:
        """One transaction."""
        self.pipe.send(statements)
        self.pipe.recv()

    def cpu_s(self) -> float:
        """What it has cost."""
        times = self.process.cpu_times()
        return times.user + times.system


@contextmanager
def _writing(source: LakeAddress) -> Iterator[Writer]:
    ours, theirs = Pipe()
    process = get_context("spawn").Process(target=_write, args=(source, theirs))
    process.start()
    yield Writer(psutil.Process(process.pid), ours)
    ours.send(())
    process.join()


def _write(source: LakeAddress, pipe: Connection) -> None:
    with connect(threads=1) as lake:
        attach(lake, source, "lake")
        while statements := pipe.recv():
            for statement in ("BEGIN", *statements, "COMMIT"):
                lake.execute(statement)
            pipe.send(None)


def _stream(bench: Rig, writer: Writer, options: argparse.Namespace) -> None:
    """Each commit is in the sink before the next one is made."""
    half = options.changed // 2
    for number in range(options.commits):
        began = time.monotonic()
        low = number * half % options.rows
        updating = f"UPDATE lake.{TABLE} SET a = a + 1, c = c / 2 WHERE id BETWEEN {low} AND {low + half - 1}"
        writer.commit(_inserting(options.rows + number * half, half), updating)
        bench.wait_until_current()
        time.sleep(max(0.0, began + options.pause - time.monotonic()))


def _inserting(low: int, rows: int) -> str:
    return (
        f"INSERT INTO lake.{TABLE} SELECT i, 't', i, i, i, 'text ' || i, 'more', TIMESTAMP '2026-01-01'"
        f" FROM range({low}, {low + rows}) r(i)"
    )


def _settle(bench: Rig) -> None:
    """Everything is there; and certified, where that is wanted."""
    bench.wait_until_current()
    if bench.pipeline.certificate is None:
        return
    head = bench.source.execute("FROM lake.current_snapshot()").fetchone()
    assert head is not None
    while True:
        issued = last_issued(bench.pipeline.certificate.path)
        if issued.number and int(issued.document["frontier"].split("-")[1], 16) >= head[0]:
            break
        time.sleep(0.2)
    assert all(row["verdict"] == "certified" for row in issued.copies.values()), "it is not certified"


def _compare(bench: Rig) -> None:
    """The copy is the source."""
    with connect() as lake:
        attach(lake, lake_of(bench.pipeline.sinks[0].address), "copy", read_only=True)
        digest = f"SELECT count(*), bit_xor(hash(t)) FROM lake.{TABLE} t"
        found = lake.execute(digest.replace("lake", "copy")).fetchone()
        assert found == bench.source.execute(digest).fetchone(), "the copy differs"


if __name__ == "__main__":
    main()
