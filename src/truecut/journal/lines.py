"""The codec `lines/1`: a record is one line of text, as `truecut journal append` writes it.

Each is a message: of no table, without a key, by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from truecut.journal.decoding import RECORD, Changes, Undecodable, changes_schema
from truecut.model.change import AFTER, IMAGE, MESSAGE, NO_IMAGE, OP, SEQ

CODEC = "lines/1"


def decode(payloads: Sequence[bytes]) -> list[Changes]:
    """A change for each line, with the line as its row."""
    count = len(payloads)
    schema = changes_schema(pa.string())
    texts = pa.array([_text(index, payload) for index, payload in enumerate(payloads)], pa.string())
    filled = {
        RECORD: pa.array(range(count), pa.int32()),
        OP: pa.repeat(pa.scalar(MESSAGE, pa.uint8()), count),
        SEQ: pa.repeat(pa.scalar(0, pa.int64()), count),
        IMAGE: pa.repeat(pa.scalar(NO_IMAGE, pa.uint8()), count),
        AFTER: texts,
    }
    columns = [filled.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return [Changes(None, (), pa.RecordBatch.from_arrays(columns, schema=schema))]


def _text(index: int, payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise Undecodable(index, "it is not UTF-8 text") from None
