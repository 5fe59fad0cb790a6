"""The sides of a comparison: a source's table at a position, a copy at a sink. Each row becomes its digests.

A source's rows are read once for all copies of the table that stand at that position, and routed as a wave
routes them: each copy gets its own share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecut.certificate.digest import Blocks, Keyed, Rows
from truecut.certificate.scope import Scope
from truecut.model.change import CONTROL_FIELDS, CONTROL_NAMES, DELETE, INSERT, PREFIX
from truecut.sinks.contract import PinnedRead
from truecut.sources.contract import ReadTask
from truecut.spark.comparison import Side
from truecut.spark.wave.route import TableRoute, route


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """Some rows of a table at the source. Of `routes`, the sinks are sides."""

    task: ReadTask
    scope: Scope
    routes: TableRoute

    @property
    def sides(self) -> tuple[Side, ...]:
        """All copies of the table."""
        return self.routes.sinks

    def digests(self, keyed: Keyed) -> Iterator[tuple[Side, Rows]]:
        """By route."""
        for _, batch in self.task.read():
            last: tuple[pa.Table, Rows] | None = None
            for side, rows in route(pa.Table.from_batches([batch]), self.routes).shares:
                if last is None or last[0] is not rows:  # those that get the same rows share their digests
                    last = rows, self.scope.digest(keyed, rows)
                yield side, last[1]

    def keys(self, keyed: Keyed, wanted: Collection[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Whatever the route."""
        for _, batch in self.task.read():
            yield from _found(self.scope, keyed, pa.Table.from_batches([batch]), wanted)

    def repairs(
        self, keyed: Keyed, wanted: Collection[bytes], *, place: int
    ) -> Iterator[tuple[Side, pa.Table]]:
        """Inserts, by route."""
        for _, batch in self.task.read():
            whole = pa.Table.from_batches([batch])
            chosen = whole.filter(pa.array(_among(self.scope.digest(keyed, whole).keys, wanted)))
            for side, rows in route(chosen, self.routes).shares if chosen.num_rows else ():
                yield side, _changes(INSERT, 1, rows, rows.column_names, place=place)


@dataclass(frozen=True, slots=True)
class SinkPiece:
    """Some rows of a copy, as the sink has them."""

    content: PinnedRead
    scope: Scope
    side: Side

    @property
    def sides(self) -> tuple[Side, ...]:
        """The copy's."""
        return (self.side,)

    def digests(self, keyed: Keyed) -> Iterator[tuple[Side, Rows]]:
        """Batch by batch."""
        for batch in self.content.read():
            yield self.side, self.scope.digest(keyed, pa.Table.from_batches([batch]))

    def keys(self, keyed: Keyed, wanted: Collection[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Batch by batch."""
        for batch in self.content.read():
            yield from _found(self.scope, keyed, pa.Table.from_batches([batch]), wanted)

    def repairs(
        self, keyed: Keyed, wanted: Collection[bytes], *, place: int
    ) -> Iterator[tuple[Side, pa.Table]]:
        """Deletes, one for each key: all rows of a key are in one piece."""
        gone: set[bytes] = set()
        for batch in self.content.read():
            whole = pa.Table.from_batches([batch])
            digests = self.scope.digest(keyed, whole).keys
            mask = _among(digests, wanted)
            for number in np.flatnonzero(mask):
                key = digests[number].tobytes()
                mask[number] = key not in gone
                gone.add(key)
            if mask.any():
                chosen = whole.filter(pa.array(mask))
                yield self.side, _changes(DELETE, 0, chosen, self.scope.key, place=place)


def _among(digests: Blocks, wanted: Collection[bytes]) -> npt.NDArray[np.bool_]:
    """Which of them are wanted: few are, so most are ruled out by half of their bytes."""
    halves = np.ascontiguousarray(digests).view(np.uint64)[:, 0]
    asked = np.frombuffer(b"".join(wanted), np.uint64)[::2]
    mask = np.isin(halves, asked)
    for number in np.flatnonzero(mask):
        mask[number] = digests[number].tobytes() in wanted
    return mask


def _changes(op: int, seq: int, rows: pa.Table, names: Sequence[str], *, place: int) -> pa.Table:
    """One change for each row; only the columns of these names have their values."""
    count = rows.num_rows
    control = (
        np.full(count, op, np.uint8),
        np.full(count, place, np.uint64),
        np.full(count, seq, np.int64),
        pa.nulls(count, CONTROL_FIELDS[3].type),
    )
    own = [field for field in rows.schema if not field.name.startswith(PREFIX)]
    values = [
        rows.column(field.name) if field.name in names else pa.nulls(count, field.type) for field in own
    ]
    return pa.table(
        [*map(pa.array, control), *values], names=[*CONTROL_NAMES, *(field.name for field in own)]
    )


def _found(
    scope: Scope, keyed: Keyed, rows: pa.Table, wanted: Collection[bytes]
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    digests = scope.digest(keyed, rows).keys
    whole = digests.tobytes()
    for number in range(len(digests)):
        digest = whole[16 * number : 16 * number + 16]
        if digest in wanted:
            yield digest, {name: _told(rows.column(name)[number]) for name in scope.key}


def _told(value: pa.Scalar) -> Any:
    """As JSON has it; what JSON has not, as text."""
    plain = value.as_py()
    return plain if isinstance(plain, bool | int | str) or plain is None else str(plain)
