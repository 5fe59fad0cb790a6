"""Since where in the log a table is told of without a break: durable, beside the units of the table.

    <folder>/<table>/footing.json

Promises: a table whose footing is not known, or has shaken, counts as told only from the place of that look
on, also for a process that begins later; losing the file costs another reading, never data.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truecut.sources.postgres.footing import Footing, Shaken, shaken

FILE = "footing.json"


@dataclass(frozen=True, slots=True)
class Standpoint:
    """Of one table along one log."""

    log: str
    lsn: int  # of the look
    footing: Footing
    rows: int  # whoever stands before this place lacks rows
    events: int  # the same, of who asks for every change and no more
    why: str
    former: tuple[int, ...] = ()  # tables that had the name before

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        fields = {"log": self.log, "lsn": self.lsn, "rows": self.rows, "events": self.events}
        more = {"why": self.why, "former": list(self.former)}
        return {**fields, **more, "footing": self.footing.document()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Standpoint:
        """Read what `document` gave."""
        former = tuple(document.get("former", ()))
        return cls(**{**document, "former": former, "footing": Footing.of(document["footing"])})


FIRST = "what happened to it before it was first looked at is not known"
AWAY = "another table had its name for a while"


def after_look(
    known: Standpoint | None, footing: Footing, *, log: str, lsn: int
) -> tuple[Standpoint, Shaken | None]:
    """What is known with one more look, and what it has found. Pure. Another table of that name has another
    story, which its oid tells; one that comes back has a part that nobody followed."""
    if known is None or known.log != log:
        return Standpoint(log, lsn, footing, lsn - 1, lsn - 1, FIRST), None
    if lsn < known.lsn:
        return known, None  # somebody has looked later
    former = known.former
    if footing.oid != known.footing.oid:
        found = Shaken(AWAY, events=True) if footing.oid in former else None
        former = (*(oid for oid in former if oid != footing.oid), known.footing.oid)
    else:
        found, footing = shaken(known.footing, footing), footing.behind(known.footing)
    now = replace(known, lsn=lsn, footing=footing, former=former)
    if found is None:
        return now, None
    return replace(now, rows=lsn - 1, events=lsn - 1 if found.events else known.events, why=found.why), found


def read(folder: Path) -> Standpoint | None:
    """What is known; None where nothing is, or nothing that can be read."""
    try:
        return Standpoint.of(json.loads((folder / FILE).read_text()))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, standpoint: Standpoint) -> None:
    """Durable, in place of what was known."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{FILE}.{uuid.uuid4().hex}.draft"
    with draft.open("w") as file:
        json.dump(standpoint.document(), file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / FILE)
