"""A PostgreSQL captured into a journal, and certificates of what its windows give: all by the real parts but
for Spark and sinks. Between capture and delivery a test may bend the journal.

Two copies of each table begin empty: a mirror at `lake`, an append table at `log`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sources.postgres.piped import Piped, pipeline_document
from truecut.certificate.chain import canonical, chained
from truecut.certificate.events import append_columns
from truecut.certificate.folding import Folding, Target
from truecut.certificate.forms import form_of
from truecut.certificate.issue import Issued, issue
from truecut.certificate.scope import scope_text
from truecut.certificate.segment import SegmentWriter, Wanted, columns_text
from truecut.certificate.sign import signer
from truecut.journal.local import LocalJournal
from truecut.journal.opening import journal_of
from truecut.journal.reader import LocalReader
from truecut.journal.record import Kind, Record
from truecut.model.change import POSITION, SEQ
from truecut.model.cursor import Version
from truecut.model.order import Order, OrderKind, TableOrder
from truecut.model.position import Position
from truecut.model.table import Mode, TableName, TableSchema
from truecut.model.types import parse
from truecut.runtime.checked import Checked
from truecut.runtime.witness import checked
from truecut.sources.contract import TableRead
from truecut.sources.postgres import framing

SLOT = "witness"
SINKS: dict[str, Mode] = {"lake": "mirror", "log": "append"}
Bend = Callable[[list[bytes]], list[bytes]]


@dataclass
class OneCopy:
    """Where one copy stands."""

    table: TableName
    sink: str
    edition: int = 0
    head: str = ""
    at: Position | None = None
    schema: TableSchema | None = None

    @property
    def mode(self) -> Mode:
        return SINKS[self.sink]


@dataclass
class Witnessed:
    """One pipeline; nothing is written to a sink."""

    folder: Path
    conninfo: str
    tables: tuple[str, ...]
    certificate: dict[str, Any] = field(default_factory=lambda: {"witness": SLOT})
    issued: Issued = field(default_factory=Issued)

    def __post_init__(self) -> None:
        names = [{"name": f"public.{table}", "backfill": "none"} for table in self.tables]
        document = pipeline_document(
            "witnessed", self.conninfo, names, certificate={"path": "certificates", **self.certificate}
        )
        self.shop = Piped(self.folder, self.conninfo, document)
        self.copies = [
            OneCopy(TableName("public", table), sink) for table in self.tables for sink in sorted(SINKS)
        ]

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    def begin(self) -> None:
        """Captured from here on; every copy is empty."""
        self.shop.capture()
        source = self.shop.source_seen()
        at = self.shop.begin(source)
        for copy in self.copies:
            self._order(copy, "replace", at, source.describe(self._read(copy), at=at), [])
        self._certify()

    def deliver(self, bend: Bend | None = None) -> None:
        """What has committed by now, and a certificate of it."""
        self.shop.capture()
        if bend is not None:
            bend_journal(Path(str(journal_of(self.shop.pipeline().source).folder)), bend)
        source = self.shop.source_seen()
        head = source.observe().head
        for sink, mode in SINKS.items():
            copies = {copy.table: copy for copy in self.copies if copy.sink == sink}
            (after,) = {copy.at for copy in copies.values()}
            assert after is not None
            window = self.shop.window(source, after, head, modes=frozenset({mode}))
            rows: dict[TableName, list[pa.Table]] = {}
            for task in window.tasks:
                for name, batch in task.read():
                    rows.setdefault(name, []).append(pa.Table.from_batches([batch]))
            for name, copy in copies.items():
                if name in rows:
                    self._order(copy, "changes", head, window.schemas[name], rows[name])
                copy.at = head
        self._certify()

    def verified(self, *, whole: bool = True) -> dict[tuple[str, str], Checked]:
        """V3 of each copy; the levels below have passed."""
        found = checked(self.shop.pipeline(), whole=whole)
        assert {one.verdict for one in found if one.level != "V3"} == {"pass"}, found
        return {(one.table.removeprefix("public."), one.sink): one for one in found if one.level == "V3"}

    def _read(self, copy: OneCopy) -> TableRead:
        return self.shop.reads(frozenset({copy.mode}))[copy.table][0]

    def _order(
        self, copy: OneCopy, kind: OrderKind, upto: Position, schema: TableSchema, rows: list[pa.Table]
    ) -> None:
        """As a sink's commit would leave it."""
        before = None if copy.at is None else Version(copy.edition, copy.at, evidence=copy.head)
        copy.edition += kind == "replace"
        key = self._read(copy).key
        wanted = TableOrder(kind, copy.mode, key, schema, before, Version(copy.edition, upto))
        order = Order(copy.sink, 1, 1, upto, self._identity(), {str(copy.table): wanted})
        signer(self.certificates)  # makes the secret
        writer = SegmentWriter(Wanted(str(self.certificates), leaves_out=True), order)
        for part in rows:
            writer.add(str(copy.table), part)
        (header,) = writer.close().values()
        copy.head, copy.at, copy.schema = chained(copy.head, header), upto, schema

    def _identity(self) -> str:
        return self.shop.source_seen().observe().identity

    def _certify(self) -> None:
        rows = [self._claim(copy) for copy in self.copies]
        issued = issue(
            self.certificates,
            signer(self.certificates),
            before=self.issued,
            pipeline="witnessed",
            source={"type": "postgres", "identity": self._identity()},
            captured=True,
            copies=rows,
            issued_at="2026-01-01T00:00:00Z",
        )
        assert issued is not None
        self.issued = issued

    def _claim(self, copy: OneCopy) -> dict[str, Any]:
        assert copy.schema is not None
        table, append = str(copy.table), copy.mode == "append"
        before = self.issued.copies.get((table, copy.sink))
        since = "" if before is None else str(before["evidence"])
        columns = columns_text(copy.schema.columns)
        target = Target(table, copy.sink, copy.mode, copy.edition, str(copy.at), copy.head, columns, since)
        claim = Folding(str(self.certificates), target).run()
        own = {column.name: (column.id, column.type) for column in copy.schema.columns}
        told = append_columns(copy.schema) if append else own
        return {
            "table": table,
            "sink": copy.sink,
            "mode": copy.mode,
            "route": None,
            "scope": scope_text(self._identity(), table),
            "key": canonical([POSITION, SEQ] if append else sorted(self._read(copy).key)),
            "columns": canonical(
                [[name, number, form_of(parse(kind))] for name, (number, kind) in told.items()]
            ),
            "edition": copy.edition,
            "at": str(copy.at),
            "source_at": "",
            "verdict": claim.verdict,
            "reason": claim.reason,
            "rows": claim.rows,
            "root": claim.root,
            "evidence": copy.head,
            "segments": canonical(list(claim.segments)),
            "units": "[]",
            "sink_version": "",
        }


def bend_journal(folder: Path, bend: Bend) -> None:
    """Its messages as `bend` leaves them, written anew: every checksum is that of what stands there now."""
    with_bent = [_bent(entry.record, bend) for entry in LocalReader(folder).read(after=None)]
    draft = folder.with_name("bent")
    journal = LocalJournal(draft)
    for record in with_bent:
        journal.append([record])
    journal.close()
    shutil.rmtree(folder)
    draft.rename(folder)


def _bent(record: Record, bend: Bend) -> Record:
    if record.kind is not Kind.CHANGES:
        return record
    payload = framing.encode(bend(list(_messages(record.payload))))
    return Record(
        payload,
        record.kind,
        record.codec,
        record.generation,
        record.schemas,
        record.part,
        record.last,
        record.rows,
        record.source_position,
    )


def _messages(payload: bytes) -> Iterator[bytes]:
    offsets, data = framing.decode(payload)
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield data[start:end]
