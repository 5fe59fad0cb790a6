"""Segments: what an order brings to each of its copies, as files of digests, written while rows pass.

Promises: a segment is there, whole and synced, before its order commits; no second pass over the rows; memory
is bounded (rows of changes beyond SORTED_ROWS_MAX go to disk to be sorted there). The file's name is the
head of the copy's chain with this segment, so whoever knows a cursor's head finds the segment and, by what
stands in it, the one before; and the other files of a base that many tasks have written (`base_pieces`).
Files of an attempt that has no effect are orphans.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from truecut.certificate import durable
from truecut.certificate.chain import NO_HEAD, Header, canonical, chained, hash_of_hashes
from truecut.certificate.digest import Keyed
from truecut.certificate.event_file import GROUP_ROWS, EventFile
from truecut.certificate.events import SCHEMA, Events
from truecut.certificate.forms import form_of
from truecut.certificate.scope import scope_text
from truecut.failpoint import failpoint
from truecut.model.order import Order, TableOrder
from truecut.model.table import Column

EVIDENCE, SECRET = "evidence", "secret"
SORTED_ROWS_MAX = 1 << 20  # of changes in memory
_PREVIOUS, _ABOUT, _COLUMNS = b"truecut.previous", b"truecut.about", b"truecut.columns"
_FILES = b"truecut.files"  # of a base that many tasks have written: what follows this one
_UNITS, _SPLICE = b"truecut.units", b"truecut.splice"  # of a base that was read in units


@dataclass(frozen=True, slots=True)
class Wanted:
    """That evidence is gathered: where, and what the source is like. Travels; the folder is shared."""

    folder: str
    leaves_out: bool

    def keyed(self) -> Keyed:
        """The digests' secret, from the folder."""
        return Keyed((Path(self.folder) / SECRET).read_bytes())


@dataclass(frozen=True, slots=True)
class Beside:
    """What a base says of the units that it was read in, as canonical JSON; and of the evidence of the
    splice, with its hash, where there is any."""

    units: str = "[]"
    splice: str = ""
    splice_sha256: str = ""


NOTHING = Beside()
Besides = Callable[[str], Beside]  # by table


def copy_folder(folder: Path, *, sink: str, table: str) -> Path:
    """Where the segments of one copy are: a name for people, and a hash that tells it from all others."""
    told = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{sink}.{table}")[:80]
    told = f"_{told}" if told[0] in ".-" else told  # names that verifiers refuse
    mark = hashlib.sha256(f"{sink}\n{table}".encode()).hexdigest()[:12]
    return folder / EVIDENCE / f"{told}-{mark}"


class SegmentWriter:
    """The segments of one order."""

    def __init__(self, wanted: Wanted, order: Order, besides: Besides = lambda _: NOTHING) -> None:
        self._wanted, self._order, self._besides = wanted, order, besides
        self._keyed = wanted.keyed()
        self._open: dict[str, _Segment] = {}

    def add(self, table: str, rows: pa.Table) -> None:
        """Some rows of a table pass."""
        if table not in self._open and _has_chain(self._order.tables[table]):
            self._open[table] = self._begin(table)
        if table in self._open:
            self._open[table].add(rows)

    def close(self) -> dict[str, str]:
        """All rows have passed: the headers, by table. A seed has a segment also when it is empty."""
        for table, wanted in self._order.tables.items():
            if wanted.kind == "replace" and wanted.schema is not None and table not in self._open:
                self._open[table] = self._begin(table)
        return {table: self._open.pop(table).close() for table in list(self._open)}

    def abandon(self) -> None:
        """Nothing will come of it."""
        for segment in self._open.values():
            segment.abandon()

    def _begin(self, table: str) -> _Segment:
        folder = copy_folder(Path(self._wanted.folder), sink=self._order.sink, table=table)
        folder.mkdir(parents=True, exist_ok=True)
        events = events_of(self._keyed, self._wanted, self._order, table)
        beside = self._besides(table)
        return _Segment(events, folder, *beginning(self._order, table, beside), beside)


def events_of(keyed: Keyed, wanted: Wanted, order: Order, table: str) -> Events:
    """How the rows of one of its tables become events."""
    one = order.tables[table]
    assert one.schema is not None, "only tables that are read have rows"
    scope, generation = scope_text(order.source_identity, table), order.upto.generation
    return Events(keyed, scope, one.mode, one.key, one.schema, generation, wanted.leaves_out)


def beginning(order: Order, table: str, beside: Beside = NOTHING) -> tuple[Header, str]:
    """A segment's header before there are rows, and the head before it."""
    one = order.tables[table]
    base = one.kind == "replace"
    after = None if base or one.expected is None else str(one.expected.at)
    kind: Literal["base", "changes"] = "base" if base else "changes"
    upto, spliced = str(one.leaves.at), beside.splice_sha256
    told = Header(after, one.leaves.edition, kind, 0, "", order.sink, table, upto, spliced)
    begins = one.expected is None or (base and one.mode == "mirror")
    return told, NO_HEAD if begins or one.expected is None else one.expected.evidence


def _has_chain(wanted: TableOrder) -> bool:
    """Changes of a copy whose chain was never begun, or has a hole, tell nothing."""
    before = wanted.expected
    return wanted.kind == "replace" or (before is not None and before.evidence != NO_HEAD)


@dataclass(slots=True)
class _Segment:
    """One copy's, on its way. A base is written as it comes; changes are sorted first."""

    events: Events
    folder: Path
    told: Header
    previous: str
    beside: Beside = NOTHING
    held: list[pa.Table] = field(default_factory=list)
    held_rows: int = 0
    file: EventFile | None = None  # a base, or changes that are too many

    def add(self, rows: pa.Table) -> None:
        self.held.append(self.events.of(rows))
        self.held_rows += rows.num_rows
        base = self.told.kind == "base"
        if self.held_rows >= (GROUP_ROWS if base else SORTED_ROWS_MAX):
            self._write_held()

    def close(self) -> str:
        """Whole, synced, under its own name; returns its header."""
        return keep_segment(self._finished(), self.told, self.previous)

    def abandon(self) -> None:
        if self.file is not None:
            self.file.abandon()

    def _finished(self) -> EventFile:
        if self.told.kind == "changes" and self.file is not None:
            self._write_held()
            return self._sorted(self.file)
        if self.held and self.told.kind == "changes":
            order = [("place", "ascending"), ("seq", "ascending")]
            self.held = [self._numbered(pa.concat_tables(self.held).sort_by(order), 0)]
        self._write_held()
        assert self.file is not None
        return self.file

    def _write_held(self) -> None:
        if self.file is None:
            self.file = self._new()
        for table in self.held:
            self.file.write(table)
        self.held, self.held_rows = [], 0

    def _sorted(self, unsorted: EventFile) -> EventFile:
        """By DuckDB, which goes to disk."""
        unsorted.close()
        file = self._new()
        with closing(duckdb.connect(config={"threads": 1, "memory_limit": "256MB"})) as connection:
            connection.execute("SET temp_directory = ?", [str(self.folder / "sorting")])
            found = connection.execute(
                "SELECT * FROM read_parquet(?) ORDER BY place, seq", [str(unsorted.path)]
            )
            for batch in found.to_arrow_reader(GROUP_ROWS):
                file.write(self._numbered(pa.Table.from_batches([batch]).cast(SCHEMA), file.rows))
        unsorted.abandon()
        return file

    def _numbered(self, events: pa.Table, first: int) -> pa.Table:
        """A source that nets its changes gives several of a place one number: here each has its own."""
        if self.events.mode == "append":  # there they are the keys
            return events
        numbers = pa.array(np.arange(first, first + events.num_rows), pa.int64())
        return events.set_column(SCHEMA.get_field_index("seq"), SCHEMA.field("seq"), numbers)

    def _new(self) -> EventFile:
        columns = self.events.schema.columns
        return EventFile(self.folder, about_segment(self.told, self.previous, columns, beside=self.beside))


def about_segment(
    told: Header,
    previous: str,
    columns: Sequence[Column],
    files: Sequence[str] = (),
    *,
    beside: Beside = NOTHING,
) -> dict[bytes, bytes]:
    """What a segment's first file says of it beside its rows. `files`: those that follow."""
    about = {
        _PREVIOUS: previous.encode(),
        _ABOUT: str(told).encode(),
        _COLUMNS: columns_text(columns).encode(),
    }
    if beside.units != NOTHING.units:
        about[_UNITS] = beside.units.encode()
    if beside.splice:
        about[_SPLICE] = beside.splice.encode()
    return about | ({_FILES: canonical(list(files)).encode()} if files else {})


def keep_segment(file: EventFile, told: Header, previous: str, more: Sequence[tuple[str, int]] = ()) -> str:
    """Its first file is written: whole, synced, under its own name; returns its header. `more`: hash and rows
    of each file that follows.

    By its head. Whether an append table is gone, or of other settings, and its chain begins anew with this
    base, is known to the sink's transaction alone: then it is found by the other name.
    """
    file.close()
    hashes = [file.sha256, *(sha256 for sha256, _ in more)]
    rows = file.rows + sum(count for _, count in more)
    header = str(replace(told, rows=rows, sha256=hash_of_hashes(hashes)))
    failpoint("segment_written")
    folder = file.path.parent
    if told.kind == "base" and previous != NO_HEAD:
        with suppress(FileExistsError):  # an attempt that had no effect has told the very same
            os.link(file.path, folder / f"{chained(NO_HEAD, header)}.parquet")
    durable.keep(file.path, folder / f"{chained(previous, header)}.parquet")
    failpoint("segment_kept")
    return header


# --- finding them again ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """One that is there: its header, its files, and the heads before and after it."""

    header: Header
    files: tuple[Path, ...]
    previous: str
    head: str
    columns: str  # as `columns_text` tells them
    beside: Beside = NOTHING


def columns_text(columns: Sequence[Column]) -> str:
    """What the digests of a row depend on: the number of each column, its form, and what old rows hold."""
    return canonical([[c.name, c.id, form_of(c.parsed), c.initial] for c in columns])


def segments_between(folder: Path, *, after: str, head: str) -> list[Segment] | None:
    """The segments that lead from one head (NO_HEAD: from the beginning) to another, in order; None where one
    of them is missing or is not what it was. `folder`: the copy's."""
    found: list[Segment] = []
    while head != after:
        segment = read_segment(folder, head)
        if segment is None:
            return None
        found.insert(0, segment)
        if segment.previous == NO_HEAD:
            return found if after == NO_HEAD or segment.header.kind == "base" else None
        head = segment.previous
    return found


def read_segment(folder: Path, head: str) -> Segment | None:
    """The segment that made this head, checked against it."""
    try:
        return _segment_in(folder, head)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None


def _segment_in(folder: Path, head: str) -> Segment | None:
    first = folder / f"{head}.parquet"
    metadata = pq.read_metadata(first).metadata
    more = [folder / Path(str(name)).name for name in json.loads(metadata.get(_FILES, b"[]"))]
    files = (first, *more)
    header = replace(
        Header.parse(metadata[_ABOUT].decode()),
        rows=sum(pq.read_metadata(file).num_rows for file in files),
        sha256=hash_of_hashes([_hash_of(file) for file in files]),
    )
    previous = metadata[_PREVIOUS].decode()
    for before in (previous, NO_HEAD):  # an append table may have been made anew
        if chained(before, str(header)) == head:
            units, splice = (metadata.get(one, b"").decode() for one in (_UNITS, _SPLICE))
            beside = Beside(units or NOTHING.units, splice, header.splice_sha256)
            return Segment(header, files, before, head, metadata[_COLUMNS].decode(), beside)
    return None


def _hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def batches_of(segment: Segment) -> Iterator[pa.RecordBatch]:
    """Its events, some at a time."""
    for path in segment.files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=GROUP_ROWS)
