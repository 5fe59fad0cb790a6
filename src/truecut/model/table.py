"""Names and schemas of tables, as they travel from a source to its sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["mirror", "append"]


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """`schema.table`, split at the first dot."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`main.events` → schema main, table events; ValueError without both parts."""
        schema, dot, table = text.partition(".")
        if not (schema and dot and table):
            raise ValueError(f"not a table name: {text!r}; expected schema.table")
        return cls(schema, table)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `id` is the source's own lasting id: a rename keeps it, a re-creation does not.

    `initial` is what rows written before the column existed hold (SQL literal text; None means NULL).
    """

    id: int
    name: str
    type: str  # DuckDB's spelling, e.g. DECIMAL(10,2)
    initial: str | None = None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns at one position. `id` changes when the table is dropped and created anew."""

    id: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in the source's order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """The column of that name, if there is one."""
        return next((column for column in self.columns if column.name == name), None)
