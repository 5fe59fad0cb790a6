"""Names of logs: each is the name of a folder, on every machine that holds a part of the log."""

from __future__ import annotations

NAME_BYTES_MAX = 200


def is_log_name(text: str) -> bool:
    """Whether a folder can be called so, and nothing but a folder right here."""
    if not text or text.startswith(".") or "/" in text or not text.isprintable():
        return False
    return len(text.encode()) <= NAME_BYTES_MAX
