"""What a wave is planned with: the source that was looked at, under the number that it had then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

import pytest

from tests.runtime.simulation.pipeline import TABLES, drawn_pipeline
from truecut.core.delivery import CopyOrder, SinkOrder, Wave
from truecut.errors import TruecutError
from truecut.model.cursor import Version
from truecut.model.position import Position
from truecut.model.table import TableName, TableSchema
from truecut.runtime.orders import Planner
from truecut.sources.contract import Source, Window


@dataclass
class Answering:
    """Stands where a source would, which has become this one since it was looked at."""

    identity: str
    generation: int

    def plan_window(self, tables: Any, *, upto_max: Position, **_: Any) -> Window:
        return self.plan_seed(tables, at=upto_max)

    def plan_seed(self, tables: Any, *, at: Position, **_: Any) -> Window:
        return Window(Position(self.generation, at.place), 0, (), {}, 0, identity=self.identity)


@pytest.mark.parametrize("kind", ["changes", "seed"])
def test_nothing_is_carried_from_another_source_nor_under_another_number(
    kind: Literal["changes", "seed"], tmp_path: Path
) -> None:
    """Its places would mean something else where they are written: to a sink, which keeps them."""
    planner = Planner(drawn_pipeline(Random(1), tmp_path, brisk=True), "one")
    after = Position(1, 3) if kind == "changes" else None
    wave = Wave(1, kind, {}, TABLES, after, Position(1, 5))

    def planned(identity: str, generation: int) -> Window:
        source = cast("Source", Answering(identity, generation))
        return planner.window(source, wave, parallelism=1)

    assert planned("one", 1).upto == Position(1, 5)
    for other in (("two", 1), ("one", 2), ("two", 2)):
        with pytest.raises(TruecutError, match="TC2016"):
            planned(*other)


def test_an_order_says_of_which_tables_the_copies_began_empty(tmp_path: Path) -> None:
    """Where only changes are wanted: the sink tells by it why it lacks a row."""
    drawn = drawn_pipeline(Random(1), tmp_path, brisk=True)
    first, *others = drawn.tables
    pipeline = replace(drawn, tables=(replace(first, backfill="none"), *others))
    at, upto = Position(1, 3), Position(1, 5)
    asked = {table: CopyOrder("changes", Version(1, at), at, 1) for table in TABLES}
    wave = Wave(1, "changes", {pipeline.sinks[0].name: SinkOrder(1, 1, asked)}, TABLES, at, upto)
    schemas = {TableName.parse(table): TableSchema("7", ()) for table in TABLES}
    job = Planner(pipeline, "one").job(wave, Window(upto, 0, (), schemas, 0), slots=1, deadline_ms=1)
    (order,) = job.reading.orders
    assert {table: one.began_empty for table, one in order.tables.items()} == {
        TABLES[0]: True,
        TABLES[1]: False,
    }
