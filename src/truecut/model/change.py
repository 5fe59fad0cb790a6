"""The rows of a wave: Arrow batches of changes in one normal form.

A change is the net change of one key between two positions: inserted, updated in place or deleted.
A changed key, or a changed route, is a delete of the old row and an insert of the new one. So for one
key and one route there is at most one change at each position, and the latest position wins.

Each change has a `seq` of its own within its place, over all tables of the transaction: position and seq
together are its id. They are there if somebody who keeps every change (an append table) is among those that
read the window. Mirrors only need to know what comes first where a key has two changes at a place: then every
delete has 0 and everything else has 1.

A batch has these control columns first, then the table's columns under their own names. Puts carry the
whole row; a delete carries the whole row as it was before.
"""

from __future__ import annotations

import pyarrow as pa

PREFIX = "_truecut_"  # reserved: a source column that starts so is refused

OP = "_truecut_op"  # uint8: INSERT, UPDATE, DELETE or READ
PLACE = "_truecut_place"  # uint64: the position's place; the wave knows the generation
SEQ = "_truecut_seq"  # int64: order within a place; unique there, over all tables, where changes are kept
COMMITTED_AT = "_truecut_committed_at"  # timestamp[us, UTC]

# An append table at a sink has these beside op, seq and the time of the commit (`TRANSACTION` and `UNCHANGED`
# are also what events have).
POSITION = "_truecut_position"
APPLIED_AT = "_truecut_applied_at"

INSERT, UPDATE, DELETE, READ = 1, 2, 3, 4
OP_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete", READ: "read"}

# --- events: changes as a journal holds them, one by one and not yet netted ---
#
# An event has the row before and the row after it, as far as the source sent them. A changed key is a delete
# and an insert here, too, so an update has one key. A column that the source did not send because it did not
# change is absent from the row after, which is not the same as NULL.

TRUNCATE, SCHEMA, MESSAGE = 5, 6, 7
EVENT_NAMES = OP_NAMES | {TRUNCATE: "truncate", SCHEMA: "schema", MESSAGE: "message"}

TRANSACTION = "_truecut_transaction"  # string: the source's own name for it
IMAGE = "_truecut_image"  # uint8: how much of the row before is there
NO_IMAGE, KEY_IMAGE, FULL_IMAGE = 0, 1, 2
UNCHANGED = "_truecut_unchanged"  # list of column numbers: absent from the row after
BEFORE, AFTER = "_truecut_before", "_truecut_after"

CONTROL_FIELDS: tuple[pa.Field, ...] = (
    pa.field(OP, pa.uint8(), nullable=False),
    pa.field(PLACE, pa.uint64(), nullable=False),
    pa.field(SEQ, pa.int64(), nullable=False),
    pa.field(COMMITTED_AT, pa.timestamp("us", tz="UTC")),
)
CONTROL_NAMES = tuple(field.name for field in CONTROL_FIELDS)
