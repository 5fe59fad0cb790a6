"""Small files that are replaced as a whole: a JSON document, its format's number and its checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truecut.journal import faults
from truecut.journal.disk import Replacing, replace_file

FORMAT = 1


def write_document(path: Path, content: Mapping[str, Any], syncs: Replacing) -> None:
    """Atomic and durable."""
    document = {"format": FORMAT, **content}
    replace_file(path, json.dumps({**document, "crc": _crc(document)}, indent=1).encode(), syncs)


def read_document(path: Path) -> dict[str, Any]:
    """ValueError when it is not what was written; a format from the future is an error of its own."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        if document.pop("crc") != _crc(document):
            raise ValueError("checksum")
        if document.pop("format") > FORMAT:
            raise faults.unknown_format(path)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("shape") from error
    return document


def _crc(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())
