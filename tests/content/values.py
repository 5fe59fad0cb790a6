"""Types that Truecut carries, and values of them that are easily damaged: as SQL, or drawn bit by bit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

# type → values worth a look, as SQL expressions that a cast to the type makes the value
SCALARS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615", "9223372036854775808"],
    "DECIMAL(4,1)": ["-999.9", "0.1"],
    "DECIMAL(9,4)": ["-0.0001", "99999.9999"],
    "DECIMAL(18,3)": ["-999999999999999.999"],
    "DECIMAL(38,10)": ["'1234567890123456789012345678.0123456789'"],
    "VARCHAR": [
        "''",
        "'é''\"\\'",
        "'🦆'",
        "'NULL'",
        "'a' || chr(10) || chr(13)",
        "'O''Brien \\ C:\\x'",
        "' '",
    ],
    "BLOB": [r"'\x00\xFF'::BLOB", "''::BLOB", r"'\x27\x5C\x22'::BLOB", r"'\x5Cx41'::BLOB"],
    "DATE": ["'0044-03-15 (BC)'", "'9999-12-31'", "'1969-12-31'", "'infinity'", "'-infinity'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"],
    "TIMESTAMP": ["'1677-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "'-infinity'"],
    "TIMESTAMP_S": ["'2026-01-01 01:02:03'", "'1901-01-01 00:00:00'"],
    "TIMESTAMP_MS": ["'2026-01-01 01:02:03.456'"],
    "TIMESTAMP_NS": ["'2026-01-01 01:02:03.456789123'", "'1700-01-01 00:12:44'"],
    "TIMESTAMP WITH TIME ZONE": [
        "'2026-01-01 01:02:03.456789+05:30'",
        "'1900-01-01 00:00:00+00'",
        "'infinity'",
    ],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "JSON": ["""'{"b": 1, "a":  [null]}'""", "'null'", """'"it''s \\u00e9"'""", "'1.0'"],
}
FLOATS = {
    "FLOAT": ["'nan'", "'-inf'", "'-0.0'", "1.1", "3.4028235e38", "1e-45"],
    "DOUBLE": ["'nan'", "'inf'", "'-0.0'", "0.12234988731910601", "5e-324", "1.7976931348623157e308"],
}


def nested(kinds: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Structs, lists, maps and lists of structs of these types, with values."""
    for kind, texts in kinds.items():
        values = [f"CAST({text} AS {kind})" for text in texts]
        yield f"{kind}[]", ["[]", f"[{', '.join(values)}, NULL]"]
        yield f"STRUCT(a {kind}, b INTEGER)", [f"{{'a': {value}, 'b': 1}}" for value in values]
        yield f"MAP(VARCHAR, {kind})", ["MAP {}", *(f"MAP {{'k''\\': {value}}}" for value in values)]
        yield f"STRUCT(a {kind})[]", [f"[{{'a': {value}}}, NULL]" for value in values]


def doubles(random: Random, count: int) -> list[float]:
    """Half of them any bits at all, half of them ordinary: these lose a digit where text is made of them."""
    patterns = (random.getrandbits(64) for _ in range(count // 2))
    wild = [float(struct.unpack(">d", struct.pack(">Q", bits))[0]) for bits in patterns]
    return [*wild, *(random.random() for _ in range(count - len(wild)))]
