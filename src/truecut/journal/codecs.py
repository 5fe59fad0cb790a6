"""All codecs, by the name with version that a record's head gives: a new one is one entry."""

from __future__ import annotations

from collections.abc import Mapping

from truecut.journal import lines, rows
from truecut.journal.decoding import Codec

CODECS: Mapping[str, Codec] = {
    lines.CODEC: lines.decode,
    rows.CODEC: rows.decode_all,
}
