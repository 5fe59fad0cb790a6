"""Whether a server's log goes on where the journal ends: decided from what both say. Pure.

Promises: a log is gone on with only where nothing can be missing between the journal's end and what the
slot will send next. Everything else is a gap with its reason, and begins a new generation. A slot has no
identity of its own; but one that was made anew, or that somebody else has moved, confirms a place that the
journal has not reached: we confirm nothing that the journal has not committed (C1).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from truecut.sources.postgres.messages import lsn_of, lsn_text


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published. A table that is taken out and put in again has another entry."""

    oid: int
    shape: str  # which operations, all tables or not, partitions by their root or not
    tables: Mapping[str, str] = field(default_factory=dict)  # name → entry, columns, filter; {} for all
    since: str = ""  # the transaction that last said which operations; "" where nobody noted it

    def missing(self, now: Publication) -> dict[int, str]:
        """Tables whose entries are no longer there: their oids, and names."""
        entries = set(now.tables.values())
        gone = {name: json.loads(entry) for name, entry in self.tables.items() if entry not in entries}
        return {int(entry["prrelid"]): name for name, entry in gone.items() if "prrelid" in entry}

    def without(self, names: Collection[str]) -> Publication:
        """What it was but for these."""
        return replace(self, tables={name: one for name, one in self.tables.items() if name not in names})

    def lost(self, now: Publication) -> str | None:
        """Why changes may be missing between this and now; more tables than before are no reason, nor is
        another name: the entry says which table it is."""
        if now.oid != self.oid:
            return "was made anew"
        if now.shape != self.shape:
            return "publishes other operations or tables than before"
        if self.since and now.since != self.since:
            return "was altered, and may have published other operations for a while"
        entries = set(now.tables.values())
        other = sorted(name for name, entry in self.tables.items() if entry not in entries)
        return f"has changed for {', '.join(other)}" if other else None


@dataclass(frozen=True, slots=True)
class Place:
    """How far the journal has the source's log, and of which log: what a marker holds."""

    lsn: int  # everything that committed up to here is in the journal
    system: str  # the server's system identifier
    timeline: int
    database: str
    slot: str
    slot_since: int  # where the slot was first seen
    publication: Publication
    xid_near: int  # a 64-bit transaction id less than 2^31 from those of the records
    gap: str | None = None  # why nothing before this belongs to what follows
    begun: str = ""  # drawn where the generation begins: two logs may begin at the same place of one slot

    @property
    def server(self) -> str:
        """Whose log it is, and which history of it: a standby that takes over begins another one."""
        return server_name(self.system, self.timeline)

    def document(self) -> dict[str, Any]:
        """As JSON documents hold it."""
        lsns = {"lsn": lsn_text(self.lsn), "slot_since": lsn_text(self.slot_since)}
        return {**asdict(self), **lsns, "xid_near": str(self.xid_near)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Place:
        """Read what `document` gave."""
        return cls(
            **{
                **document,
                "lsn": lsn_of(document["lsn"]),
                "slot_since": lsn_of(document["slot_since"]),
                "xid_near": int(document["xid_near"]),
                "publication": Publication(**document["publication"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the server shows it."""

    confirmed: int
    restart: int | None  # from here on the server keeps its log for us; None once it no longer does
    retained_bytes: int
    safe_bytes: int | None  # until the server's own limit; None without one
    plugin: str
    database: str
    two_phase: bool
    active_pid: int | None
    invalid: str | None  # why it is of no use any more
    failover: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What the server says now."""

    system: str
    timeline: int
    switches: Mapping[int, int]  # timeline → where it ended, for those before the server's own
    database: str
    flushed: int  # how far its log is durable
    xid_next: int
    slot: Slot | None
    publication: Publication | None
    version: int = 0  # 180004


def server_name(system: str, timeline: int) -> str:
    """Of a server on a timeline."""
    return f"{system}/{timeline}"


def gap(known: Place, look: Look) -> str | None:
    """Why the log does not go on where the journal ends; None when it does."""
    return _of_server(known, look) or _of_slot(known, look.slot) or _of_publication(known, look)


def _of_server(known: Place, look: Look) -> str | None:
    if look.system != known.system:
        return f"the server is another one (system identifier {look.system}, not {known.system})"
    if look.database != known.database:
        return f"the database is another one ({look.database}, not {known.database})"
    if look.timeline != known.timeline and look.switches.get(known.timeline, -1) < known.lsn:
        return f"the server is on timeline {look.timeline}, which left {known.timeline} before our place"
    if look.flushed < known.lsn:
        return f"the server's log ends at {lsn_text(look.flushed)}: it was put back to an earlier state"
    return None


def _of_slot(known: Place, slot: Slot | None) -> str | None:
    if slot is None:
        return f"the slot {known.slot} is gone"
    if slot.invalid is not None:
        return f"the slot {known.slot} was invalidated ({slot.invalid})"
    if slot.confirmed > known.lsn:  # C1
        return f"the slot {known.slot} was made anew or moved by somebody else, to {lsn_text(slot.confirmed)}"
    return None


def _of_publication(known: Place, look: Look) -> str | None:
    if look.publication is None:
        return "the publication is gone"
    why = known.publication.lost(look.publication)
    return f"the publication {why}" if why else None
