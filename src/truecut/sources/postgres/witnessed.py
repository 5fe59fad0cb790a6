"""What a witness is told of a table's units: how each was read, and all events of the log behind them.

The log of a witness needs the unit of each key, which the server alone knows: so it is told only while it is
short, and while the server answers. Whoever only splices asks for far fewer (`splicing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from truecut.errors import TruecutError
from truecut.model import change
from truecut.model.units import LoggedEvents, UnitRead, UnitsRead, Witness
from truecut.sources.postgres.history import Events
from truecut.sources.postgres.splicing import Asking, Spliced, keys_of, typed
from truecut.sources.postgres.types import row_type, value_type
from truecut.sources.postgres.unit_read import same_columns
from truecut.sources.postgres.units import identity_columns

LOG_MAX = 100_000  # events


@dataclass
class Witnessing:
    """Of one table, on the task that folds its log with the rows of events."""

    found: Spliced
    witness: Witness
    whole: bool = True
    _told: int = 0

    def take(self, events: Events, asking: Asking) -> None:
        """Some more of the log."""
        places = np.asarray(events.rows.column(change.PLACE))
        which = np.flatnonzero(places > self.found.edition.settled.lo)
        self._told += len(which)
        if self._told > LOG_MAX or not same_columns(events.relation, self.found.texted):
            self.whole = False
        if not self.whole or not len(which):
            return
        taken = Events(events.relation, events.rows.take(pa.array(which)), events.xids[which])
        try:
            logged = self._logged(taken, asking)
        except TruecutError:  # the server does not answer; the rows may not need it
            self.whole = False
            return
        self.witness.events(self.found.table, logged)

    def _logged(self, events: Events, asking: Asking) -> LoggedEvents:
        rows, relation = events.rows, self.found.relation
        ops = np.asarray(rows.column(change.OP))
        gone = ops == change.DELETE
        names = [one.name for one in identity_columns(relation)]
        afters, befores = (keys_of(rows, image, names) for image in (change.AFTER, change.BEFORE))
        keys = [
            before if gone[n] else after
            for n, (before, after) in enumerate(zip(befores, afters, strict=True))
        ]
        known = {key: 0 for key in keys if key is not None}
        known = dict(zip(known, asking.units(list(known)), strict=True))
        told = rows.column(change.UNCHANGED).to_pylist()
        return LoggedEvents(
            np.asarray(rows.column(change.PLACE)),
            events.xids,
            np.array([0 if key is None else known[key] for key in keys], np.uint32),
            ops,
            np.array([bool(one) for one in told], np.bool_),
            self._rows(rows, gone),
        )

    def _rows(self, rows: pa.RecordBatch, gone: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.RecordBatch:
        """The row after each event; before a delete."""
        relation = self.found.relation
        schema = pa.schema(list(row_type(relation)))
        order = [np.flatnonzero(~gone), np.flatnonzero(gone)]
        images = [
            rows.column(one).take(pa.array(n))
            for one, n in zip((change.AFTER, change.BEFORE), order, strict=True)
        ]
        found = pa.Table.from_batches([typed(one, relation, schema) for one in images], schema)
        back = np.argsort(np.concatenate(order), kind="stable")
        (batch,) = found.combine_chunks().take(pa.array(back)).combine_chunks().to_batches()
        return batch

    def end(self) -> None:
        """All of the log was told: how the units were read."""
        found = self.found
        plan, slot = found.edition.plan, found.backfill.slot
        inner = [part.low for part in plan.parts[1:] if isinstance(part.low, tuple)]
        bounds = None
        if inner and plan.by:
            columns = zip(plan.by, zip(*inner, strict=True), strict=True)
            values = [
                value_type(one).read(pa.array(texts, pa.string()).cast(pa.binary())) for one, texts in columns
            ]
            bounds = pa.RecordBatch.from_arrays(values, names=[one.name for one in plan.by])
        told = [one.evidence for one in found.backfill.units if one.evidence is not None]
        units = [UnitRead(str(one.snapshot), one.lo, one.hi, one.rows) for one in told]
        pages = [] if plan.by else [int(page) for (page,) in inner]
        key = tuple(one.name for one in plan.by)
        read = UnitsRead(key, units, bounds, pages, slot.at, str(slot.seen))
        # Where another server took over, ids say nothing of what came before: nothing is claimed of that.
        self.witness.units(found.table, read, logged=self.whole and not found.doubts)
