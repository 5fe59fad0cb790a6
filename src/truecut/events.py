"""What happened, as a line of the log: a sentence, and beside it the code, sink, table and position.

Promises: nothing but names, positions, counts and codes; who writes a line passes no row's value and no
secret, as with errors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from truecut.errors import Fault
from truecut.model.position import Position

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """What a line is about, for machines; what it is not about is empty."""

    code: str = ""
    sink: str = ""
    table: str = ""
    position: str = ""

    def items(self) -> list[tuple[str, str]]:
        """Those there are."""
        named = (("code", self.code), ("sink", self.sink), ("table", self.table), ("position", self.position))
        return [(name, value) for name, value in named if value]


def tell(
    log: logging.Logger,
    level: int,
    message: str,
    *,
    code: str = "",
    sinks: Collection[str] = (),
    table: str = "",
    position: Position | None = None,
) -> None:
    """One line."""
    where = "" if position is None else str(position)
    log.log(level, "%s", message, extra={"facts": Facts(code, named(sinks), table, where)})


def tell_fault(log: logging.Logger, fault: Fault, *, sinks: Collection[str] = (), table: str = "") -> None:
    """A line that warns: what is wrong, and what to do."""
    tell(log, logging.WARNING, f"{fault.message}. {fault.fix}", code=fault.code, sinks=sinks, table=table)


def named(names: Collection[str]) -> str:
    """A few of them, and how many more."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(sorted(names)[:NAMED_MAX]) + more
