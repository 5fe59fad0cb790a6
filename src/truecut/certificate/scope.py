"""What digests are taken of: a table's scope, key and columns, as docs/certificate-format.md names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from truecut.certificate.digest import Keyed, Rows, digest_rows
from truecut.certificate.events import OP_COLUMN, UNCHANGED_COLUMN
from truecut.model.change import OP, POSITION, SEQ, UNCHANGED
from truecut.model.table import Column, Mode

# Columns of an append table that are evidence; times and transactions are information.
_APPENDED = {
    POSITION: (0, "VARCHAR"),
    SEQ: (0, "VARCHAR"),
    OP: (OP_COLUMN, "VARCHAR"),
    UNCHANGED: (UNCHANGED_COLUMN, "VARCHAR[]"),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """One table of one source, with columns by name: a lasting number and a type each."""

    text: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, int, str], ...]

    def digest(self, keyed: Keyed, rows: pa.Table) -> Rows:
        """The digests of rows that have these columns."""
        columns = {name: (number, kind) for name, number, kind in self.columns}
        return digest_rows(keyed, rows, scope=self.text, key=self.key, columns=columns)


def scope_text(identity: str, table: str) -> str:
    """What digests of a table are bound to."""
    return f"{identity}\n{table}"


def scope_of(
    identity: str, table: str, columns: Sequence[Column], *, key: Sequence[str], mode: Mode
) -> Scope:
    """A copy's: that of a mirror is its source table's own."""
    own = tuple((column.name, column.id, column.type) for column in columns)
    text = scope_text(identity, table)
    if mode == "mirror":
        return Scope(text, tuple(sorted(key)), own)
    return Scope(text, (POSITION, SEQ), (*((name, *told) for name, told in _APPENDED.items()), *own))
