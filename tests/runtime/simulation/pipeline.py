"""The pipelines of the lives: two tables, a few sinks, short leases and deadlines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

from truecut.config.secret import Secret
from truecut.config.settings import (
    BatchSettings,
    Pipeline,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)
from truecut.lake import parse_address
from truecut.model.table import Mode, TableName

TABLES = ("main.t", "main.u")
LEASE_MS = 8_000
DEADLINE_MS = 15_000


def drawn_pipeline(rng: random.Random, state: Path, *, brisk: bool) -> Pipeline:
    """One table is routed, the other is routed or goes to everybody; modes by chance. `brisk`: a backlog is
    gone at once."""
    rows_max, interval_ms = rng.choice([2, 5, 100]), rng.choice([1_000, 2_000])
    nowhere = parse_address("nowhere.ducklake", None, base=Path("/"))
    broadcast = {TABLES[0]: False, TABLES[1]: rng.random() < 0.4}
    names = ["a", "b", "c", "d"][: rng.randint(2, 4)]
    return Pipeline(
        name="p",
        path=state / "pipeline.yaml",
        source=SourceSettings("ducklake", nowhere),
        tables=tuple(
            TableSettings(TableName.parse(table), ("id",), "tenant", broadcast[table], "count", _on_gap(rng))
            for table in TABLES
        ),
        sinks=tuple(
            SinkSettings(
                name,
                "ducklake",
                parse_address(f"{name}.ducklake", None, base=Path("/")),
                None if name == "d" else name,
                "refuse",
                {t: _mode(rng) for t in TABLES},
            )
            for name in names
        ),
        batch=BatchSettings(
            100 if brisk else rows_max, 1 << 30, 1_000 if brisk else interval_ms, DEADLINE_MS
        ),
        lease_ms=LEASE_MS,
        control=Secret("none"),
        state=state,
        spark=SparkSettings(None, {}),
    )


def _on_gap(rng: random.Random) -> Literal["backfill", "stop"]:
    return "stop" if rng.random() < 0.3 else "backfill"


def _mode(rng: random.Random) -> Mode:
    return "append" if rng.random() < 0.3 else "mirror"
