"""How far a sink is, as the sink itself remembers it: one row, committed with the data.

Each table at the sink (a *copy*) has its own place. `position` is where the tables without an exception
stand together; an exception is a table that does not: held, being seeded, or on its way from another place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truecut.model.position import UNTOLD, Position, SourcePosition
from truecut.model.table import Column, Mode

_NOWHERE = Position(0, 0)
# Holds of a table whose columns at the sink are not those of the source's changes: only a seed goes on.
SHAPE_CODES = frozenset({"TC3011", "TC3012", "TC3013", "TC3014", "TC3015", "TC3016"})
# Holds of a table of whose rows the source's log does not tell what they became: only a seed goes on.
UNTOLD_CODES = frozenset({"TC3052", "TC3054"})


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a table does not go on. Where it stands is the copy's own place."""

    code: str
    message: str
    fix: str = ""  # of the code itself; none where the message says all


@dataclass(frozen=True, slots=True)
class Version:
    """What tells one state of a copy from every other that it ever had: each commit that names the copy
    makes another one, also a seed that ends where the copy stands, a hold and its release."""

    edition: int  # how many times it was seeded
    at: Position
    hold: str | None = None  # the hold's code
    resumed: int = 0  # the last request to resume that was answered
    evidence: str = field(default="", compare=False)  # follows from the rest: one commit, one head


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table at one sink, made by this pipeline: its mode and the columns as last written.

    Its content is exactly its share of the source at `at`; an append table holds every change up to `at`.
    Without columns it was never seeded. `retired_columns` no longer exist at the source; the sink keeps
    them, all NULL.
    """

    mode: Mode
    table_id: str
    columns: tuple[Column, ...]
    retired_columns: tuple[str, ...] = ()
    hold: Hold | None = None
    fingerprint: str = ""  # of the settings that shaped the data: key, route, mode
    at: Position = _NOWHERE
    edition: int = 0
    resumed: int = 0
    source_identity: str = ""  # `at` is a place in this source's history
    source_position: SourcePosition = UNTOLD  # `at` in the source's own words
    evidence: str = ""  # head of its chain of segments, hexadecimal; none since its last seed: ""

    @property
    def version(self) -> Version:
        """As orders expect it."""
        code = None if self.hold is None else self.hold.code
        return Version(self.edition, self.at, code, self.resumed, self.evidence)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The durable state of one sink. `position` is None until the first seed has committed."""

    position: Position | None
    token: int  # fencing token of the last owner
    copies: Mapping[str, CopyState] = field(default_factory=dict)  # by table name
    certificate: str = ""  # digest of the last certificate that counts this cursor in

    def to_json(self) -> str:
        """Everything but position and token, which are columns of their own at a sink."""
        return json.dumps(
            {
                "certificate": self.certificate,
                "copies": {name: _copy_to_dict(copy) for name, copy in sorted(self.copies.items())},
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str, *, position: Position | None, token: int) -> Cursor:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return cls(
            position=position,
            token=token,
            certificate=data["certificate"],
            copies={name: _copy_from_dict(copy) for name, copy in data["copies"].items()},
        )


def _copy_to_dict(copy: CopyState) -> dict[str, Any]:
    hold = copy.hold
    return {
        "at": str(copy.at),
        "edition": copy.edition,
        "hold": None if hold is None else [hold.code, hold.message, hold.fix],
        "resumed": copy.resumed,
        "source_identity": copy.source_identity,
        "source_position": copy.source_position,
        "evidence": copy.evidence,
        "mode": copy.mode,
        "fingerprint": copy.fingerprint,
        "table_id": copy.table_id,
        "columns": [column.to_list() for column in copy.columns],
        "retired_columns": list(copy.retired_columns),
    }


def _copy_from_dict(data: dict[str, Any]) -> CopyState:
    hold = data["hold"]
    return CopyState(
        mode=data["mode"],
        table_id=data["table_id"],
        columns=tuple(Column.from_list(column) for column in data["columns"]),
        retired_columns=tuple(data["retired_columns"]),
        hold=None if hold is None else Hold(*hold),
        fingerprint=data["fingerprint"],
        at=Position.parse(data["at"]),
        edition=data["edition"],
        resumed=data["resumed"],
        source_identity=data["source_identity"],
        source_position=SourcePosition(data["source_position"]),
        evidence=data.get("evidence", ""),  # cursors from before there was any
    )
