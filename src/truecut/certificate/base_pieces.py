"""A base that many tasks read: each writes the digests of its rows to files of its own, while they pass.

`PieceEvidence` is a task's side. `told` is the side of whoever commits: the files get their names, and the
segment's first file, which has no rows, says which they are. A task that runs twice leaves files twice, under
other names; only those of the run that succeeded are named, the others stay unfinished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from truecut.certificate import durable
from truecut.certificate.event_file import GROUP_ROWS, EventFile
from truecut.certificate.events import Events
from truecut.certificate.segment import (
    NOTHING,
    Beside,
    Besides,
    Wanted,
    about_segment,
    beginning,
    copy_folder,
    events_of,
    keep_segment,
)
from truecut.failpoint import failpoint
from truecut.model.order import Order

PIECE = ".piece.parquet"


@dataclass(frozen=True, slots=True)
class EventPiece:
    """A file that one task has written, whole and synced; `name` is still an unfinished one."""

    name: str
    rows: int
    sha256: str


class PieceEvidence:
    """One piece of the reading, for one order."""

    def __init__(self, wanted: Wanted, order: Order) -> None:
        self._wanted, self._order = wanted, order
        self._keyed = wanted.keyed()
        self._open: dict[str, _Open] = {}

    def add(self, table: str, rows: pa.Table) -> None:
        """Some rows of a table pass."""
        if table not in self._open:
            folder = _folder(self._wanted, self._order, table)
            folder.mkdir(parents=True, exist_ok=True)
            events = events_of(self._keyed, self._wanted, self._order, table)
            self._open[table] = _Open(events, EventFile(folder, {}), [])
        self._open[table].add(rows)

    def finish(self) -> dict[str, EventPiece]:
        """All rows have passed: the files by table."""
        found: dict[str, EventPiece] = {}
        for table, one in self._open.items():
            one.write()
            one.file.close()
            found[table] = EventPiece(one.file.path.name, one.file.rows, one.file.sha256)
        self._open = {}
        return found

    def close(self) -> None:
        """What was not finished is taken away."""
        for one in self._open.values():
            one.file.abandon()


@dataclass(slots=True)
class _Open:
    events: Events
    file: EventFile
    held: list[pa.Table]

    def add(self, rows: pa.Table) -> None:
        self.held.append(self.events.of(rows))
        if sum(one.num_rows for one in self.held) >= GROUP_ROWS:
            self.write()

    def write(self) -> None:
        if self.held:
            self.file.write(pa.concat_tables(self.held))
        self.held = []


def told(
    wanted: Wanted,
    order: Order,
    pieces: Mapping[str, Iterable[EventPiece]],
    besides: Besides = lambda _: NOTHING,
) -> dict[str, str]:
    """The headers of the bases among these tables; one without pieces has no rows."""
    bases = [name for name, one in order.tables.items() if one.kind == "replace" and one.schema is not None]
    return {
        table: _base(wanted, order, table, list(pieces[table]), besides(table))
        for table in bases
        if table in pieces
    }


def _base(wanted: Wanted, order: Order, table: str, pieces: list[EventPiece], beside: Beside) -> str:
    folder = _folder(wanted, order, table)
    folder.mkdir(parents=True, exist_ok=True)
    names = [_keep(folder, piece) for piece in pieces]
    durable.sync_folder(folder)
    failpoint("base_pieces_kept")
    schema = order.tables[table].schema
    assert schema is not None
    header, previous = beginning(order, table, beside)
    first = EventFile(folder, about_segment(header, previous, schema.columns, names, beside=beside))
    return keep_segment(first, header, previous, [(piece.sha256, piece.rows) for piece in pieces])


def _keep(folder: Path, piece: EventPiece) -> str:
    """Its own name. The order may run twice, also at the same time: somebody else may have given it."""
    name = piece.name.removesuffix(durable.UNFINISHED) + PIECE
    try:
        (folder / name).hardlink_to(folder / piece.name)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if not (folder / name).exists():
            raise
    with suppress(FileNotFoundError):
        (folder / piece.name).unlink()
    return name


def _folder(wanted: Wanted, order: Order, table: str) -> Path:
    return copy_folder(Path(wanted.folder), sink=order.sink, table=table)
