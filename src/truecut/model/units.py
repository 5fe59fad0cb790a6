"""What is told of a table that was read in units: for whoever keeps evidence of it, while its rows pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.model.position import Position
from truecut.model.table import TableName


@dataclass(frozen=True, slots=True)
class UnitRead:
    """One of them: what its rows are worth."""

    snapshot: str  # as the source writes it
    lo: Position  # every transaction that committed at or before this place is seen
    hi: Position  # every transaction that is seen committed at or before this place
    rows: int


@dataclass(frozen=True, slots=True)
class UnitsRead:
    """All of one table, in the order of their ranges."""

    key: tuple[str, ...]  # the source's own
    units: Sequence[UnitRead]
    bounds: pa.RecordBatch | None  # between them, in its columns
    pages: Sequence[int]  # the same, where there is no key
    start: Position  # where the log begins that follows them
    seen: str  # the snapshot of what lies before that


@dataclass(frozen=True, slots=True)
class LoggedEvents:
    """Some events of the log behind `UnitsRead.start`, in the order of commits; of each the row after it, of
    a delete the key."""

    places: npt.NDArray[np.uint64]
    xids: npt.NDArray[np.uint64]  # 64 bits wide, of the top-level transaction
    units: npt.NDArray[np.uint32]  # in whose range the key lies
    ops: npt.NDArray[np.uint8]
    partial: npt.NDArray[np.bool_]  # values were left out
    rows: pa.RecordBatch


class Witness(Protocol):
    """Is told beside the rows that are delivered. Whatever goes wrong is raised."""

    def unit(self, table: TableName, number: int) -> None:
        """What comes next are the rows of this unit."""
        ...

    def rows(self, table: TableName, batch: pa.RecordBatch) -> None:
        """Some of the unit's rows, as they were read."""
        ...

    def events(self, table: TableName, found: LoggedEvents) -> None:
        """Some more of the log."""
        ...

    def units(self, table: TableName, read: UnitsRead, *, logged: bool) -> None:
        """How the units were read; all is told now. `logged`: so were all events of the log."""
        ...
