"""A lake read once more: time travel reads any version that its history still has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from truecut.model.position import Position
from truecut.sources.contract import TableRead, Window
from truecut.sources.ducklake.source import DuckLakeSource


@dataclass(frozen=True, slots=True)
class LakeReread:
    """Versions of one lake."""

    source: DuckLakeSource
    identity: str
    frontier: Position | None = None

    def plan(self, table: TableRead, *, at: Position, parallelism: int) -> Window:
        """As a seed would read it."""
        return self.source.plan_seed([table], at=at, parallelism=parallelism)


@contextmanager
def reread(source: DuckLakeSource) -> Iterator[LakeReread]:
    """Nothing has to be held."""
    yield LakeReread(source, source.observe().identity)
