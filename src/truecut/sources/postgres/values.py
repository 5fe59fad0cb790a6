"""From PostgreSQL's texts to typed Arrow arrays, a whole column at a time.

Each reader takes a binary array of texts, in the form that `session.TEXT_FORM` fixes, and gives an array of
its type, exactly. What the type cannot hold is refused by `Unfit` with the first such value's number, never
rounded, shifted or made NULL. Ordinary values go through Arrow's own parsers; those that they do not know
(infinity, BC, years of five digits) are read one by one.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Reader: TypeAlias = Callable[[pa.Array], pa.Array]

INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())])

_DAY_US = 86_400_000_000
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1


class Unfit(ValueError):
    """A value that its column's type cannot hold. The reason does not name it."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index, self.reason = index, reason


def caster(kind: pa.DataType, reason: str) -> Reader:
    """A reader for which Arrow's own parser is the whole of it."""

    def read(texts: pa.Array) -> pa.Array:
        return _parsed(texts.view(pa.string()), lambda part: part.cast(kind), reason)

    return read


def _parsed(texts: pa.Array, parse: Reader, reason: str) -> pa.Array:
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        raise Unfit(_first_refused(texts, parse), reason) from None


def _first_refused(texts: pa.Array, parse: Reader) -> int:
    """By halving: a slice is refused when it holds a refused value."""
    low, high = 0, len(texts)  # the first one is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(texts.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def text(texts: pa.Array) -> pa.Array:
    """Any text; a database whose encoding is SQL_ASCII may send bytes that are none."""
    return _parsed(texts, lambda part: part.cast(pa.string()), "it is not UTF-8")


def boolean(texts: pa.Array) -> pa.Array:
    """t or f."""
    true = pc.equal(texts, b"t")
    _require(texts, pc.or_(true, pc.equal(texts, b"f")), "it is no boolean")
    return true


def uuid(texts: pa.Array) -> pa.Array:
    """Travels as text: 36 characters."""
    _require(texts, pc.equal(pc.binary_length(texts), 36), "it is no uuid")
    return text(texts)


def bytea(texts: pa.Array) -> pa.Array:
    r"""\x and two hexadecimal digits for each byte."""
    form = pc.and_(
        pc.starts_with(texts, pattern=rb"\x"), pc.equal(pc.bit_wise_and(pc.binary_length(texts), 1), 0)
    )
    _require(texts, form, "it is not in the hex form")
    filled = pc.fill_null(texts, rb"\x")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1]
    whole = bytes(memoryview(filled.buffers()[2] or b"")[offsets[0] : offsets[-1]])
    try:
        found = binascii.unhexlify(whole.replace(rb"\x", b""))
    except binascii.Error:
        wrong = pc.invert(pc.match_substring_regex(filled, r"^\\x[0-9a-fA-F]*$"))
        raise Unfit(pc.index(wrong, True).as_py(), "it is not in the hex form") from None
    ends = pa.py_buffer(((offsets - offsets[0]) // 2 - np.arange(len(offsets))).astype(np.int32))
    made = pa.Array.from_buffers(pa.binary(), len(texts), [None, ends, pa.py_buffer(found)])
    return made if texts.null_count == 0 else pc.if_else(texts.is_valid(), made, pa.scalar(None, pa.binary()))


_BACKSLASH = re.compile(rb"\\\\")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def json_text(texts: pa.Array) -> pa.Array:
    """As it was written. What names half a character (only the type json keeps it) is JSON nowhere else."""
    suspects = pc.fill_null(pc.match_substring_regex(texts, _SURROGATE.pattern.decode()), False)
    for index in pc.indices_nonzero(suspects).to_pylist():
        escapes = _BACKSLASH.sub(b" ", texts[index].as_py())
        if _SURROGATE.search(_PAIR.sub(b" ", escapes)):
            raise Unfit(index, "its JSON names half of a character")
    return text(texts)


def _require(texts: pa.Array, holds: pa.Array, reason: str) -> None:
    """For every value that is there."""
    if not pc.all(holds, min_count=0).as_py():
        raise Unfit(pc.index(holds, False).as_py(), reason)


# --- time -----------------------------------------------------------------------------------------------


def date(texts: pa.Array) -> pa.Array:
    """Days since 1970; infinity is DuckDB's."""
    return _moments(texts.view(pa.string()), pa.date32(), _date_days)


def timestamp(texts: pa.Array) -> pa.Array:
    """Microseconds since 1970; infinity is DuckDB's."""
    return _moments(texts.view(pa.string()), pa.timestamp("us"), _moment_us)


def timestamptz(texts: pa.Array) -> pa.Array:
    """The same, in UTC."""
    return _moments(texts.view(pa.string()), pa.timestamp("us", tz="UTC"), _moment_us)


def _moments(texts: pa.Array, kind: pa.DataType, odd: Callable[[str], int]) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        pass
    # Arrow reads years of four digits; everything else is rare.
    ordinary = pc.match_substring_regex(texts, r"^\d{4}-[^a-zB]*$")
    plain = pc.if_else(ordinary, texts, pa.scalar(None, pa.string()))
    found = _parsed(plain, lambda part: part.cast(kind), "it is not in the ISO form")
    numbers = pa.int32() if kind == pa.date32() else pa.int64()
    rare = pc.fill_null(pc.invert(ordinary), False)
    values = [_odd(index, texts[index].as_py(), odd) for index in pc.indices_nonzero(rare).to_pylist()]
    return pc.replace_with_mask(found.view(numbers), rare, pa.array(values, numbers)).view(kind)


def _odd(index: int, value: str, read: Callable[[str], int]) -> int:
    try:
        return read(value)
    except (ValueError, OverflowError):
        raise Unfit(
            index, "it is out of the range of years that can be stored, or not in the ISO form"
        ) from None


_MOMENT = re.compile(
    r"(\d{4,7})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00)?)?( BC)?", re.ASCII
)


def _date_days(value: str) -> int:
    if value in ("infinity", "-infinity"):
        return -_INT32 if value[0] == "-" else _INT32
    match = _MOMENT.fullmatch(value)
    if match is None:
        raise ValueError
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError
    return _days(1 - year if match[8] else year, month, day)


def _moment_us(value: str) -> int:
    if value in ("infinity", "-infinity"):
        return -_INT64 if value[0] == "-" else _INT64
    match = _MOMENT.fullmatch(value)
    if match is None or match[4] is None:
        raise ValueError
    seconds = int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    if seconds >= 86_400:
        raise ValueError
    found = _date_days(value) * _DAY_US + seconds * 1_000_000 + int((match[7] or "").ljust(6, "0"))
    if not -_INT64 < found < _INT64:
        raise OverflowError
    return found


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, extended to all years; the year 0 is 1 BC."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def time(texts: pa.Array) -> pa.Array:
    """Microseconds since midnight; 24:00:00 is a value."""
    strings = texts.view(pa.string())
    ends = pc.equal(strings, "24:00:00")
    within = pc.if_else(ends, "00:00:00", strings)
    _require(texts, pc.match_substring_regex(strings, r"^\d\d:\d\d:\d\d(\.\d{1,6})?$"), "it is no time")
    dated = pc.binary_join_element_wise(pa.scalar("1970-01-01"), within, " ")
    found = _parsed(dated, lambda part: part.cast(pa.timestamp("us")), "it is no time").view(pa.int64())
    return pc.if_else(ends, pa.scalar(_DAY_US), found).view(pa.time64("us"))


_INTERVAL = (
    r"^(?:(?P<years>[+-]?\d+) years? ?)?(?:(?P<mons>[+-]?\d+) mons? ?)?(?:(?P<days>[+-]?\d+) days? ?)?"
    r"(?:(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?$"
)
_INFINITE = {"infinity": (_INT32, _INT32, _INT64), "-infinity": (-_INT32 - 1, -_INT32 - 1, -_INT64 - 1)}


def interval(texts: pa.Array) -> pa.Array:
    """Months, days and microseconds, which PostgreSQL keeps apart; infinity as PostgreSQL stores it."""
    strings = texts.view(pa.string())
    infinite = pc.is_in(strings, pa.array(list(_INFINITE)))
    finite = pc.if_else(infinite, "00:00:00", strings)
    form = pc.and_(pc.match_substring_regex(finite, _INTERVAL), pc.not_equal(finite, ""))
    _require(texts, form, "it is not in PostgreSQL's own form")
    parts = pc.extract_regex(finite, _INTERVAL)
    months = _part(parts, "years") * 12 + _part(parts, "mons")
    signs = np.where(np.asarray(pc.equal(pc.struct_field(parts, "sign"), "-").fill_null(False)), -1, 1)
    seconds = _part(parts, "hours") * 3600 + _part(parts, "minutes") * 60 + _part(parts, "seconds")
    micros = (seconds * 1_000_000 + _part(parts, "fraction", digits=6)) * signs
    columns = [months.astype(np.int32), _part(parts, "days").astype(np.int32), micros]
    for endless in _INFINITE.values():  # before PostgreSQL 17 it is a finite value
        same = np.logical_and.reduce([column == part for column, part in zip(columns, endless, strict=True)])
        if same.any():
            raise Unfit(int(same.argmax()), "it is the longest interval, as which infinity is stored")
    for index in pc.indices_nonzero(pc.fill_null(infinite, False)).to_pylist():
        for column, value in zip(columns, _INFINITE[strings[index].as_py()], strict=True):
            column[index] = value
    arrays = [pa.array(column) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(INTERVAL), mask=texts.is_null())


def _part(parts: pa.StructArray, name: str, *, digits: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = pc.fill_null(pc.struct_field(parts, name), "")
    if digits:
        found = pc.utf8_rpad(found, digits, "0")
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(
        pc.replace_substring_regex(pc.if_else(pc.equal(found, ""), "0", found), r"^\+", "").cast(pa.int64())
    ).copy()
    return numbers
