"""Names and schemas of tables, as they travel from a source to its sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from truecut.model.types import Kind, Type, parse

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
    `parts` are those of a nested column, with ids of their own: a struct's fields, a list's element, a
    map's key and value. `untold`: old rows may hold something else, which nobody knows: such a column cannot
    be added to a copy. `native` is the source's own type, with its dialect in front (`postgres:numeric`),
    where the neutral one does not say all: a sink that speaks the dialect may use it.
    """

    id: int
    name: str
    type: str  # in the grammar of `model.types`, e.g. DECIMAL(10,2)
    initial: str | None = None
    parts: tuple[Column, ...] = ()
    native: str = ""
    untold: bool = field(default=False, compare=False)

    @property
    def parsed(self) -> Type:
        """Its type, taken apart."""
        return parse(self.type)

    @property
    def kind(self) -> Kind:
        """How its parts make a value."""
        return self.parsed.kind

    def to_list(self) -> list[Any]:
        """As a cursor keeps it."""
        parts = [part.to_list() for part in self.parts]
        return [self.id, self.name, self.type, self.initial, parts, self.native]

    @classmethod
    def from_list(cls, data: list[Any]) -> Column:
        """Read what `to_list` wrote."""
        number, name, kind, initial, parts, native = data
        return cls(number, name, kind, initial, tuple(cls.from_list(part) for part in parts), native)


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
