"""A lake as `plan` and `doctor` see it: whether tables can be copied, how large they are.

Metadata only, but for the keys, which are counted. Read-only; a SQLite catalog is left as it was found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from truecut.errors import Fault, TruecutError
from truecut.lake import LakeAddress, identifier, without_trace
from truecut.model.finding import Check, Finding
from truecut.model.position import Position
from truecut.model.table import TableName
from truecut.object_store import is_remote
from truecut.patience import patiently
from truecut.sources.contract import Observation, Outstanding, TableFacts, TableRead
from truecut.sources.ducklake import catalog, files
from truecut.sources.ducklake.attach import attached, connection
from truecut.sources.ducklake.source import DuckLakeSource

_WAL_HEADER = b"\x02\x02"  # bytes 18 and 19 of a SQLite file in write-ahead mode

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class DuckLakeSurvey:
    """One lake, looked at."""

    address: LakeAddress
    generation: int

    def observe(self) -> Observation:
        """Identity and bounds of the history."""
        return self._ask(DuckLakeSource(self.address, generation=self.generation).observe)

    def check(self, seen: Observation) -> Check:
        """A catalog whose readers make its writers wait, and files that are not where they shall be."""
        findings = [] if self._is_wal() else [Finding("source", _rollback_journal(self.address), "warning")]
        findings += self._ask(self._astray)
        return Check(
            "source", f"{self.address}, snapshots {seen.oldest.place} to {seen.head.place}", findings
        )

    def facts(self, table: TableRead, seen: Observation) -> TableFacts | Fault:
        """Rows and bytes at the head."""
        return self._ask(lambda: self._facts(table, seen))

    def outstanding(self, table: TableName, *, after: Position, seen: Observation) -> Outstanding:
        """What the snapshots after a position hold."""
        return self._ask(lambda: self._since(table, after.place, seen.head.place))

    def commits(self, *, after: Position, seen: Observation) -> Sequence[tuple[Position, int]]:
        """One for each snapshot."""
        return self._ask(lambda: self._commits(after.place, seen.head))

    def key_counts(self, table: TableRead, seen: Observation) -> tuple[int, int]:
        """NULL keys, and keys that occur more than once."""
        return self._ask(lambda: self._key_counts(table, seen.head.place))

    # --- leaves ---------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        with without_trace(self.address):
            return patiently(question)

    def _is_wal(self) -> bool:
        if self.address.kind != "sqlite" or self.address.is_missing:
            return True
        with open(self.address.target.reveal(), "rb") as stream:
            return stream.read(20)[18:] == _WAL_HEADER

    def _astray(self) -> list[Finding]:
        with connection() as own, attached(self.address, own) as lake:
            told, has_files = catalog.data_path(lake)
        path = self.address.data_path or told
        if not path or is_remote(path):
            return []
        folder = Path.cwd() / path
        if has_files and not folder.is_dir():
            return [Finding("source", _elsewhere(self.address, folder))]
        relative = self.address.data_path is None and not os.path.isabs(told)
        return [Finding("source", _depends(self.address, told, folder), "warning")] if relative else []

    def _facts(self, table: TableRead, seen: Observation) -> TableFacts | Fault:
        at = seen.head.place
        with connection() as own, attached(self.address, own) as lake:
            try:
                DuckLakeSource(self.address, generation=self.generation).describe(table, at=seen.head)
            except TruecutError as error:
                return error.fault
            version = catalog.covering(catalog.table_versions(lake, table.name), at)
            assert version is not None, "described, so it is there"
            rows = files.live_rows(lake, version.id, at=at)
            size = sum(size for _, size in files.data_files(lake, table.name, at=at))
        return TableFacts(rows, size)

    def _since(self, table: TableName, after: int, upto: int) -> Outstanding:
        with connection() as own, attached(self.address, own) as lake:
            passed = [s for s in catalog.snapshots(lake, after=after) if s.id <= upto]
            version = catalog.covering(catalog.table_versions(lake, table), upto)
            weights = [] if version is None else files.weights(lake, version.id, after=after, upto=upto)
        return Outstanding(len(passed), sum(w.rows for w in weights), sum(w.size_bytes for w in weights))

    def _commits(self, after: int, head: Position) -> list[tuple[Position, int]]:
        with connection() as own, attached(self.address, own) as lake:
            times = catalog.commit_times(lake, after=after, upto=head.place)
        return [(Position(head.generation, place), at_ms) for place, at_ms in times]

    def _key_counts(self, table: TableRead, at: int) -> tuple[int, int]:
        key = ", ".join(identifier(name) for name in table.key)
        any_null = " OR ".join(f"{identifier(name)} IS NULL" for name in table.key)
        with connection() as own, attached(self.address, own) as lake:
            parts = (lake.alias, table.name.schema, table.name.table)
            rows = f"{'.'.join(identifier(part) for part in parts)} AT (VERSION => {at})"
            counts = own.execute(
                f"""SELECT (SELECT count(*) FROM {rows} WHERE {any_null}),
                           (SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE NOT ({any_null})
                                                  GROUP BY {key} HAVING count(*) > 1))"""
            ).fetchone()
        assert counts is not None
        return int(counts[0]), int(counts[1])


def _elsewhere(address: LakeAddress, folder: Path) -> Fault:
    return Fault(
        "TC2025",
        f"source {address}: its files were looked for in {folder}, and there is no such folder",
        "Say where they are with spec.source.data_path.",
    )


def _depends(address: LakeAddress, told: str, folder: Path) -> Fault:
    return Fault(
        "TC2026",
        f"source {address}: its catalog says {told!r} for the folder of its files: from here {folder}",
        "Write it out as spec.source.data_path, so that it does not depend on where truecut is started.",
    )


def _rollback_journal(address: LakeAddress) -> Fault:
    return Fault(
        "TC2020",
        f"source {address}: SQLite without a write-ahead log; its readers make its writers wait",
        "Run `PRAGMA journal_mode=WAL` on the catalog once, or attach it with META_JOURNAL_MODE 'WAL'.",
    )
