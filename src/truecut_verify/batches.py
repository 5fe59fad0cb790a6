"""The digests of digest.py, of many rows at once: one call of the cipher for a block of every row.

CBC is a chain only within a message, so the messages of a batch go through it side by side: what is encrypted
is the exclusive-or of all states and all next blocks, done on whole batches as one large number each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from truecut_verify.digest import MODULUS, Form, Table, Unencodable, body, header
from truecut_verify.documents import Copy
from truecut_verify.verdict import Fail

Raw = list[bytes | None]  # the canonical bytes of a column's values; None for NULL
Canonical = Callable[[Any, Form], bytes | None]
_STRANGE = (  # what a value may lead to that is not of its form
    Unencodable, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError,
    struct.error, pa.ArrowException,
)  # fmt: skip


def canonical_columns(copy: Copy, columns: Sequence[Iterable[Any]], canonical: Canonical) -> list[Raw]:
    """A batch of rows that were read; a value that cannot be told is a failure of its row."""
    found: list[Raw] = []
    for (name, _, form), values in zip(copy.columns, columns, strict=True):
        told: Raw = []
        try:
            for value in values:
                told.append(canonical(value, form))
        except _STRANGE as error:
            row = [list(one)[len(told)] for one in columns]
            raise Fail(
                "a value that is not of its form", column=name, key=_key_of(copy, row, canonical)
            ) from error
        found.append(told)
    return found


def _key_of(copy: Copy, row: Sequence[Any], canonical: Canonical) -> dict[str, Any]:
    """As far as it can be told."""
    key: dict[str, Any] = {}
    for (name, _, form), value in zip(copy.columns, row, strict=True):
        with suppress(*_STRANGE):
            key |= {name: shown(canonical(value, form), form)} if name in copy.key else {}
    return key


def shown(raw: bytes | None, form: Form) -> Any:
    """A key's value, as far as it can be read by people; the auditor asked for it."""
    if raw is None:
        return None
    if form == "int":
        return int.from_bytes(raw, "big", signed=True)
    return raw.decode() if form == "text" else raw.hex()


def macs(secret: bytes, messages: Sequence[bytes]) -> list[bytes]:
    """CBC-MAC of each message, which are whole blocks."""
    # ECB of blocks that are chained here: the mode of a MAC, not of a message.
    cipher = Cipher(algorithms.AES128(secret), modes.ECB()).encryptor()
    found: list[bytes] = [b""] * len(messages)
    by_length: dict[int, list[int]] = {}
    for n, message in enumerate(messages):
        by_length.setdefault(len(message), []).append(n)
    for length, members in by_length.items():
        state, size = 0, 16 * len(members)
        for start in range(0, length, 16):
            block = b"".join(messages[n][start : start + 16] for n in members)
            mixed = (state ^ int.from_bytes(block, "big")).to_bytes(size, "big")
            encrypted = cipher.update(mixed)
            state = int.from_bytes(encrypted, "big")
        for place, n in enumerate(members):
            found[n] = encrypted[16 * place : 16 * place + 16]
    return found


def digests_of(
    secret: bytes, table: Table, columns: Mapping[str, Raw]
) -> Iterator[tuple[bytes, int, tuple[bytes | None, ...]]]:
    """Of each row: the digest of its key, its sum, and its key's bytes."""
    keys = list(zip(*(columns[name] for name, _ in table.key), strict=True))
    digests = macs(secret, [header(b"K", 0, table.scope) + body(_key(values)) for values in keys])
    present = header(b"R", 0, table.scope)
    sums = [int.from_bytes(one, "big") for one in macs(secret, [present + key for key in digests])]
    for name, number, _ in table.columns:
        first = header(b"C", number, table.scope)
        there = [(n, raw) for n, raw in enumerate(columns[name]) if raw is not None]
        cells = macs(secret, [first + digests[n] + body(raw) for n, raw in there])
        for (n, _), cell in zip(there, cells, strict=True):
            sums[n] += int.from_bytes(cell, "big")
    for key, total, values in zip(digests, sums, keys, strict=True):
        yield key, total % MODULUS, values


def _key(values: tuple[bytes | None, ...]) -> bytes:
    """One value as it is; several as items."""
    if len(values) == 1 and values[0] is not None:
        return values[0]
    return b"".join(b"\0" if raw is None else b"\1" + len(raw).to_bytes(8, "big") + raw for raw in values)
