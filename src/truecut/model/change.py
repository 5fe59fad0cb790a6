"""The rows of a wave: Arrow batches of changes in one normal form.

A change is the net change of one key between two positions: inserted, updated in place or deleted.
A changed key, or a changed route, is a delete of the old row and an insert of the new one. So for one
key and one route there is at most one change at each position, and the latest position wins.

Each change of a table has a `seq` of its own within its place, by which an append table names it, if an
append table is among those that read the window. Mirrors only need to know what comes first where a key
has two changes at a place: then every delete has 0 and everything else has 1.

A batch has these control columns first, then the table's columns under their own names. Puts carry the
whole row; a delete carries the whole row as it was before.
"""

from __future__ import annotations

import pyarrow as pa

PREFIX = "_truecut_"  # reserved: a source column that starts so is refused

OP = "_truecut_op"  # uint8: INSERT, UPDATE, DELETE or READ
PLACE = "_truecut_place"  # uint64: the position's place; the wave knows the generation
SEQ = "_truecut_seq"  # int64: order within a place; unique there for append tables
COMMITTED_AT = "_truecut_committed_at"  # timestamp[us, UTC]

INSERT, UPDATE, DELETE, READ = 1, 2, 3, 4
OP_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete", READ: "read"}

CONTROL_FIELDS: tuple[pa.Field, ...] = (
    pa.field(OP, pa.uint8(), nullable=False),
    pa.field(PLACE, pa.uint64(), nullable=False),
    pa.field(SEQ, pa.int64(), nullable=False),
    pa.field(COMMITTED_AT, pa.timestamp("us", tz="UTC")),
)
CONTROL_NAMES = tuple(field.name for field in CONTROL_FIELDS)
