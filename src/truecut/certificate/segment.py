"""Segments: what an order brings to each of its copies, as files of digests, written while rows pass.

Promises: a segment is there, whole and synced, before its order commits; no second pass over the rows; memory
is bounded (rows of changes beyond SORTED_ROWS_MAX go to disk to be sorted there). The file's name is the
head of the copy's chain with this segment, so whoever knows a cursor's head finds the segment and, by what
stands in it, the one before. Files of an attempt that has no effect are orphans.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from truecut.certificate import durable
from truecut.certificate.chain import NO_HEAD, Header, canonical, chained, hash_of_hashes
from truecut.certificate.digest import Keyed
from truecut.certificate.events import SCHEMA, Events
from truecut.certificate.forms import form_of
from truecut.certificate.scope import scope_text
from truecut.failpoint import failpoint
from truecut.model.order import Order, TableOrder
from truecut.model.table import Column

EVIDENCE, SECRET = "evidence", "secret"
SORTED_ROWS_MAX = 1 << 20  # of changes in memory
GROUP_ROWS = 1 << 17
_COMPRESSION = {"place": "zstd", "seq": "zstd", "op": "zstd"}  # digests are as good as random
_PREVIOUS, _ABOUT, _COLUMNS = b"truecut.previous", b"truecut.about", b"truecut.columns"


@dataclass(frozen=True, slots=True)
class Wanted:
    """That evidence is gathered: where, and what the source is like. Travels; the folder is shared."""

    folder: str
    leaves_out: bool

    def keyed(self) -> Keyed:
        """The digests' secret, from the folder."""
        return Keyed((Path(self.folder) / SECRET).read_bytes())


def copy_folder(folder: Path, *, sink: str, table: str) -> Path:
    """Where the segments of one copy are: a name for people, and a hash that tells it from all others."""
    told = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{sink}.{table}")[:80]
    told = f"_{told}" if told[0] in ".-" else told  # names that verifiers refuse
    mark = hashlib.sha256(f"{sink}\n{table}".encode()).hexdigest()[:12]
    return folder / EVIDENCE / f"{told}-{mark}"


class SegmentWriter:
    """The segments of one order."""

    def __init__(self, wanted: Wanted, order: Order) -> None:
        self._wanted, self._order = wanted, order
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
        order, one = self._order, self._order.tables[table]
        assert one.schema is not None, "only tables that are read have rows"
        events = Events(
            self._keyed,
            scope_text(order.source_identity, table),
            one.mode,
            one.key,
            one.schema,
            order.upto.generation,
            self._wanted.leaves_out,
        )
        base = one.kind == "replace"
        after = None if base or one.expected is None else str(one.expected.at)
        told = Header(
            after,
            one.leaves.edition,
            "base" if base else "changes",
            0,
            "",
            order.sink,
            table,
            str(one.leaves.at),
        )
        begins = one.expected is None or (base and one.mode == "mirror")
        previous = NO_HEAD if begins or one.expected is None else one.expected.evidence
        folder = copy_folder(Path(self._wanted.folder), sink=order.sink, table=table)
        folder.mkdir(parents=True, exist_ok=True)
        return _Segment(events, folder, told, previous)


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
    held: list[pa.Table] = field(default_factory=list)
    held_rows: int = 0
    file: _File | None = None  # a base, or changes that are too many

    def add(self, rows: pa.Table) -> None:
        self.held.append(self.events.of(rows))
        self.held_rows += rows.num_rows
        base = self.told.kind == "base"
        if self.held_rows >= (GROUP_ROWS if base else SORTED_ROWS_MAX):
            self._write_held()

    def close(self) -> str:
        """Whole, synced, under its own name; returns its header."""
        file = self._finished()
        file.close()
        header = Header(
            self.told.after,
            self.told.edition,
            self.told.kind,
            file.rows,
            hash_of_hashes([file.sha256]),
            self.told.sink,
            self.told.table,
            self.told.upto,
        )
        failpoint("segment_written")
        durable.keep(file.path, self.folder / f"{chained(self.previous, str(header))}.parquet")
        failpoint("segment_kept")
        return str(header)

    def abandon(self) -> None:
        if self.file is not None:
            self.file.abandon()

    def _finished(self) -> _File:
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

    def _sorted(self, unsorted: _File) -> _File:
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

    def _new(self) -> _File:
        about = str(self.told).encode()
        columns = columns_text(self.events.schema.columns).encode()
        return _File(self.folder, {_PREVIOUS: self.previous.encode(), _ABOUT: about, _COLUMNS: columns})


class _File:
    """A Parquet file that is hashed as it is written."""

    def __init__(self, folder: Path, about: dict[bytes, bytes]) -> None:
        self.path = durable.unfinished(folder)
        self.rows, self.sha256 = 0, ""
        self._hashed = _Hashed(open(self.path, "xb"))  # noqa: SIM115 - closed by `close` or `abandon`
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._hashed, "w"),
            SCHEMA.with_metadata(about),
            compression=_COMPRESSION,
            use_dictionary=["op"],
            write_statistics=False,
        )

    def write(self, events: pa.Table) -> None:
        self._writer.write_table(events, row_group_size=GROUP_ROWS)
        self.rows += events.num_rows

    def close(self) -> None:
        self._writer.close()
        self._hashed.file.flush()
        os.fsync(self._hashed.file.fileno())
        self._hashed.file.close()
        self.sha256 = self._hashed.hash.hexdigest()

    def abandon(self) -> None:
        self._hashed.file.close()
        self.path.unlink(missing_ok=True)


class _Hashed:
    """A file object; everything written to it is hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash = file, hashlib.sha256()
        self.closed = False

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True


# --- finding them again ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """One that is there: its header, its file, and the heads before and after it."""

    header: Header
    file: Path
    previous: str
    head: str
    columns: str  # as `columns_text` tells them


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
    path = folder / f"{head}.parquet"
    try:
        header, previous, columns = _header_in(path)
        for before in (previous, NO_HEAD):  # an append table may have been made anew
            if chained(before, str(header)) == head:
                return Segment(header, path, before, head, columns)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    return None


def _header_in(path: Path) -> tuple[Header, str, str]:
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    about = pq.read_metadata(path)
    told = Header.parse(about.metadata[_ABOUT].decode())
    header = Header(
        told.after,
        told.edition,
        told.kind,
        about.num_rows,
        hash_of_hashes([sha256]),
        told.sink,
        told.table,
        told.upto,
    )
    return header, about.metadata[_PREVIOUS].decode(), about.metadata[_COLUMNS].decode()


def batches_of(segment: Segment) -> Iterator[pa.RecordBatch]:
    """Its events, some at a time."""
    with pq.ParquetFile(segment.file) as file:
        yield from file.iter_batches(batch_size=GROUP_ROWS)
