"""Every built-in type of PostgreSQL with values that are easily damaged, and random ones; as literals."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

Draw = Callable[[Random], str]

SETUP = """
CREATE EXTENSION vector;
CREATE TYPE mood AS ENUM ('happy', 'so so', 'it''s "bad", {very}', 'NULL');
CREATE DOMAIN price AS numeric(12,3) CHECK (VALUE IS NULL OR VALUE > -1e9);
CREATE DOMAIN "Net Price" AS price;
CREATE DOMAIN grid AS integer[][];
CREATE TYPE pair AS (a integer, "b c" text);
"""


def _within(low: int, high: int) -> Draw:
    return lambda r: str(r.randint(low, high))


def _decimal(whole: int, scale: int) -> Draw:
    def draw(r: Random) -> str:
        digits = str(r.getrandbits(4 * (whole + scale)) % 10 ** (whole + scale)).zfill(scale + 1)
        return r.choice(["", "-"]) + digits[: len(digits) - scale] + ("." + digits[-scale:] if scale else "")

    return draw


def _double(r: Random) -> str:
    value = struct.unpack(">d", r.randbytes(8))[0] if r.random() < 0.7 else r.random()
    return repr(value)


def _real(r: Random) -> str:
    value = struct.unpack(">f", r.randbytes(4))[0]
    return repr(value)


_LETTERS = [
    "a",
    "Z",
    " ",
    "\n",
    "\t",
    "'",
    '"',
    "\\",
    "{",
    "}",
    ",",
    ";",
    "é",
    "🦆",
    "NULL",
    "\x01",
    "(",
    ")",
]


def text(r: Random) -> str:
    """Any text that PostgreSQL takes."""
    return "".join(r.choices(_LETTERS, k=r.randrange(8)))


def _bytes(r: Random) -> str:
    return r"\x" + r.randbytes(r.randrange(12)).hex()


def _date(r: Random) -> str:
    year = r.choice([r.randint(1, 9999), r.randint(1900, 2100), r.randint(10000, 294246)])
    era = " BC" if year < 4700 and r.random() < 0.3 else ""
    return f"{year:04}-{r.randint(1, 12):02}-{r.randint(1, 28):02}{era}"


def _time(r: Random) -> str:
    fraction = r.choice(["", f".{r.randrange(10**6):06}"])
    return f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}{fraction}"


def _zone(r: Random) -> str:
    return f"{r.choice('+-')}{r.randrange(15):02}:{r.choice([0, 30, 45]):02}"


def _timestamp(r: Random) -> str:
    date, _, era = _date(r).partition(" ")
    return f"{date} {_time(r)}{' BC' if era else ''}"


def _timestamptz(r: Random) -> str:
    date, _, era = _date(r).partition(" ")
    return f"{date} {_time(r)}{_zone(r)}{' BC' if era else ''}"


def _interval(r: Random) -> str:
    months, days = (r.randint(-(2**31), 2**31 - 1) >> r.randrange(31) for _ in range(2))
    micros = r.randint(-(2**62), 2**62) >> r.randrange(62)
    return f"{months} mons {days} days {micros} microseconds"


def _json(r: Random) -> str:
    return json.dumps(
        r.choice([None, 1.50, text(r), {"b": 1, "a": [text(r)]}, [[]]]), ensure_ascii=r.random() < 0.5
    ).replace("\\u0001", "")


def _uuid(r: Random) -> str:
    return str(UUID(int=r.getrandbits(128)))


def _bits(low: int, high: int) -> Draw:
    return lambda r: "".join(r.choices("01", k=r.randint(low, high)))


_TIMES = ["00:00:00", "24:00:00", "23:59:59.999999", "00:00:00.000001"]
_STAMPS = [
    "infinity", "-infinity", "4713-01-01 00:00:00 BC", "0001-01-01 00:00:00", "0001-12-31 23:59:59.9 BC",
    "9999-12-31 23:59:59.999999", "10000-01-01 00:00:00", "294246-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00.5",
]  # fmt: skip
_SPECIAL = ["NaN", "Infinity", "-Infinity", "0", "-0"]

# type → (values worth a look, a way to draw others)
TYPES: Mapping[str, tuple[list[str], Draw | None]] = {
    "boolean": (["true", "false"], None),
    "smallint": (["-32768", "32767", "0"], _within(-(2**15), 2**15 - 1)),
    "integer": (["-2147483648", "2147483647"], _within(-(2**31), 2**31 - 1)),
    "bigint": (["-9223372036854775808", "9223372036854775807"], _within(-(2**63), 2**63 - 1)),
    "oid": (["0", "4294967295"], _within(0, 2**32 - 1)),
    "xid": (["0", "4294967295"], None),
    "xid8": (["0", "18446744073709551615"], _within(0, 2**64 - 1)),
    "real": ([*_SPECIAL, "1.1", "3.4028235e38", "1e-45", "16777217"], _real),
    "double precision": ([*_SPECIAL, "1e-323", "5e-324", "1.7976931348623157e308", "0.1"], _double),
    "numeric": ([*_SPECIAL, "1.0", "1.00", "1e-300", "9" * 400 + ".5", "-0.0"], _decimal(30, 20)),
    "numeric(10,2)": (["99999999.99", "-99999999.99", "0.01", "-0.01", "0"], _decimal(8, 2)),
    "numeric(38,0)": (["9" * 38, "-" + "9" * 38], _decimal(38, 0)),
    "numeric(38,38)": (["0." + "9" * 38, "-0." + "0" * 37 + "1"], _decimal(0, 38)),
    "numeric(39,1)": (["9" * 38 + ".9", "NaN"], _decimal(38, 1)),
    "numeric(3,-2)": (["12345", "NaN"], None),
    "numeric(2,5)": (["0.00012", "NaN"], None),
    "text": (["", "NULL", "null", r"\x41", "a" * 5000, "é🦆\u0301", "\\N", "\r\n"], text),
    "character varying(9)": (["", "123456789"], text),
    "character(5)": (["", "ab", "12345"], None),
    '"char"': (["", "a", r"\377"], None),
    "name": (["", "a" * 63], text),
    "bytea": ([r"\x", r"\x00ff", r"\x5c78"], _bytes),
    "date": (["infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-01-01", "0001-12-31 BC"],
             _date),
    "time": (_TIMES, _time),
    "time(2)": (["12:13:14.15"], _time),
    "timetz": (["24:00:00+00", "00:00:00-15:59:59", "23:59:59.999999+15:59"], lambda r: _time(r) + _zone(r)),
    "timestamp": (_STAMPS, _timestamp),
    "timestamp(3)": (["2024-01-01 00:00:00.123"], _timestamp),
    "timestamptz": (_STAMPS, _timestamptz),
    "interval": (["0", "1 year -1 day", "-178956970 years -8 mons", "2562047788:00:54.775807",
                  "-00:00:00.000001", "-1 mons +1 days -00:00:01", "178956970 years 7 mons -2147483648 days"],
                 _interval),
    "interval year to month": (["1 year 2 mons"], None),
    "uuid": (["00000000-0000-0000-0000-000000000000"], _uuid),
    "json": (['{"b": 1,  "a":\t[null]}', '"\\u0000"', "1e400", '{"a":1,"a":2}', '"\\ud83d\\ude00"',
              '"\\\\ud800"'], _json),
    "jsonb": (['{"b": 1, "a": [null]}', "1" * 50, "1e400", '"é\\u00e9"'], _json),
    "jsonpath": (["$.a[*] ? (@ > 1)"], None),
    "xml": ([], None),  # the servers of the wheel are built without libxml
    "money": (["-92233720368547758.08", "0", "1234.5"], _within(-(10**9), 10**9)),
    "inet": (["192.168.0.1", "192.168.0.1/24", "::1", "2001:db8::/32"], None),
    "cidr": (["10.0.0.0/8", "::/0"], None),
    "macaddr": (["08:00:2b:01:02:03"], None),
    "macaddr8": (["08:00:2b:01:02:03:04:05"], None),
    "bit(5)": (["10101"], _bits(5, 5)),
    "bit varying": ([""], _bits(0, 70)),
    "point": (["(1.5,-0)", "(NaN,Infinity)"], None),
    "line": (["{1,2,3}"], None),
    "lseg": (["[(0,0),(1,1)]"], None),
    "box": (["(1,1),(0,0)"], None),
    "path": (["[(0,0),(1,1)]", "((0,0),(1,1))"], None),
    "polygon": (["((0,0),(1,1),(1,0))"], None),
    "circle": (["<(0,0),1>"], None),
    "int4range": (["empty", "[1,5)", "(,)", "[,5)"], None),
    "numrange": (["[1.0,1.00]"], None),
    "tstzrange": (['["2024-01-01 00:00:00+02",infinity)'], None),
    "int8multirange": (["{}", "{[1,5), [7,)}"], None),
    "tsvector": (["'a':1A 'b c':2,3"], None),
    "tsquery": (["'a' & !'b'"], None),
    "pg_lsn": (["16/B374D848"], None),
    "regclass": (["pg_class", "public.things"], None),
    "txid_snapshot": (["10:20:10,14,15"], None),
    "int2vector": (["1 2 3"], None),
    "mood": (["happy", "so so", "it's \"bad\", {very}", "NULL"], None),
    "price": (["1.5", "-0.001"], _decimal(8, 3)),
    '"Net Price"': (["1.5"], _decimal(8, 3)),
    "vector(3)": (["[1,-0.5,1e-10]"], None),
    "grid": (["{}", "{{1,2},{3,NULL}}"], None),
    "pair": (['(1,"a ""b"", c")', "(,)"], None),
}  # fmt: skip
