"""What passes between reading and commit: rows are counted, and told to whoever gathers evidence.

Promises: an order commits only with every row that was routed to it; what is missing or too much is a
receipt that says so, and the sink has not been touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from truecut.certificate.segment import SegmentWriter
from truecut.errors import Retry, TruecutError
from truecut.model.order import Order
from truecut.sinks.contract import Packet
from truecut.sinks.parts import miscounted


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
        try:
            headers = self.segments.close()
        except OSError as error:
            raise not_kept(self.order.sink, error) from error
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
        try:
            self.segments.add(packet.table, packet.rows)
        except OSError as error:
            raise not_kept(self.order.sink, error) from error


def not_kept(sink: str, error: OSError) -> TruecutError:
    """The certificates' folder is gone, full, or closed to us."""
    return TruecutError(
        "TC7001",
        f"sink {sink}: evidence cannot be written ({error.strerror}); nothing was changed there",
        fix="Check the certificates' folder: its room, and that this machine may write there.",
        retry=Retry.RETRYABLE,
    )
