"""A wave by one task and by a shuffle: the same lakes, whichever way it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.certificate.lives import root
from truecut.certificate.chain import NO_HEAD
from truecut.certificate.folding import Folding, Target
from truecut.certificate.scope import scope_text
from truecut.certificate.segment import Wanted, columns_text
from truecut.config.settings import SinkSettings
from truecut.errors import Retry, TruecutError
from truecut.lake import attach_sql, connect, lake_of, parse_address
from truecut.model.change import COMMITTED_AT, CONTROL_FIELDS, INSERT, OP, PLACE, READ, SEQ
from truecut.model.cursor import Version
from truecut.model.order import Order, TableOrder
from truecut.model.position import Position
from truecut.model.table import Column, TableName, TableSchema
from truecut.sources.contract import Rows
from truecut.spark.wave.job import RecoverJob, WaveJob, run_recover, run_wave
from truecut.spark.wave.progress import name_job
from truecut.spark.wave.reading import Reading
from truecut.spark.wave.route import TableRoute
from truecut_verify import digest as plain

TABLE = "main.events"
SINKS = 3
SCHEMA = TableSchema("1", (Column(1, "id", "BIGINT"), Column(2, "tenant", "VARCHAR")))
COLUMNS = pa.schema([*CONTROL_FIELDS, pa.field("id", pa.int64()), pa.field("tenant", pa.string())])


@dataclass(frozen=True)
class Piece:
    """A piece of a window: these keys, for the tenants in turn and one that no sink takes."""

    keys: range
    place: int
    op: int

    @property
    def tables(self) -> tuple[TableName, ...]:
        return (TableName.parse(TABLE),)

    def read(self) -> Iterator[Rows]:
        for key in self.keys:
            change = _change(key, self.place, self.op)
            yield Rows(self.tables[0], pa.RecordBatch.from_pylist([change], schema=COLUMNS))


def _change(key: int, place: int, op: int) -> dict[str, object]:
    tenant = f"t{key % (SINKS + 1)}"
    return {OP: op, PLACE: place, SEQ: 1, COMMITTED_AT: None, "id": key, "tenant": tenant}


def sinks_in(folder: Path) -> tuple[SinkSettings, ...]:
    """One on a DuckDB file, the others on SQLite."""
    addresses = [
        parse_address(f"{'sqlite:' if n else ''}t{n}.db", f"t{n}", base=folder) for n in range(SINKS)
    ]
    return tuple(
        SinkSettings(f"t{n}", "ducklake", address, f"t{n}", "refuse", {TABLE: "mirror"})
        for n, address in enumerate(addresses)
    )


def job(sinks: tuple[SinkSettings, ...], upto: int, *tasks: Piece, rows: int = 0) -> WaveJob:
    """A seed up to 1, changes after it; `rows` of which the source believes that it has so many."""
    seed = upto == 1
    before, after = None if seed else Version(1, Position(1, upto - 1)), Version(1, Position(1, upto))
    wanted = TableOrder("replace" if seed else "changes", "mirror", ("id",), SCHEMA, before, after)
    orders = tuple(Order(sink.name, 1, 1, Position(1, upto), "source", {TABLE: wanted}) for sink in sinks)
    how = TableRoute("tenant", (), {f"t{n}": (n,) for n in range(SINKS)})
    return WaveJob(
        "p",
        Reading(tasks, (TABLE,), (how,), orders, seed),
        sinks,
        slots=2,
        deadline_ms=60_000,
        aside=seed,
        rows_estimate=rows,
    )


def content(sink: SinkSettings) -> list[tuple[object, ...]]:
    with connect() as lake:
        lake.execute(attach_sql(lake_of(sink.address), "lake", read_only=True))
        return lake.execute(f"FROM lake.{TABLE} ORDER BY ALL").fetchall()


@pytest.mark.parametrize("held_bytes_max", [1 << 20, 1], ids=["one task", "too much for one task"])
def test_a_wave_carries_every_row_once(spark: SparkSession, tmp_path: Path, held_bytes_max: int) -> None:
    """By one task, and by the shuffle when there is more than a task may hold."""
    sinks = sinks_in(tmp_path)
    recovered = run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    assert {receipt.outcome for receipt in recovered} == {"applied"}
    seeded = run_wave(spark, job(sinks, 1, Piece(range(10), 1, READ), Piece(range(10, 20), 1, READ)))
    assert {receipt.outcome for receipt in seeded.receipts} == {"applied"}
    changes = job(sinks, 2, Piece(range(20, 30), 2, INSERT), Piece(range(30, 40), 2, INSERT))
    done = run_wave(spark, replace(changes, held_bytes_max=held_bytes_max))
    assert sorted((receipt.sink, receipt.outcome) for receipt in done.receipts) == [
        (f"t{n}", "applied") for n in range(SINKS)
    ]
    assert done.unrouted == {TABLE: 5}
    for n, sink in enumerate(sinks):
        assert content(sink) == [(key, f"t{n}") for key in range(40) if key % (SINKS + 1) == n]


def test_sinks_without_rows_have_no_receipt(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is committed for them, so nothing is said."""
    sinks = sinks_in(tmp_path)
    run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    run_wave(spark, job(sinks, 1, Piece(range(0), 1, READ)))
    done = run_wave(spark, job(sinks, 2, Piece(range(1, 2), 2, INSERT)))
    assert [(receipt.sink, receipt.outcome) for receipt in done.receipts] == [("t1", "applied")]


LARGE = 1_000_000  # of which the source believes that it has so many rows


def test_a_large_seed_is_staged_by_the_tasks_that_read_it(spark: SparkSession, tmp_path: Path) -> None:
    """Every row once; of each piece there is a file for each sink, and changes go on from there."""
    sinks = sinks_in(tmp_path)
    run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    pieces = Piece(range(10), 1, READ), Piece(range(10, 20), 1, READ)
    seeded = run_wave(spark, job(sinks, 1, *pieces, rows=LARGE))
    assert {receipt.outcome for receipt in seeded.receipts} == {"applied"}
    assert seeded.unrouted == {TABLE: 5}
    counts = {receipt.sink: receipt.counts[TABLE].puts for receipt in seeded.receipts}
    assert counts == {f"t{n}": 5 for n in range(SINKS)}
    for n, sink in enumerate(sinks):
        assert content(sink) == [(key, f"t{n}") for key in range(20) if key % (SINKS + 1) == n]
        assert len(list((tmp_path / f"t{n}").rglob("truecut-*.parquet"))) == len(pieces)
    done = run_wave(spark, job(sinks, 2, Piece(range(20, 40), 2, INSERT)))
    assert {receipt.outcome for receipt in done.receipts} == {"applied"}
    for n, sink in enumerate(sinks):
        assert content(sink) == [(key, f"t{n}") for key in range(40) if key % (SINKS + 1) == n]


def test_a_large_seed_is_certified(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks that read it gather its evidence: a file of each of them, a claim of all rows, and changes
    that go on from there."""
    (tmp_path / "secret").write_bytes(bytes(16))
    wanted = Wanted(str(tmp_path), leaves_out=False)
    sinks = sinks_in(tmp_path)
    run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    pieces = Piece(range(10), 1, READ), Piece(range(10, 20), 1, READ)
    seeded = run_wave(spark, replace(job(sinks, 1, *pieces, rows=LARGE), evidence=wanted))
    heads = {one.sink: one.cursor.copies[TABLE].evidence for one in seeded.receipts if one.cursor is not None}
    for n, sink in enumerate(sinks):
        assert len(list((tmp_path / f"t{n}").rglob("truecut-*.parquet"))) == len(pieces)
        claim = Folding(str(tmp_path), target(sink.name, heads[sink.name])).run()
        (segment,) = claim.segments
        assert len(segment["files"]) == 1 + len(pieces)
        rows = [(key, f"t{n}") for key in range(20) if key % (SINKS + 1) == n]
        assert content(sink) == rows
        assert (claim.verdict, claim.rows, claim.root) == ("certified", len(rows), root_of(rows))


def target(sink: str, head: str) -> Target:
    """A mirror as its sink's cursor shows it after the seed."""
    return Target(TABLE, sink, "mirror", 1, str(Position(1, 1)), head, columns_text(SCHEMA.columns), "")


def root_of(rows: list[tuple[int, str]]) -> bytes:
    """As the verifier's code computes it, row by row."""
    table = plain.Table(scope_text("source", TABLE), [("id", "int")], [("tenant", 2, "text")])
    sums, counts = [0] * 4096, [0] * 4096
    for key, tenant in rows:
        row = {"id": pa.scalar(key, pa.int64()), "tenant": pa.scalar(tenant)}
        found, total = plain.row_digest(bytes(16), table, row)
        bucket = plain.bucket(found)
        sums[bucket], counts[bucket] = (sums[bucket] + total) % plain.MODULUS, counts[bucket] + 1
    return root(sums, counts)


def test_a_key_in_two_pieces_holds_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Neither of the tasks that read it can see that; whoever commits does."""
    sinks = sinks_in(tmp_path)
    run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    pieces = Piece(range(10), 1, READ), Piece(range(8, 20), 1, READ)
    seeded = run_wave(spark, job(sinks, 1, *pieces, rows=LARGE))
    holds = {one.sink: one.cursor.copies[TABLE].hold for one in seeded.receipts if one.cursor is not None}
    assert {sink: hold and hold.code for sink, hold in holds.items()} == {
        "t0": "TC3020",  # 8
        "t1": "TC3020",  # 9
        "t2": None,
    }
    assert [key for key, _ in content(sinks[2])] == [2, 6, 10, 14, 18]


@dataclass(frozen=True)
class Unreadable(Piece):
    """A piece that breaks off behind its rows."""

    def read(self) -> Iterator[Rows]:
        yield from Piece.read(self)
        raise TruecutError("TC2009", "gone", fix="None.", retry=Retry.RETRYABLE)


def test_a_seed_that_could_not_be_read_registers_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Files of its other pieces are there and count for nothing; the next seed takes them away."""
    sinks = sinks_in(tmp_path)
    run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
    pieces = Piece(range(10), 1, READ), Unreadable(range(10, 20), 1, READ)
    broken = run_wave(spark, job(sinks, 1, *pieces, rows=LARGE))
    assert {receipt.outcome for receipt in broken.receipts} == {"aborted"}
    left = {path for n in range(SINKS) for path in (tmp_path / f"t{n}").rglob("*.parquet")}
    assert left
    again = run_wave(spark, job(sinks, 1, pieces[0], Piece(range(10, 20), 1, READ), rows=LARGE))
    assert {receipt.outcome for receipt in again.receipts} == {"applied"}
    assert not [path for path in left if path.exists()]
    for n, sink in enumerate(sinks):
        assert content(sink) == [(key, f"t{n}") for key in range(20) if key % (SINKS + 1) == n]


@pytest.mark.parametrize("rows", [0, LARGE], ids=["a small seed", "a large seed"])
def test_evidence_adds_no_job(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    """What certificates need is gathered by the jobs that carry the rows: there are as many as without."""
    jobs = []
    for wanted in (None, Wanted(str(tmp_path), leaves_out=False)):
        folder = tmp_path / f"with-{wanted is not None}"
        folder.mkdir()
        (tmp_path / "secret").write_bytes(bytes(16))
        sinks, group = sinks_in(folder), f"{folder}-{rows}"
        run_recover(spark, RecoverJob("p", tuple((s, 1, 1) for s in sinks), 2, 60_000))
        name_job(spark, group)
        pieces = Piece(range(10), 1, READ), Piece(range(10, 20), 1, READ)
        seeded = run_wave(spark, replace(job(sinks, 1, *pieces, rows=rows), evidence=wanted))
        changes = job(sinks, 2, Piece(range(20, 30), 2, INSERT))
        run_wave(spark, replace(changes, evidence=wanted))
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
        heads = [one.cursor.copies[TABLE].evidence for one in seeded.receipts if one.cursor is not None]
        assert len(heads) == SINKS
        assert (NO_HEAD not in heads) == (wanted is not None)
    assert jobs[0] == jobs[1] > 0
