"""What a question holds, checked before anything is done with it: whoever can connect can send anything."""

from __future__ import annotations

import math
from typing import Any

from truecut.journal.log_name import is_log_name
from truecut.journal.replicated import faults
from truecut.journal.replicated.state_file import Home
from truecut.journal.replicated.wire import Message
from truecut.listen_address import Address

NUMBER_MAX = (1 << 63) - 1
TEXT_CHARS_MAX = 200
SEGMENT_MAX = (1 << 32) - 1
LOG_ID_BYTES = 16


def number(asked: Message, key: str, *, least: int = 0, most: int = NUMBER_MAX) -> int:
    """A whole number within bounds."""
    found = _field(asked, key)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise faults.not_understood(f"{key} is not a number from {least} to {most}")
    return found


def optional_number(asked: Message, key: str) -> int | None:
    """The same, or nothing."""
    return None if _field(asked, key) is None else number(asked, key)


def seconds(asked: Message, key: str, *, most: float) -> float:
    """A time to wait; never longer than `most`."""
    found = _field(asked, key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found < 0:
        raise faults.not_understood(f"{key} is not a time")
    return min(float(found), most)


def flag(asked: Message, key: str) -> bool:
    """Yes or no."""
    found = _field(asked, key)
    if not isinstance(found, bool):
        raise faults.not_understood(f"{key} is neither true nor false")
    return found


def optional_flag(asked: Message, key: str) -> bool:
    """The same; no, where nothing is said."""
    return key in asked and flag(asked, key)


def text(asked: Message, key: str) -> str:
    """A short text that prints."""
    found = _field(asked, key)
    if not isinstance(found, str) or not 0 < len(found) <= TEXT_CHARS_MAX or not found.isprintable():
        raise faults.not_understood(f"{key} is not a short text")
    return found


def optional_text(asked: Message, key: str) -> str | None:
    """The same, or nothing."""
    return None if _field(asked, key) is None else text(asked, key)


def texts(asked: Message, key: str) -> list[str]:
    """Any number of short texts."""
    return [text({key: one}, key) for one in _list(asked, key)]


def address(asked: Message, key: str) -> str:
    """HOST:PORT."""
    try:
        return str(Address.parse(text(asked, key)))
    except ValueError:
        raise faults.not_understood(f"{key} is not an address") from None


def log_name(asked: Message, key: str = "log") -> str:
    """The name of a log."""
    found = _field(asked, key)
    if not isinstance(found, str) or not is_log_name(found):
        raise faults.bad_log_name()
    return found


def segments(asked: Message, key: str) -> list[tuple[str, int]]:
    """Segments as pairs of log and number."""
    found = []
    for one in _list(asked, key):
        if not isinstance(one, list) or len(one) != 2:
            raise faults.not_understood(f"{key} holds something that is not a segment")
        pair = {"log": one[0], "segment": one[1]}
        found.append((log_name(pair), number(pair, "segment", most=SEGMENT_MAX)))
    return found


def home(asked: Message) -> Home:
    """Which segment of which log."""
    found = _field(asked, "home")
    if not isinstance(found, dict):
        raise faults.not_understood("home is not a document")
    log_id = text(found, "log_id")
    try:
        whole = len(bytes.fromhex(log_id)) == LOG_ID_BYTES
    except ValueError:
        whole = False
    if not whole:
        raise faults.not_understood("log_id is not an identity")
    segment = number(found, "segment", least=1, most=SEGMENT_MAX)
    return Home(log_name(found), log_id, segment, number(found, "first"), number(found, "token"))


def _list(asked: Message, key: str) -> list[Any]:
    found = _field(asked, key)
    if not isinstance(found, list):
        raise faults.not_understood(f"{key} is not a list")
    return found


def _field(asked: Message, key: str) -> Any:
    if key not in asked:
        raise faults.not_understood(f"{key} is missing")
    return asked[key]
