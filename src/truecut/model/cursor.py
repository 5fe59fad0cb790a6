"""How far a sink is, as the sink itself remembers it: one row, committed with the data.

All tables without an exception stand at `position` together. An exception is a table that does not:
held (stopped by an error or paused) at an older position of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truecut.model.position import Position
from truecut.model.table import Column, Mode

NOT_CARRIED_CODE = "TC3007"  # the table was taken out of the pipeline; back in it, it goes on


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a table does not advance with the others, and where it stands."""

    at: Position
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table at one sink, made by this pipeline: its mode and the columns as last written.

    `retired_columns` no longer exist at the source; the sink keeps them, all NULL.
    """

    mode: Mode
    table_id: str
    columns: tuple[Column, ...]
    retired_columns: tuple[str, ...] = ()
    hold: Hold | None = None
    fingerprint: str = ""  # of the settings that shaped the data: key, route, mode


@dataclass(frozen=True, slots=True)
class Cursor:
    """The durable state of one sink. `position` is None until the first seed has committed."""

    position: Position | None
    token: int  # fencing token of the last owner
    source_identity: str = ""
    copies: Mapping[str, CopyState] = field(default_factory=dict)  # by table name
    certificate: str = ""

    def to_json(self) -> str:
        """Everything but position and token, which are columns of their own at a sink."""
        return json.dumps(
            {
                "source_identity": self.source_identity,
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
            source_identity=data["source_identity"],
            certificate=data["certificate"],
            copies={name: _copy_from_dict(copy) for name, copy in data["copies"].items()},
        )


def _copy_to_dict(copy: CopyState) -> dict[str, Any]:
    hold = copy.hold
    return {
        "mode": copy.mode,
        "table_id": copy.table_id,
        "columns": [[c.id, c.name, c.type, c.initial] for c in copy.columns],
        "retired_columns": list(copy.retired_columns),
        "hold": None if hold is None else [str(hold.at), hold.code, hold.message],
        "fingerprint": copy.fingerprint,
    }


def _copy_from_dict(data: dict[str, Any]) -> CopyState:
    hold = data["hold"]
    return CopyState(
        mode=data["mode"],
        table_id=data["table_id"],
        columns=tuple(Column(*column) for column in data["columns"]),
        retired_columns=tuple(data["retired_columns"]),
        hold=None if hold is None else Hold(Position.parse(hold[0]), hold[1], hold[2]),
        fingerprint=data["fingerprint"],
    )
