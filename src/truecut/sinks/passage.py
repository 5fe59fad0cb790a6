"""What passes between reading and commit: rows are counted, and told to whoever gathers evidence.

Promises: an order commits only with every row that was routed to it; what is missing or too much is a
receipt that says so, and the sink has not been touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from truecut.certificate import base_pieces
from truecut.certificate.base_pieces import PieceEvidence
from truecut.certificate.segment import NOTHING, Besides, SegmentWriter, Wanted
from truecut.errors import Retry, TruecutError
from truecut.model.order import Order
from truecut.sinks.contract import Packet
from truecut.sinks.parts import Part, miscounted, stops_of


@dataclass(slots=True)
class Passage:
    """One order's. `routed`: rows by table, as those say who read them; None where nobody counts."""

    order: Order
    routed: Mapping[str, int] | None = None
    segments: SegmentWriter | None = None
    staged: Counter[str] = field(default_factory=Counter)

    def watched(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        """The same packets."""
        for packet in packets:
            if packet.rows is not None:
                self.staged[packet.table] += packet.rows.num_rows
                self._digest(packet)
            yield packet

    def settled(self) -> Order:
        """All have passed: the order with what is known of its rows; raises where it must not commit."""
        if self.routed is not None and +Counter(self.routed) != +self.staged:
            table = next(iter((+Counter(self.routed) - self.staged) or (self.staged - Counter(self.routed))))
            raise miscounted(self.order.sink, table, self.routed.get(table, 0), self.staged[table])
        if self.segments is None:
            return self.order
        with _keeping(self.order.sink):
            headers = self.segments.close()
        tables = {
            name: replace(one, evidence=headers.get(name, "")) for name, one in self.order.tables.items()
        }
        return replace(self.order, tables=tables)

    def close(self) -> None:
        """Committed or not."""
        if self.segments is not None:
            self.segments.abandon()

    def _digest(self, packet: Packet) -> None:
        if self.segments is None or packet.rows is None or not packet.rows.num_rows:
            return
        with _keeping(self.order.sink):
            self.segments.add(packet.table, packet.rows)


def staged_with_evidence(
    order: Order, wanted: Wanted, stage: Callable[[Iterator[Packet]], Part], packets: Iterator[Packet]
) -> Part:
    """One piece of a seed that many tasks read: what `stage` tells of it, and digests of the same rows."""
    with _keeping(order.sink):
        evidence = PieceEvidence(wanted, order)

    def watched() -> Iterator[Packet]:
        for packet in packets:
            if packet.rows is not None and packet.rows.num_rows:
                with _keeping(order.sink):
                    evidence.add(packet.table, packet.rows)
            yield packet

    with closing(evidence):
        part = stage(watched())
        with _keeping(order.sink):
            return replace(part, evidence=evidence.finish())


def settled_of_parts(
    order: Order,
    wanted: Wanted,
    parts: Sequence[Part],
    stops: Iterable[str] = (),
    besides: Besides = lambda _: NOTHING,
) -> Order:
    """The same at the end: the order with the headers of what all pieces had; raises where a piece tells
    digests of other rows than it has staged. A table that stops is committed without rows."""
    stopped = {*stops, *stops_of(parts)}
    for part in parts:
        for table in part.tables.keys() | part.evidence.keys():
            staged = part.tables[table].rows if table in part.tables else 0
            told = part.evidence[table].rows if table in part.evidence else 0
            if told != staged and table not in stopped:
                raise miscounted(order.sink, table, staged, told)
    pieces = {
        table: [part.evidence[table] for part in parts if table in part.evidence]
        for table in order.tables.keys() - stopped
    }
    with _keeping(order.sink):
        headers = base_pieces.told(wanted, order, pieces, besides)
    tables = {name: replace(one, evidence=headers.get(name, "")) for name, one in order.tables.items()}
    return replace(order, tables=tables)


@contextmanager
def _keeping(sink: str) -> Iterator[None]:
    """Evidence is written."""
    try:
        yield
    except OSError as error:
        raise not_kept(sink, error) from error


def not_kept(sink: str, error: OSError) -> TruecutError:
    """The certificates' folder is gone, full, or closed to us."""
    return TruecutError(
        "TC7001",
        f"sink {sink}: evidence cannot be written ({error.strerror}); nothing was changed there",
        fix="Check the certificates' folder: its room, and that this machine may write there.",
        retry=Retry.RETRYABLE,
    )
