"""What a sink learns of a table's changes as they come: where it was truncated, which values are absent.

Most windows have neither, and then nothing else is done for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from truecut.model.change import DELETE, OP, OPTIONAL_NAMES, PLACE, SEQ, TRUNCATE, UNCHANGED

_WITHOUT_ROW = pa.array([DELETE, TRUNCATE], pa.uint8())  # what they do not tell, nobody needs


@dataclass(slots=True)
class Arrivals:
    """Of one table, over all its packets so far."""

    truncated: tuple[int, int] | None = None  # place and seq of the last truncate
    absent: set[str] = field(default_factory=set)  # columns that some insert or update does not tell
    optional: set[str] = field(default_factory=set)  # control columns that some packet has

    def see(self, rows: pa.Table) -> None:
        """One more packet."""
        self.optional.update(name for name in OPTIONAL_NAMES if name in rows.column_names)
        is_truncate = pc.equal(rows.column(OP), TRUNCATE)
        if pc.any(is_truncate).as_py():
            truncates = rows.select([PLACE, SEQ]).filter(is_truncate)
            places = zip(truncates.column(PLACE).to_pylist(), truncates.column(SEQ).to_pylist(), strict=True)
            self.truncated = max([*places, *([self.truncated] if self.truncated else [])])
        if UNCHANGED in rows.column_names:
            with_row = pc.invert(pc.is_in(rows.column(OP), value_set=_WITHOUT_ROW))
            names = pc.list_flatten(rows.column(UNCHANGED).filter(with_row))
            self.absent.update(pc.unique(names).to_pylist())
