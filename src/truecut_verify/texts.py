"""PostgreSQL's texts as canonical bytes, a value at a time: what the log says, in the form of a certificate.

The session fixes how texts look: ISO dates in UTC, intervals and floats in PostgreSQL's own words, bytes in
hexadecimal digits.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation

from truecut_verify.digest import Form, Unencodable, decimal_bytes, integer_bytes

SESSION = (
    "-c timezone=UTC -c datestyle=ISO,YMD -c extra_float_digits=1 -c intervalstyle=postgres -c lc_monetary=C "
    "-c bytea_output=hex -c client_encoding=UTF8 -c search_path=pg_catalog"
)
SINGLE, DOUBLE = (700, 1021), (701, 1022)  # oids: float4 and its array, float8 and its array
_NAN = bytes.fromhex("7ff8000000000000")
_MOMENT = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00)?)?( BC)?", re.ASCII
)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_PART = re.compile(r"([+-]?\d+) (year|mon|day)s?", re.ASCII)
_CLOCK = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_LARGEST = {"infinity": 1, "-infinity": -1}
_INTERVALS = {
    "infinity": ((1 << 31) - 1, (1 << 31) - 1, (1 << 63) - 1),
    "-infinity": (-(1 << 31), -(1 << 31), -(1 << 63)),
}
_400_YEARS = 146_097  # days


def canonical(raw: bytes, form: Form, oid: int, delimiter: str | None) -> bytes:
    """The bytes of a value that is not NULL. `oid`: of its column's type; `delimiter`: of its arrays, if the
    server still knows the type."""
    try:
        return _canonical(raw.decode(), form, oid, delimiter)
    except (ValueError, ArithmeticError, InvalidOperation) as error:
        raise Unencodable("a text of the log that is not of the certificate's form") from error


def _canonical(text: str, form: Form, oid: int, delimiter: str | None) -> bytes:
    if isinstance(form, dict):
        return _array(text, form["list"], oid, delimiter) if "list" in form else _interval(text)
    name, _, argument = form.partition(":")
    match name:
        case "bool":
            return bytes([["f", "t"].index(text)])
        case "int":
            return integer_bytes(int(text))
        case "decimal":
            return decimal_bytes(Decimal(text), int(argument))
        case "float":
            return _float(text, oid)
        case "text":
            return text.encode()
        case "bytes":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "uuid":
            return bytes.fromhex(text.replace("-", ""))
        case "date":
            return _signed(_moment(text, 31, days=True))
        case "timestamp":
            return _signed(_moment(text, 63, days=False))
        case "time":
            return _signed(_clock(_TIME.fullmatch(text)))
    raise Unencodable("a form that PostgreSQL has not")


def _signed(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _float(text: str, oid: int) -> bytes:
    """A single is the double that has its value."""
    number = float(text)
    if oid not in SINGLE + DOUBLE:
        raise Unencodable("a float of a type that is not PostgreSQL's own")
    if oid in SINGLE:
        number = struct.unpack(">f", struct.pack(">f", number))[0]
    return struct.pack(">d", number) if number == number else _NAN


def _moment(text: str, bits: int, *, days: bool) -> int:
    """Since 1970: days, or microseconds. Infinities are the largest number, and its negative."""
    if text in _LARGEST:
        return _LARGEST[text] * ((1 << bits) - 1)
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError
    year = 1 - int(found[1]) if found[8] else int(found[1])
    shifted, cycles = year % 400 + 2000, year // 400 - 5  # the calendar repeats, and `date` knows four digits
    of_day = date(shifted, int(found[2]), int(found[3])).toordinal() - 719_163 + cycles * _400_YEARS
    if days:
        return of_day
    clock = [int(found[n] or 0) for n in (4, 5, 6)]
    seconds = of_day * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2]
    return seconds * 1_000_000 + int((found[7] or "").ljust(6, "0"))


def _clock(found: re.Match[str] | None) -> int:
    """Microseconds since midnight."""
    if found is None:
        raise ValueError
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return seconds * 1_000_000 + int((found[4] or "").ljust(6, "0"))


def _interval(text: str) -> bytes:
    """Months, days and microseconds."""
    parts = {unit: int(number) for number, unit in _PART.findall(text)}
    clock = _CLOCK.search(text)
    micros = 0
    if clock is not None:
        seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + int(clock[4])
        micros = seconds * 1_000_000 + int((clock[5] or "").ljust(6, "0"))
        micros = -micros if clock[1] == "-" else micros
    told = (parts.get("year", 0) * 12 + parts.get("mon", 0), parts.get("day", 0), micros)
    return b"".join(item(integer_bytes(one)) for one in _INTERVALS.get(text, told))


def item(raw: bytes | None) -> bytes:
    """A value that ends by itself."""
    return b"\0" if raw is None else b"\1" + len(raw).to_bytes(8, "big") + raw


def list_bytes(values: list[bytes | None]) -> bytes:
    """How many, then each of them."""
    return len(values).to_bytes(8, "big") + b"".join(item(value) for value in values)


# --- arrays ---------------------------------------------------------------------------------------------


def _array(text: str, form: Form, oid: int, delimiter: str | None) -> bytes:
    """An array's text: `{1,NULL,"a b"}`, perhaps with its bounds before it."""
    if text.startswith("["):
        text = text[text.index("=") + 1 :]
    if delimiter is None:
        raise Unencodable("an array of a type that is gone")
    letters = iter(text)
    if next(letters) != "{":
        raise ValueError
    return _elements(letters, form, oid, delimiter)


def _elements(letters: Iterator[str], form: Form, oid: int, delimiter: str) -> bytes:
    """Behind an opening brace, up to the closing one."""
    found: list[bytes | None] = []
    word, quoted, begun = "", False, False

    def end_word() -> None:
        if begun:
            is_null = word == "NULL" and not quoted
            found.append(None if is_null else _canonical(word, form, oid, delimiter))

    for letter in letters:
        if letter == "{":
            if not (isinstance(form, dict) and "list" in form):
                raise ValueError
            found.append(_elements(letters, form["list"], oid, delimiter))
        elif letter in (delimiter, "}"):
            end_word()
            word, quoted, begun = "", False, False
            if letter == "}":
                return list_bytes(found)
        elif letter == '"':
            word, quoted, begun = word + _quoted(letters), True, True
        else:
            word, begun = word + letter, True
    raise ValueError


def _quoted(letters: Iterator[str]) -> str:
    """Behind a quotation mark, up to the next one."""
    found: list[str] = []
    for letter in letters:
        if letter == '"':
            return "".join(found)
        found.append(next(letters) if letter == "\\" else letter)
    raise ValueError
