"""Digests of cells, rows and tables: keyed, bound to table, key and column, combined by addition.

Owns the arithmetic of docs/certificate-format.md, a column at a time. A cell's digest is a CBC-MAC with AES,
over messages of which none begins another. A row's is the sum of its cells, a bucket's the sum of its rows,
modulo 2^128, so that what leaves can be taken off again. NULL counts nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from truecut.certificate.encoding import Encoded, encode, spread
from truecut.model.types import Type, parse

BLOCK = 16
BUCKETS = 1 << 12
SLICE_ROWS = 1 << 15
MODULUS = 1 << 128

Blocks = npt.NDArray[np.uint8]  # rows of sixteen bytes
Limbs = npt.NDArray[np.uint64]  # of a number, the lowest 32 bits first

_CELL, _KEY, _ROW, _ROUTE = b"C", b"K", b"R", b"T"


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
        encrypted = np.empty(blocks.size + BLOCK - 1, np.uint8)  # OpenSSL wants room for a block more
        cipher.update_into(np.ascontiguousarray(blocks).reshape(-1).data, encrypted.data)
        return encrypted[: blocks.size].reshape(-1, BLOCK)


KEPT_BYTES_MIN = 17  # a source leaves out large values only: the digests of the others need not be kept


@dataclass(frozen=True, slots=True)
class Cells:
    """The digests of some cells of one column: in which rows they are, and what they come to."""

    rows: npt.NDArray[np.int64]
    digests: Blocks


@dataclass(frozen=True, slots=True)
class Rows:
    """The digests of some rows: that of each key, and the sum of each row; and those of kept cells, by the
    column's number."""

    keys: Blocks
    sums: Limbs  # (rows, 4)
    cells: Mapping[int, Cells] = field(default_factory=dict)

    def buckets(self) -> npt.NDArray[np.int64]:
        """Where each row belongs: the first twelve bits of its key's digest."""
        high = self.keys[:, 0].astype(np.int64) << 8 | self.keys[:, 1]
        return high >> 4

    def blocks(self) -> Blocks:
        """The sums as blocks, big-endian."""
        return self.sums[:, ::-1].astype(">u4").view(np.uint8).reshape(-1, BLOCK)


def scope_tag(table: str) -> bytes:
    """What binds a digest to its table: eight bytes of a hash of its name and of what it is a table of."""
    return hashlib.sha256(table.encode()).digest()[:8]


def digest_rows(
    keyed: Keyed,
    rows: pa.Table,
    *,
    scope: str,
    key: Sequence[str],
    columns: Mapping[str, tuple[int, str]],
    keep: Collection[str] = (),
) -> Rows:
    """`columns`: name → the column's lasting number and its type; those of the key are in it, too. `keep`:
    columns whose large values have their digests told by themselves."""
    told = {name: (number, parse(kind)) for name, (number, kind) in columns.items()}
    # Some at a time, which stay in the processor's cache. The values of a list are not cut with its rows.
    step = SLICE_ROWS if all(kind.kind == "scalar" for _, kind in told.values()) else max(1, rows.num_rows)
    slices = [rows.slice(start, step) for start in range(0, rows.num_rows, step)] or [rows]
    parts = [_digested(keyed, part, scope_tag(scope), key, told, keep) for part in slices]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _digested(
    keyed: Keyed,
    rows: pa.Table,
    tag: bytes,
    key: Sequence[str],
    columns: Mapping[str, tuple[int, Type]],
    keep: Collection[str],
) -> Rows:
    batch = rows.combine_chunks()
    arrays = {name: _one(batch, name) for name in columns}
    keys = _keys(keyed, tag, [(arrays[name], columns[name][1]) for name in key], batch.num_rows)
    sums = as_limbs(_chained(keyed, _header(keyed, _ROW, 0, tag), keys))
    kept: dict[int, Cells] = {}
    for name, (number, kind) in columns.items():
        if name in key:
            continue
        encoded = encode(arrays[name], kind)
        blocks = _cells(keyed, _header(keyed, _CELL, number, tag), keys, encoded)
        _add(sums, blocks, encoded)
        if name in keep:
            large = np.nonzero(encoded.lengths >= KEPT_BYTES_MIN)[0]
            kept[number] = Cells(large, blocks[large])
    return Rows(keys, carried(sums), kept)  # fewer than 2^32 columns: no limb overflows before


def route_digests(keyed: Keyed, texts: pa.Array | pa.ChunkedArray, *, scope: str) -> pa.Array:
    """Of the text in each row's route column; NULL where that is NULL. Few texts are of many rows."""
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = array.dictionary_encode()
    body = encode(encoded.dictionary, parse("VARCHAR"))
    state = np.repeat(_header(keyed, _ROUTE, 0, scope_tag(scope)), len(encoded.dictionary), axis=0)
    blocks = _bodies(keyed, state, body)
    digests = pa.Array.from_buffers(
        pa.binary(BLOCK), len(blocks), [None, pa.py_buffer(np.ascontiguousarray(blocks))]
    )
    return digests.take(encoded.indices)


def _joined(parts: Sequence[Rows]) -> Rows:
    """Slices, one after the other."""
    starts = np.cumsum([0, *(len(part.keys) for part in parts)])
    cells = {
        number: Cells(
            np.concatenate(
                [part.cells[number].rows + start for part, start in zip(parts, starts, strict=False)]
            ),
            np.concatenate([part.cells[number].digests for part in parts]),
        )
        for number in parts[0].cells
    }
    sums = np.concatenate([part.sums for part in parts])
    return Rows(np.concatenate([part.keys for part in parts]), sums, cells)


def _one(batch: pa.Table, name: str) -> pa.Array:
    column = batch.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


# --- the MAC ------------------------------------------------------------------------------------------


def _header(keyed: Keyed, kind: bytes, column: int, tag: bytes) -> Blocks:
    """The state after a message's first block, which is the same for a whole column."""
    first = b"TC1" + kind + column.to_bytes(4, "big") + tag
    return keyed.encrypt(np.frombuffer(first, np.uint8).reshape(1, BLOCK))


def _chained(keyed: Keyed, state: Blocks, blocks: Blocks) -> Blocks:
    mixed = state.view(np.uint64) ^ np.ascontiguousarray(blocks).view(np.uint64)
    return keyed.encrypt(mixed.view(np.uint8))


def _keys(keyed: Keyed, tag: bytes, parts: Sequence[tuple[pa.Array, Type]], count: int) -> Blocks:
    """The digest of each row's key."""
    if len(parts) == 1:
        encoded = encode(*parts[0])
    else:
        encoded = _items_joined([encode(array, kind) for array, kind in parts], count)
    state = np.repeat(_header(keyed, _KEY, 0, tag), count, axis=0)
    return _bodies(keyed, state, encoded)


def _items_joined(parts: Sequence[Encoded], count: int) -> Encoded:
    """The items of each row's values, one after the other: 0 for NULL; 1, the length in 8 bytes, bytes."""
    sizes = [np.where(part.there, part.lengths + 9, 1) for part in parts]
    offsets = np.concatenate(([0], np.cumsum(np.sum(sizes, axis=0), dtype=np.int64)))
    data = np.zeros(int(offsets[-1]), np.uint8)
    starts = offsets[:-1].copy()
    for part, size in zip(parts, sizes, strict=True):
        here = starts[part.there]
        lengths = part.lengths[part.there]
        data[here] = 1
        data[here[:, None] + np.arange(1, 9)] = lengths.astype(">i8").view(np.uint8).reshape(-1, 8)
        data[spread(here + 9, lengths)] = part.data
        starts += size
    return Encoded(data, offsets, np.ones(count, np.bool_))


def _cells(keyed: Keyed, header: Blocks, keys: Blocks, encoded: Encoded) -> Blocks:
    """The digest of each cell of a column; of NULL something that is not used."""
    return _bodies(keyed, _chained(keyed, header, keys), encoded)


def _add(sums: Limbs, blocks: Blocks, encoded: Encoded) -> None:
    """As numbers, limb by limb; NULL counts nothing."""
    limbs = blocks.view(">u4")[:, ::-1]
    if encoded.there.all():
        sums += limbs
    else:
        np.add(sums, limbs, out=sums, where=encoded.there[:, None])


def _bodies(keyed: Keyed, state: Blocks, encoded: Encoded) -> Blocks:
    """Chain on each value: 1 and its length in seven bytes, then its bytes, filled up with zeros; 0 for NULL.

    The length stands in the first block, so no message begins another, whatever the values are.
    """
    lengths = encoded.lengths
    if not len(lengths):
        return state
    longest = int(lengths.max())
    heads = (lengths | encoded.there.astype(np.int64) << 56).astype(">i8").view(np.uint8).reshape(-1, 8)
    if lengths.min() == longest:
        return _even_bodies(keyed, state, heads, encoded.data.reshape(len(lengths), -1))
    counts = (lengths + 8 + BLOCK - 1) // BLOCK
    starts = np.concatenate(([0], np.cumsum(counts)))
    padded = np.zeros((int(starts[-1]), BLOCK), np.uint8)
    padded[starts[:-1], :8] = heads
    padded.reshape(-1)[spread(starts[:-1] * BLOCK + 8, lengths)] = encoded.data
    state = _chained(keyed, state, padded[starts[:-1]])  # each has one block at least
    going = np.arange(len(lengths))
    for number in range(1, int(counts.max())):
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


def carried(limbs: Limbs) -> Limbs:
    """Below 2^32 each; what goes over the top is gone."""
    found = limbs.copy()
    for number in range(3):
        found[:, number + 1] += found[:, number] >> np.uint64(32)
    found &= np.uint64(0xFFFF_FFFF)
    return found


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
        self._take(rows.buckets(), negated(rows.sums), -1)

    def merge(self, other: Buckets) -> None:
        """What another task has summed up."""
        self.sums = carried(self.sums + other.sums)
        self.counts = self.counts + other.counts

    def take_off(self, other: Buckets) -> None:
        """What is there no more."""
        self.sums = carried(self.sums + negated(other.sums))
        self.counts = self.counts - other.counts

    def root(self) -> bytes:
        """All of it in 32 bytes."""
        return hashlib.sha256(
            self.sums.astype(">u4").tobytes() + self.counts.astype(">i8").tobytes()
        ).digest()

    @property
    def rows(self) -> int:
        """How many there are in all."""
        return int(self.counts.sum())

    def _take(self, buckets: npt.NDArray[np.int64], sums: Limbs, each: int) -> None:
        np.add.at(self.sums, buckets, sums)  # fewer than 2^32 rows at a time: no limb overflows
        self.sums = carried(self.sums)
        np.add.at(self.counts, buckets, each)


def negated(limbs: Limbs) -> Limbs:
    """What added to them makes 0."""
    flipped = limbs ^ np.uint64(0xFFFF_FFFF)
    flipped[:, 0] += np.uint64(1)
    return carried(flipped)


def as_blocks(limbs: Limbs) -> Blocks:
    """Numbers as blocks, big-endian."""
    return np.ascontiguousarray(limbs[:, ::-1]).astype(">u4").view(np.uint8).reshape(-1, BLOCK)
