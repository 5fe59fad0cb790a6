"""Parts: what tasks have staged of one order, each in a process of its own, told to whoever commits it.

Rows of a large seed never meet in one process. Each piece of the reading leaves its rows at the sink's side
(a file, a table of staging) and one part, which names them. Pure: whether the parts are the whole, and
whether their keys can be seen to differ without a look at the rows. A task that runs twice leaves rows twice,
under other names; only the part of the run that succeeded gets here, so what the other one left belongs to
nobody.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from truecut.certificate.base_pieces import EventPiece
from truecut.errors import Fault, Retry, TruecutError
from truecut.model.order import Order
from truecut.sinks.copies import Stop

KEYS_AT_ONCE = 2_000_000  # keys that are compared in one pass: what bounds the memory


@dataclass(frozen=True, slots=True)
class KeySpan:
    """What is known of the keys in one place: whether each is whole and there once, and the bounds of their
    first column, where its type has an order that is Python's, too."""

    clean: bool
    least: int | str | None = None
    greatest: int | str | None = None


@dataclass(frozen=True, slots=True)
class StagedPlace:
    """Rows of one table in one place that the sink knows by this name."""

    name: str
    rows: int
    size_bytes: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class StagedTable:
    """What one piece has left of one table."""

    places: tuple[StagedPlace, ...] = ()
    absent: bool = False  # some row lacks values that the source did not send
    stop: Stop | None = None  # the sink can never take these rows

    @property
    def rows(self) -> int:
        """In all its places."""
        return sum(place.rows for place in self.places)


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the reading, staged for one sink; or why that could not be done."""

    piece: int
    tables: Mapping[str, StagedTable] = field(default_factory=dict)
    evidence: Mapping[str, EventPiece] = field(default_factory=dict)  # digests of its rows, where wanted
    fault: Fault | None = None
    late: bool = False  # the fault is that nothing was felt of it for a deadline


@dataclass(frozen=True, slots=True)
class Landing:
    """Where the tasks leave rows of an order, as the sink said before any was read: by table."""

    places: Mapping[str, str] = field(default_factory=dict)


def family(pipeline: str, sink: str) -> str:
    """Begins the names of all places in which this pipeline ever stages rows for this sink."""
    whose = "\0".join((pipeline, sink))
    return f"truecut-{_digest(whose, 6)}"


def family_of(pipeline: str, sink: str, table: str) -> str:
    """The same for one table."""
    return f"{family(pipeline, sink)}-{_digest(table, 3)}"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def place_name(first: str, order: Order, table: str, *, piece: int, nonce: str) -> str:
    """Says whose it is, of which seed, and which run of which piece has written it. 63 bytes at most."""
    return f"{first}-{order.token:x}-{order.tables[table].leaves.edition:x}-{piece:x}-{nonce}"


def is_over(name: str, first: str, *, token: int, edition: int) -> bool:
    """Whether a place of that name (`first` is its family) is of an order that can have no effect any more,
    if nobody knows it: of an older owner, or of a seed that is not after the table's `edition`. The sink
    belongs to `token`."""
    if not name.startswith(f"{first}-"):
        return False
    try:
        owner, of_seed = (int(word, 16) for word in name.split("-")[3:5])
    except ValueError:  # not a name of ours
        return False
    return owner < token or (owner == token and of_seed <= edition)


def checked(order: Order, parts: Sequence[Part], *, pieces: int) -> Sequence[Part]:
    """The parts, if they are all pieces of the reading and each is there once."""
    found = Counter(part.piece for part in parts)
    lost = pieces - len(found.keys() & set(range(pieces)))
    repeated = len(parts) - len(found)
    if lost or repeated or len(found) > pieces:
        raise TruecutError(
            "TC4161",
            f"sink {order.sink}: of the {pieces} pieces of a seed {lost} were not staged and {repeated} were "
            "told twice",
            fix="None needed: the seed is read again.",
            retry=Retry.RETRYABLE,
        )
    return parts


def counted(order: Order, parts: Sequence[Part], routed: Mapping[str, int], stops: Iterable[str]) -> None:
    """Whether every row that was read for the order was staged; of tables that stop nobody asks."""
    stopped = {*stops, *stops_of(parts)}
    for table in order.tables.keys() - stopped:
        staged = sum(part.tables[table].rows for part in parts if table in part.tables)
        if staged != routed.get(table, 0):
            raise miscounted(order.sink, table, routed.get(table, 0), staged)


def miscounted(sink: str, table: str, routed: int, staged: int) -> TruecutError:
    """Some rows were lost, or came twice, between those who read and those who write."""
    return TruecutError(
        "TC5081",
        f"sink {sink}: {routed} rows of {table} were read for it and {staged} arrived; nothing was written",
        fix="None needed, it is read again; report it if it persists.",
        retry=Retry.RETRYABLE,
    )


def lost(order: Order, table: str, *, told: int, found: int) -> TruecutError:
    """Somebody removed what was staged, or the sink's server has lost it."""
    return TruecutError(
        "TC4162",
        f"sink {order.sink}: {told} rows of {table} were staged and {found} are there",
        fix="None needed: the seed is read again. Do not remove files or tables of `_truecut` while it runs.",
        retry=Retry.RETRYABLE,
    )


def places_of(parts: Iterable[Part], table: str) -> list[StagedPlace]:
    """All places of a table."""
    found = (part.tables[table] for part in parts if table in part.tables)
    return [place for one in found for place in one.places]


def stops_of(parts: Iterable[Part]) -> dict[str, Stop]:
    """Tables whose rows the sink cannot take; the first reason counts."""
    stops: dict[str, Stop] = {}
    for part in parts:
        for table, one in part.tables.items():
            if one.stop is not None:
                stops.setdefault(table, one.stop)
    return stops


def keys_differ(spans: Sequence[KeySpan]) -> bool:
    """Whether the spans alone show that no key is there twice or has a NULL: each is clean, and they lie one
    behind another. False: one has to look."""
    if not all(span.clean for span in spans):
        return False
    if len(spans) < 2:
        return True
    bounds = [(span.least, span.greatest) for span in spans]
    if any(least is None or greatest is None for least, greatest in bounds):
        return False
    ordered: list[Any] = sorted(bounds)  # all of one type: of one column
    return all(one[1] < other[0] for one, other in pairwise(ordered))


def passes(rows: int) -> int:
    """In how many shares so many keys are compared."""
    return max(1, -(-rows // KEYS_AT_ONCE))
