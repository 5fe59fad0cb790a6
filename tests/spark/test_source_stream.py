"""`spark.readStream.format("truecut")`: each row once over restarts, transactions never split."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.journal.changes import PEOPLE, insert
from tests.journal.world import at
from tests.patience import PATIENCE_S
from tests.spark.logs import Log, Shown, plain
from truecut.spark import source

WAIT_S = int(PATIENCE_S)


class Sink:
    """Keeps what each batch brought; fails where it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[Shown]] = []
        self.fail_at: int | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = plain(batch.collect())
        if number == self.fail_at:
            self.fail_at = None
            raise RuntimeError("the sink failed")
        self.batches.append(rows)

    @property
    def rows(self) -> list[Shown]:
        return [row for batch in self.batches for row in batch]


class World:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.checkpoint = folder / "checkpoint"
        self.log = Log(folder / "log")
        self.sink = Sink()

    def start(self, now: bool = True, **options: Any) -> StreamingQuery:
        source.register(self.spark)
        stream = self.spark.readStream.format("truecut").options(**options).load(str(self.log.folder))
        writer = stream.writeStream.foreachBatch(self.sink)
        writer = writer.trigger(availableNow=True) if now else writer
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def run(self, **options: Any) -> None:
        """Take what is there now."""
        query = self.start(**options)
        assert query.awaitTermination(WAIT_S)

    def assert_transactions_whole(self) -> None:
        """Every transaction is in one batch."""
        for transaction in self.log.transactions:
            held = [batch for batch in self.sink.batches if any(row in batch for row in transaction)]
            assert len(held) == 1
            assert all(row in held[0] for row in transaction)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    yield made
    made.log.journal.close()


def test_each_row_comes_once_over_restarts(world: World) -> None:
    """With one checkpoint: what was appended in between, in order, nothing twice, nothing left out."""
    for count in (12, 0, 9):
        world.log.append_transactions(count)
        world.run()
        assert world.sink.rows == world.log.shown


def test_limits_make_several_batches_and_never_split_a_transaction(world: World) -> None:
    """By rows, then by bytes; one that is larger than the limit comes whole, and alone."""
    world.log.append_transactions(12)
    world.log.append_transaction(parts=3, rows_max=40)
    world.run(maxRecordsPerTrigger=8)
    assert world.sink.rows == world.log.shown
    assert len(world.sink.batches) >= 4
    large = [batch for batch in world.sink.batches if len(batch) > 8]
    assert world.log.transactions[-1] in large
    assert all(batch in world.log.transactions for batch in large)
    seen = len(world.sink.batches)
    world.log.append_transactions(8)
    world.run(maxBytesPerTrigger="6KiB")
    assert world.sink.rows == world.log.shown
    assert len(world.sink.batches) >= seen + 2
    world.assert_transactions_whole()


def test_a_running_stream_gets_what_is_appended(world: World) -> None:
    """A transaction only when its last record is there; then everything, in order."""
    world.log.append_transactions(2)
    query = world.start(now=False)
    query.processAllAvailable()
    assert world.sink.rows == world.log.shown
    open_part = PEOPLE.record(insert(1, {"id": 1, "name": "a"}), last=False)
    world.log.journal.append([open_part])
    query.processAllAvailable()
    assert world.sink.rows == world.log.shown
    world.log.journal.append([PEOPLE.record(insert(1, {"id": 2, "name": "b"}), part=1)])
    query.processAllAvailable()
    assert [row[5]["id"] for row in world.sink.batches[-1]] == [1, 2]
    del world.sink.batches[-1]
    world.log.append_transactions(5)
    query.processAllAvailable()
    query.stop()
    assert world.sink.rows == world.log.shown
    world.assert_transactions_whole()


def test_a_batch_that_failed_is_read_again_the_same(world: World) -> None:
    """After a restart Spark asks for the same range, though the log has grown and limits have changed."""
    world.log.append_transactions(6)
    world.sink.fail_at = 1
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        world.run(maxRecordsPerTrigger=4)
    expected = list(world.log.shown)
    world.log.append_transactions(4)
    world.run(maxRecordsPerTrigger=1000)
    assert world.sink.rows == world.log.shown
    assert 0 < len(world.sink.batches[0] + world.sink.batches[1]) < len(expected)
    world.assert_transactions_whole()


def test_without_its_checkpoint_a_stream_goes_on_from_a_cursor_of_ones_own(world: World) -> None:
    """The checkpoint is disposable: the last position that the sink holds is enough."""
    world.log.append_transactions(6)
    world.run()
    shutil.rmtree(world.checkpoint)
    world.log.append_transactions(6)
    cursor = world.sink.rows[-1][0]
    world.run(startingPosition=cursor)
    assert world.sink.rows == world.log.shown


def test_latest_begins_with_what_comes_next(world: World) -> None:
    """Behind the last whole transaction, so that the one that is being written comes whole."""
    world.log.append_transactions(3)
    world.log.journal.append([PEOPLE.record(insert(1, {"id": 1, "name": "a"}), last=False)])
    query = world.start(now=False, startingPosition="latest")
    query.processAllAvailable()
    assert world.sink.rows == []
    world.log.journal.append([PEOPLE.record(insert(1, {"id": 2, "name": "b"}), part=1)])
    query.processAllAvailable()
    query.stop()
    assert [row[5]["id"] for row in world.sink.rows] == [1, 2]


def test_a_stream_that_lost_its_place_stops_and_says_so(world: World) -> None:
    """Its next records were trimmed, or the log is another one: an error, never a gap."""
    world.log.append_transactions(3)
    world.run()
    seen = len(world.sink.batches)
    for lose in (_trim, _replace):
        message = lose(world)
        with pytest.raises(StreamingQueryException, match=message):
            world.run()
        assert len(world.sink.batches) == seen


def _trim(world: World) -> str:
    world.log.append_transactions(120)
    world.log.journal.trim(before=at(100))
    return f"TC6006.*{world.log.journal.oldest()}"


def _replace(world: World) -> str:
    world.log.journal.close()
    shutil.rmtree(world.log.folder)
    world.log = Log(world.log.folder)
    world.log.append_line("another log")
    return f"TC6024 the log ends at {at(1)}"
