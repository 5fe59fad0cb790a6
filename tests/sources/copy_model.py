"""The oracle: what a pile of changes means, in plain dictionaries. Strict about every precondition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from truecut.model.change import DELETE, INSERT, OP, PLACE, READ, SEQ, UPDATE

Row = tuple[Any, ...]


class CopyModel:
    """One table as its sinks would hold it: for each route, rows by key."""

    def __init__(self, *, key: Sequence[str], route_by: str | None) -> None:
        self._key = tuple(key)
        self._route_by = route_by
        self.routes: dict[Any, dict[Row, Row]] = {}
        self.columns: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Everything, whatever its route."""
        return [row for rows in self.routes.values() for row in rows.values()]

    def evolve(self, columns: Sequence[tuple[str, Any]]) -> None:
        """The table now has these columns; rows held get the initial value of those that are new."""
        old = {name: place for place, name in enumerate(self.columns)}
        for rows in self.routes.values():
            for key, row in rows.items():
                rows[key] = tuple(row[old[n]] if n in old else initial for n, initial in columns)
        self.columns = tuple(name for name, _ in columns)

    def apply(self, changes: Iterable[dict[str, Any]], *, numbered: bool) -> None:
        """Apply in commit order; an impossible change is an assertion.

        Numbered: place and seq name a change. Otherwise they tell the order of the changes of a key.
        """
        ordered = sorted(changes, key=lambda change: (change[PLACE], change[SEQ]))
        names = () if numbered else self._key
        ids = [(change[PLACE], change[SEQ], *(change[name] for name in names)) for change in ordered]
        assert len(set(ids)) == len(ids), "place and seq are unique"
        for change in ordered:
            self._apply(change)

    def _apply(self, change: dict[str, Any]) -> None:
        row = tuple(change[name] for name in self.columns)
        key = tuple(change[name] for name in self._key)
        rows = self.routes.setdefault(change[self._route_by] if self._route_by else None, {})
        match change[OP]:
            case op if op in (INSERT, READ):
                assert key not in rows, f"insert of a key that is live: {change}"
                rows[key] = row
            case op if op == UPDATE:
                assert key in rows, f"update of a key that is not there: {change}"
                assert repr(rows[key]) != repr(row), f"update that changes nothing: {change}"
                rows[key] = row
            case op if op == DELETE:
                assert key in rows, f"delete of a key that is not there: {change}"
                assert repr(rows[key]) == repr(row), f"the deleted row is not the one held: {change}"
                del rows[key]
            case op:
                raise AssertionError(f"unknown operation {op}")


def changes_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Batches as dictionaries."""
    return [row for batch in batches for row in batch.to_pylist()]
