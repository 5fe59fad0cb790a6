"""Durations and sizes as users write them: `500ms 2s 10m 1h`, `64MiB`, nothing else."""

from __future__ import annotations

import re

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

DURATION_PATTERN = r"[0-9]{1,9}(ms|s|m|h)"
SIZE_PATTERN = r"[0-9]{1,9}(KiB|MiB|GiB|TiB)"

_DURATION = re.compile(DURATION_PATTERN)
_SIZE = re.compile(SIZE_PATTERN)
_LOOSE = re.compile(r"\s*([0-9]{1,9})\s*([A-Za-z]*)\s*")
_DURATION_WORDS = {
    **dict.fromkeys(("", "ms", "msec", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
}


def duration_ms(text: str) -> int:
    """`2s` → 2000; ValueError, which says what is expected, for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("not a duration; write e.g. 500ms, 2s, 10m or 1h")
    return int(text[: -len(match[1])]) * _MILLISECONDS[match[1]]


def size_bytes(text: str) -> int:
    """`64MiB` → 67108864; ValueError, which says what is expected, for anything else."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("not a size; write e.g. 64MiB (KiB, MiB, GiB or TiB)")
    return int(text[: -len(match[1])]) * _BYTES[match[1]]


def nearest_duration(text: str) -> str | None:
    """What was probably meant: `2 sec` → `2s`."""
    match = _LOOSE.fullmatch(text)
    unit = _DURATION_WORDS.get(match[2].lower()) if match else None
    return f"{match[1]}{unit}" if match and unit else None


def meant_duration(text: str) -> str:
    """The end of a message: what was probably meant; a number alone may be two things."""
    if text.isascii() and text.isdecimal():
        return f'; did you mean "{text}s" or "{text}ms"?'
    near = nearest_duration(text)
    return f'; did you mean "{near}"?' if near else ""


def nearest_size(text: str) -> str | None:
    """What was probably meant: `64 MB` → `64MiB`."""
    match = _LOOSE.fullmatch(text)
    letter = match[2][:1].upper() if match else ""
    known = letter in ("K", "M", "G", "T")
    return f"{match[1]}{letter}iB" if match and known else None
