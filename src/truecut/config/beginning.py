"""What `truecut init` begins a pipeline file with: values that connectors make and the command writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_PLAIN = re.compile(r"(\./)?[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the source, and its columns."""

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] | None = None  # its primary key, () for none; None: the source knows no keys


@dataclass(frozen=True, slots=True)
class Beginning:
    """A source's section as lines of YAML (not indented), and its tables where one could look."""

    section: str
    tables: Sequence[FoundTable] | None = None  # None: nobody has looked
    note: str = ""  # to be told to the user


def quoted(text: str) -> str:
    """Text for YAML: as it is where that is plainly safe, otherwise as JSON, which YAML reads the same."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text.replace("$", "$$"), ensure_ascii=False)
