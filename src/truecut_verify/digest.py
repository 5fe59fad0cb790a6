"""What a row comes to: bytes, then a keyed digest, then a sum, as docs/certificate-format.md says.

Written to be read beside that page, one value at a time; what issues certificates does the same by columns.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

MODULUS = 1 << 128
Form = str | dict[str, Any]  # "int"; or {"list": …}, {"map": […, …]}, {"struct": [[name, …], …]}


class Unencodable(Exception):
    """A value that is not of the form that its certificate says."""


# --- values as bytes ------------------------------------------------------------------------------------


def encode(value: pa.Scalar, form: Form) -> bytes:
    """The canonical bytes of a value that is not NULL."""
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    if isinstance(form, dict):
        return _nested(value, form)
    name, _, argument = form.partition(":")
    match name:
        case "bool":
            return b"\1" if value.as_py() else b"\0"
        case "int":
            return integer_bytes(_integer(value))
        case "float":
            number = float(value.as_py())
            return struct.pack(">d", number) if number == number else bytes.fromhex("7ff8000000000000")
        case "decimal":
            return decimal_bytes(value.as_py(), int(argument))
        case "text":
            return str(value.as_py()).encode()
        case "bytes":
            return bytes(value.as_py())
        case "uuid":
            raw = value.as_py()
            return bytes(raw) if isinstance(raw, bytes) else bytes.fromhex(str(raw).replace("-", ""))
        case "date" | "time" | "timestamp":
            return _moment(value)
    raise Unencodable(f"no such form: {name}")


def _integer(value: pa.Scalar) -> int:
    raw = value.as_py()
    return int.from_bytes(raw, "little", signed=True) if isinstance(raw, bytes) else int(raw)


def integer_bytes(value: int) -> bytes:
    """Eight bytes if they do; else sixteen; else seventeen. The sign is in the first bit."""
    for size in (8, 16, 17):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return value.to_bytes(size, "big", signed=True)
    raise Unencodable("a whole number of more than seventeen bytes")


def decimal_bytes(value: Decimal, scale: int) -> bytes:
    """The scale, then all digits as one whole number. Not by arithmetic of decimals, which rounds."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise Unencodable("a decimal of another scale")
    whole: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return bytes([scale]) + (-whole if sign else whole).to_bytes(16, "big", signed=True)


def _moment(value: pa.Scalar) -> bytes:
    """Days; or microseconds, and two bytes of nanoseconds where there are any."""
    if pa.types.is_date(value.type):
        return int(value.value).to_bytes(8, "big", signed=True)
    whole, rest = divmod(
        int(value.value) * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[value.type.unit], 1000
    )
    return whole.to_bytes(8, "big", signed=True) + (rest.to_bytes(2, "big") if rest else b"")


def _nested(value: pa.Scalar, form: dict[str, Any]) -> bytes:
    if "struct" in form:
        return b"".join(item(value[n], part) for n, (_, part) in enumerate(form["struct"]))
    if "list" in form:
        parts = [item(one, form["list"]) for one in value.values] if value.values is not None else []
    else:
        key, held = form["map"]
        pairs = value.values
        parts = sorted(item(one[0], key) + item(one[1], held) for one in pairs)
    return len(parts).to_bytes(8, "big") + b"".join(parts)


def item(value: pa.Scalar, form: Form) -> bytes:
    """A value that ends by itself."""
    if not value.is_valid:
        return b"\0"
    raw = encode(value, form)
    return b"\1" + len(raw).to_bytes(8, "big") + raw


# --- digests --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What a certificate says of a table's digests: its scope, its key's columns, its columns by number."""

    scope: str
    key: Sequence[tuple[str, Form]]
    columns: Sequence[tuple[str, int, Form]]  # those that are not of the key


def mac(secret: bytes, message: bytes) -> bytes:
    """AES-128, CBC-MAC: the last block of the message encrypted with a chain that begins at zero."""
    cipher = Cipher(algorithms.AES128(secret), modes.CBC(bytes(16))).encryptor()
    return bytes(cipher.update(message) + cipher.finalize())[-16:]


def header(kind: bytes, column: int, scope: str) -> bytes:
    """The first block of every message."""
    return b"TC1" + kind + column.to_bytes(4, "big") + hashlib.sha256(scope.encode()).digest()[:8]


def body(raw: bytes) -> bytes:
    """1 and the length in seven bytes, the bytes, zeros up to a whole block."""
    whole = b"\1" + len(raw).to_bytes(7, "big") + raw
    return whole + bytes(-len(whole) % 16)


def key_digest(secret: bytes, table: Table, row: dict[str, pa.Scalar]) -> bytes:
    """Of the values of a row's key."""
    if len(table.key) == 1:
        (name, form) = table.key[0]
        raw = encode(row[name], form)
    else:
        raw = b"".join(item(row[name], form) for name, form in table.key)
    return mac(secret, header(b"K", 0, table.scope) + body(raw))


def row_digest(secret: bytes, table: Table, row: dict[str, pa.Scalar]) -> tuple[bytes, int]:
    """The digest of its key, and the sum of its cells."""
    key = key_digest(secret, table, row)
    total = int.from_bytes(mac(secret, header(b"R", 0, table.scope) + key), "big")
    for name, number, form in table.columns:
        if row[name].is_valid:
            cell = header(b"C", number, table.scope) + key + body(encode(row[name], form))
            total += int.from_bytes(mac(secret, cell), "big")
    return key, total % MODULUS


def bucket(key: bytes) -> int:
    """The first twelve bits."""
    return int.from_bytes(key[:2], "big") >> 4
