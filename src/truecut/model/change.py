"""The rows of a wave: Arrow batches of changes. This is the seam between sources and sinks.

A change is an insert, an update in place or a delete of one key of one table, a truncate of the table, or a
row read (READ) for a seed. A changed key, or a changed route, is a delete of the old row and an insert of
the new one, with the next seq. Place and seq order the changes of a window, in whatever order its batches
come.

A source may net its changes (at most one for each key, route and place) or give every event in its order.
Each change has a `seq` of its own within its place, over all tables of the transaction: position and seq
together are its id. A source that nets need not number them so if nobody who keeps every change (an append
table) reads the window: then every delete has 0 and everything else has 1.

A batch has the control columns first, then those of OPTIONAL_FIELDS that it needs, then the table's columns
under their own names. Batches of one table may differ in which optional columns they have; a missing one is
NULL.

- An insert, an update and a READ carry the whole row, but for columns that `_truecut_unchanged` names:
  their values are *absent*, not NULL, though NULL stands in their place. They are what they were before: a
  mirror takes each from the latest earlier change of that key which told it, back to its insert, else from
  the row that it holds. Key and route are never absent. An insert, whose row nobody had before, has absent
  values only where a row moved.
- A delete carries the key, and the route where there is one. The other columns hold the row as it was, as
  far as the source told it; those it did not tell are NULL (and named, if an append table reads). Mirrors
  look at the key alone.
- Rows that are read again (`first_of_reading`) have numbers apart from those of changes and of earlier
  readings, which may be of the same place.
- A truncate has NULL in every column of the table. It goes to each sink that carries the table, whatever
  its route. Rows of earlier place and seq are void for a mirror, and so is all that it held; later ones
  begin with an empty table.
"""

from __future__ import annotations

import pyarrow as pa

from truecut.errors import require

PREFIX = "_truecut_"  # reserved: a source column that starts so is refused

OP = "_truecut_op"  # uint8: INSERT, UPDATE, DELETE, READ or TRUNCATE
PLACE = "_truecut_place"  # uint64: the position's place; the wave knows the generation
SEQ = "_truecut_seq"  # int64: order within a place; unique there, over all tables, where changes are kept
COMMITTED_AT = "_truecut_committed_at"  # timestamp[us, UTC]

# Only where they are needed:
TRANSACTION = "_truecut_transaction"  # string: the source's own name for it; an append table keeps it
UNCHANGED = "_truecut_unchanged"  # list<string>: names of the columns whose values are absent; NULL: none

# An append table at a sink has these beside all of the above, but for the place.
POSITION = "_truecut_position"
APPLIED_AT = "_truecut_applied_at"

_AGAIN, _READING_BITS, _ROW_BITS = 1 << 62, 16, 46


def first_of_reading(reading: int, *, first: int) -> int:
    """Where the numbers of the rows of a table's n-th reading begin; `first`: those of its first."""
    require(1 <= reading < 1 << _READING_BITS, "a reading has a number that leaves room for its rows")
    return first if reading == 1 else _AGAIN + (reading << _ROW_BITS)


INSERT, UPDATE, DELETE, READ, TRUNCATE = 1, 2, 3, 4, 5
OP_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete", READ: "read", TRUNCATE: "truncate"}

# --- events: changes as a journal holds them, one by one and not yet netted ---
#
# An event has the row before and the row after it, as far as the source sent them. A changed key is a delete
# and an insert here, too, so an update has one key. A column that the source did not send because it did not
# change is absent from the row after, which is not the same as NULL; here `_truecut_unchanged` lists the
# numbers of such columns. `_truecut_transaction` is the same.

SCHEMA, MESSAGE = 6, 7
EVENT_NAMES = OP_NAMES | {SCHEMA: "schema", MESSAGE: "message"}

IMAGE = "_truecut_image"  # uint8: how much of the row before is there
NO_IMAGE, KEY_IMAGE, FULL_IMAGE = 0, 1, 2
BEFORE, AFTER = "_truecut_before", "_truecut_after"

CONTROL_FIELDS: tuple[pa.Field, ...] = (
    pa.field(OP, pa.uint8(), nullable=False),
    pa.field(PLACE, pa.uint64(), nullable=False),
    pa.field(SEQ, pa.int64(), nullable=False),
    pa.field(COMMITTED_AT, pa.timestamp("us", tz="UTC")),
)
CONTROL_NAMES = tuple(field.name for field in CONTROL_FIELDS)
OPTIONAL_FIELDS: tuple[pa.Field, ...] = (
    pa.field(TRANSACTION, pa.string()),
    pa.field(UNCHANGED, pa.list_(pa.string())),
)
OPTIONAL_NAMES = tuple(field.name for field in OPTIONAL_FIELDS)
