"""The chain of a copy's segments: their headers, and the head that the sink's cursor keeps.

Pure; the words of docs/certificate-format.md.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

NO_HEAD = ""  # of a copy without a chain; before a chain's first segment


@dataclass(frozen=True, slots=True)
class Header:
    """What one commit of a sink brought to one copy; positions as texts."""

    after: str | None
    edition: int
    kind: Literal["base", "changes"]
    rows: int
    sha256: str
    sink: str
    table: str
    upto: str
    splice_sha256: str = ""  # of the evidence of its units, where it has that

    def told(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        found = asdict(self)
        if not self.splice_sha256:
            del found["splice_sha256"]
        return found

    def __str__(self) -> str:
        """As it is chained."""
        return canonical(self.told())

    @classmethod
    def parse(cls, text: str) -> Header:
        """Read what `str` wrote."""
        return cls(**json.loads(text))


def canonical(value: Any) -> str:
    """Canonical JSON: one text for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def chained(head: str, header: str) -> str:
    """The next head: before the first there are 32 zero bytes."""
    return hashlib.sha256((bytes.fromhex(head) or bytes(32)) + header.encode()).hexdigest()


def hash_of_hashes(hashes: list[str]) -> str:
    """What a header says of its files, in their order."""
    return hashlib.sha256(b"".join(map(bytes.fromhex, hashes))).hexdigest()
