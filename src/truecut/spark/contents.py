"""The sides of a comparison: a source's table at a position, a copy at a sink. Each row becomes its digests.

A source's rows are read once for all copies of the table that stand at that position, and routed as a wave
routes them: each copy gets its own share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from truecut.certificate.digest import Keyed, Rows
from truecut.certificate.scope import Scope
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
