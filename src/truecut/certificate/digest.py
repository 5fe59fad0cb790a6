"""Digests of cells, rows and tables: keyed, bound to table, key and column, combined by addition.

Owns the arithmetic of docs/certificate-format.md, a column at a time. A cell's digest is a CBC-MAC with AES,
over messages of which none begins another. A row's is the sum of its cells, a bucket's the sum of its rows,
modulo 2^128, so that what leaves can be taken off again. NULL counts nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from truecut.certificate.encoding import Encoded, encode, items, spread
from truecut.model.types import parse

BLOCK = 16
BUCKETS = 1 << 12
MODULUS = 1 << 128

Blocks = npt.NDArray[np.uint8]  # rows of sixteen bytes
Limbs = npt.NDArray[np.uint64]  # of a number, the lowest 32 bits first

_CELL, _KEY, _ROW = b"C", b"K", b"R"


@dataclass(frozen=True, slots=True)
class Keyed:
    """One secret of sixteen bytes, kept with the signing key and handed to the auditor; never printed."""

    secret: bytes

    def __repr__(self) -> str:
        return "Keyed(…)"

    def encrypt(self, blocks: Blocks) -> Blocks:
        """Each block by itself."""
        # ECB of blocks that are chained below: the mode of a MAC, not of a message.
        cipher = Cipher(algorithms.AES128(self.secret), modes.ECB()).encryptor()
        return np.frombuffer(cipher.update(blocks.tobytes()), np.uint8).reshape(-1, BLOCK)


@dataclass(frozen=True, slots=True)
class Rows:
    """The digests of some rows: that of each key, and the sum of each row."""

    keys: Blocks
    sums: Limbs  # (rows, 4)

    def buckets(self) -> npt.NDArray[np.int64]:
        """Where each row belongs: the first twelve bits of its key's digest."""
        high = self.keys[:, 0].astype(np.int64) << 8 | self.keys[:, 1]
        return high >> 4


def scope_tag(table: str) -> bytes:
    """What binds a digest to its table: eight bytes of a hash of its name and of what it is a table of."""
    return hashlib.sha256(table.encode()).digest()[:8]


def digest_rows(
    keyed: Keyed, rows: pa.Table, *, scope: str, key: Sequence[str], columns: Mapping[str, tuple[int, str]]
) -> Rows:
    """`columns`: name → the column's lasting number and its type; those of the key are in it, too."""
    tag = scope_tag(scope)
    batch = rows.combine_chunks()
    arrays = {name: _one(batch, name) for name in columns}
    keys = _keys(keyed, tag, [(arrays[name], columns[name][1]) for name in key], batch.num_rows)
    sums = as_limbs(_chained(keyed, _header(keyed, _ROW, 0, tag), keys))
    for name, (number, kind) in columns.items():
        if name not in key:
            sums = _carried(
                sums + _cells(keyed, _header(keyed, _CELL, number, tag), keys, arrays[name], kind)
            )
    return Rows(keys, sums)


def _one(batch: pa.Table, name: str) -> pa.Array:
    column = batch.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


# --- the MAC ------------------------------------------------------------------------------------------


def _header(keyed: Keyed, kind: bytes, column: int, tag: bytes) -> Blocks:
    """The state after a message's first block, which is the same for a whole column."""
    first = b"TC1" + kind + column.to_bytes(4, "big") + tag
    return keyed.encrypt(np.frombuffer(first, np.uint8).reshape(1, BLOCK))


def _chained(keyed: Keyed, state: Blocks, blocks: Blocks) -> Blocks:
    return keyed.encrypt(state ^ blocks)


def _keys(keyed: Keyed, tag: bytes, parts: Sequence[tuple[pa.Array, str]], count: int) -> Blocks:
    """The digest of each row's key."""
    if len(parts) == 1:
        encoded = encode(parts[0][0], parse(parts[0][1]))
    else:
        columns = [items(array, parse(kind)) for array, kind in parts]
        encoded = _joined([b"".join(one) for one in zip(*columns, strict=True)])
    state = np.repeat(_header(keyed, _KEY, 0, tag), count, axis=0)
    return _bodies(keyed, state, encoded)


def _joined(values: Sequence[bytes]) -> Encoded:
    offsets = np.concatenate(([0], np.cumsum([len(value) for value in values], dtype=np.int64)))
    return Encoded(np.frombuffer(b"".join(values), np.uint8), offsets, np.ones(len(values), np.bool_))


def _cells(keyed: Keyed, header: Blocks, keys: Blocks, column: pa.Array, kind: str) -> Limbs:
    """The digest of each cell of a column; 0 for NULL."""
    encoded = encode(column, parse(kind))
    found = as_limbs(_bodies(keyed, _chained(keyed, header, keys), encoded))
    found[~encoded.there] = 0
    return found


def _bodies(keyed: Keyed, state: Blocks, encoded: Encoded) -> Blocks:
    """Chain on each value: 1 and its length in seven bytes, then its bytes, filled up with zeros; 0 for NULL.

    The length stands in the first block, so no message begins another, whatever the values are.
    """
    lengths = encoded.lengths
    if not len(lengths):
        return state
    heads = (lengths | encoded.there.astype(np.int64) << 56).astype(">i8").view(np.uint8).reshape(-1, 8)
    if lengths.min() == lengths.max():
        return _even_bodies(keyed, state, heads, encoded.data.reshape(len(lengths), -1))
    counts = (lengths + 8 + BLOCK - 1) // BLOCK
    starts = np.concatenate(([0], np.cumsum(counts)))
    padded = np.zeros((int(starts[-1]), BLOCK), np.uint8)
    padded[starts[:-1], :8] = heads
    padded.reshape(-1)[spread(starts[:-1] * BLOCK + 8, lengths)] = encoded.data
    state = state.copy()
    going = np.arange(len(lengths))
    for number in range(int(counts.max())):
        going = going[counts[going] > number]
        state[going] = _chained(keyed, state[going], padded[starts[going] + number])
    return state


def _even_bodies(keyed: Keyed, state: Blocks, heads: Blocks, values: Blocks) -> Blocks:
    """The same for values of one length: a table of blocks, column by column."""
    count, length = values.shape
    width = (length + 8 + BLOCK - 1) // BLOCK * BLOCK
    padded = np.zeros((count, width), np.uint8)
    padded[:, :8] = heads
    padded[:, 8 : 8 + length] = values
    for start in range(0, width, BLOCK):
        state = _chained(keyed, state, padded[:, start : start + BLOCK])
    return state


# --- sums ---------------------------------------------------------------------------------------------


def as_limbs(blocks: Blocks) -> Limbs:
    """Blocks as numbers, big-endian."""
    return blocks.reshape(-1).view(">u4").reshape(-1, 4)[:, ::-1].astype(np.uint64)


def _carried(limbs: Limbs) -> Limbs:
    """Below 2^32 each; what goes over the top is gone."""
    carried = limbs.copy()
    for number in range(3):
        carried[:, number + 1] += carried[:, number] >> np.uint64(32)
    carried &= np.uint64(0xFFFF_FFFF)
    return carried


def number_of(limbs: Limbs) -> int:
    """One sum as a number."""
    return sum(int(limb) << 32 * place for place, limb in enumerate(limbs)) % MODULUS


@dataclass(slots=True)
class Buckets:
    """The state of a table in so many sums, and how many rows each counts."""

    sums: Limbs
    counts: npt.NDArray[np.int64]

    @classmethod
    def empty(cls) -> Buckets:
        """A table without rows, as after TRUNCATE."""
        return cls(np.zeros((BUCKETS, 4), np.uint64), np.zeros(BUCKETS, np.int64))

    def add(self, rows: Rows) -> None:
        """These rows are there now."""
        self._take(rows.buckets(), rows.sums, 1)

    def remove(self, rows: Rows) -> None:
        """These rows, exactly as they were, are there no more."""
        self._take(rows.buckets(), _negated(rows.sums), -1)

    def merge(self, other: Buckets) -> None:
        """What another task has summed up."""
        self.sums = _carried(self.sums + other.sums)
        self.counts = self.counts + other.counts

    def root(self) -> bytes:
        """All of it in 32 bytes."""
        return hashlib.sha256(
            self.sums.astype(">u4").tobytes() + self.counts.astype(">i8").tobytes()
        ).digest()

    def _take(self, buckets: npt.NDArray[np.int64], sums: Limbs, each: int) -> None:
        np.add.at(self.sums, buckets, sums)  # fewer than 2^32 rows at a time: no limb overflows
        self.sums = _carried(self.sums)
        np.add.at(self.counts, buckets, each)


def _negated(limbs: Limbs) -> Limbs:
    flipped = limbs ^ np.uint64(0xFFFF_FFFF)
    flipped[:, 0] += np.uint64(1)
    return _carried(flipped)
