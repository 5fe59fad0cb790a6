"""The data source over a replicated log: the same rows, whichever node is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.journal.cluster import Cluster
from truecut.journal.record import Record
from truecut.journal.replicated.producer import ReplicatedJournal
from truecut.spark import source

WAIT_S = 120
Rows = list[tuple[str, str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Of this test alone: its nodes are killed. It wants a token."""
    token = tmp_path / "token"
    token.write_text("a-secret\n")
    running = Cluster.with_token(tmp_path / "cluster", token).start()
    yield running
    running.stop()


def shown(frame: DataFrame) -> Rows:
    return [(row["position"], json.loads(row["after"])) for row in frame.collect()]


def expected(first: int, last: int) -> Rows:
    return [(f"00000001-{n:016X}", f"line {n}") for n in range(first, last + 1)]


def test_a_batch_and_a_stream_of_a_log_whose_nodes_fail(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Every row once and in order, while each node is killed and comes back in turn."""
    source.register(spark)
    journal = ReplicatedJournal(cluster.address, "log", security=cluster.security, segment_bytes_max=20_000)
    options = {"coordinator": cluster.address, "log": "log", "tokenFile": str(tmp_path / "token")}
    got: Rows = []
    appended = 0
    for node in cluster.nodes:
        for _ in range(4):
            journal.append([Record(f"line {n}".encode()) for n in range(appended + 1, appended + 251)])
            appended += 250
        node.kill()
        stream = spark.readStream.format("truecut").options(**options, maxRecordsPerTrigger=400).load()
        query = (
            stream.writeStream.foreachBatch(lambda batch, _: got.extend(shown(batch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        assert got == expected(1, appended)
        node.start()
        cluster.wait_for(lambda status: all(one["state"] == "alive" for one in status["nodes"]))
    batch = spark.read.format("truecut").options(**options, upto=f"00000001-{appended:016X}").load()
    assert sorted(shown(batch)) == expected(1, appended)
    journal.close()
