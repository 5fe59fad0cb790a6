"""What of a journal is kept for whom, decided from what the sinks have told; and what is then on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.config.settings import Pipeline
from truecut.journal.local import LocalJournal
from truecut.model.position import Position
from truecut.runtime.control import open_control
from truecut.runtime.trimming import Trimming

_numbers = itertools.count(1)


@pytest.fixture
def piped(tmp_path: Path, postgres: PostgresServer) -> Iterator[Piped]:
    name = f"trimmed_{next(_numbers)}"
    conninfo = postgres.create_database(name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sinks = [
        {"name": name, "type": "ducklake", "catalog": f"sqlite:{name}.db", "data_path": f"{name}-data"}
        for name in ("quick", "slow")
    ]
    document = pipeline_document(name, conninfo, [{"name": "public.t", "backfill": "none"}], sinks=sinks)
    made = Piped(tmp_path, conninfo, document)
    yield made
    made.close()


def fill(piped: Piped) -> list[Position]:
    """Four portions of changes, each in segments of its own: the heads behind them."""
    source, heads = piped.source(), []
    piped.capture()
    heads.append(source.observe().head)
    for portion in range(4):
        with piped.connect() as connection:
            connection.execute(
                "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(%s::int, %s) n",
                (portion * 1000, portion * 1000 + 99),
            )
        piped.capture()  # whoever opens a journal begins a segment
        heads.append(source.observe().head)
    return heads


def tell(pipeline: Pipeline, identity: str, places: dict[str, Position | None], **more: Any) -> None:
    """As runners report."""
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.generation(identity)
    control.report_sinks(
        {
            sink: {
                "tables": {
                    "public.t": {
                        "status": "streaming",
                        "durable": None if at is None else str(at),
                        **more.get(sink, {}),
                    }
                }
            }
            for sink, at in places.items()
        }
    )
    control.close()


def kept_from(piped: Piped, pipeline: Pipeline) -> Position:
    """Trim once, as the writer does; where the journal begins then."""
    journal = LocalJournal(pipeline.state / "journal", take_over=True)
    trimming = Trimming(pipeline, journal)
    try:
        trimming.trim()
    finally:
        trimming.close()
        journal.close()
    return piped.source().observe().oldest


def test_what_every_sink_has_is_trimmed_and_nothing_else(piped: Piped) -> None:
    """As far as the slowest has it durably, in whole segments; nothing before the runners have told of each
    sink; a window from where the slowest stands can still be read."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    begin = piped.source().observe().oldest
    assert kept_from(piped, pipeline) == begin
    tell(pipeline, identity, {"quick": heads[4]})
    assert kept_from(piped, pipeline) == begin
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[2]})
    oldest = kept_from(piped, pipeline)
    assert begin < oldest <= heads[2]
    window = piped.window(piped.source(), heads[2], heads[4])
    assert not window.lost
    assert sum(batch.num_rows for task in window.tasks for _, batch in task.read()) == 200


def test_a_sink_that_holds_back_too_much_is_let_go(piped: Piped) -> None:
    """The others' share alone counts then; where the sink stands is gone, and that is told as lost."""
    heads = fill(piped)
    pipeline, identity = piped.pipeline(), piped.source().observe().identity
    tell(pipeline, identity, {"quick": heads[4], "slow": heads[0]})
    assert kept_from(piped, pipeline) <= heads[0]
    sinks = tuple(replace(sink, hold_bytes_max=30_000) for sink in pipeline.sinks)
    assert kept_from(piped, replace(pipeline, sinks=sinks)) > heads[0]
    assert piped.window(piped.source(), heads[0], heads[4]).lost
