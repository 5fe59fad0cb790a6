"""PostgreSQL as a kind of source: its section of the pipeline file, and how it is opened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from truecut.config import units
from truecut.config.kinds import SourceWords, Unusable
from truecut.config.secret import Secret
from truecut.config.section import Section, Size, SourceSection, Text
from truecut.config.settings import SourceSettings
from truecut.core.capture import WalBudget
from truecut.sources.postgres.address import NAME_MAX, READERS, PostgresSource, UnitPace
from truecut.sources.postgres.messages import lsn_of

if TYPE_CHECKING:
    from truecut.config.beginning import Beginning, FoundTable
    from truecut.model.finding import Check
    from truecut.sources.captured import Captured
    from truecut.sources.contract import Reread
    from truecut.sources.postgres.source import CapturedSource
    from truecut.sources.postgres.survey import PostgresSurvey

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class WalBudgetSection(Section):
    """How much of its log the server may keep for us, and what then."""

    bytes_max: Size = Field(description="How much of its log the server may keep for this pipeline.")
    then: Literal["warn", "give_up"] = Field(
        default="warn",
        description="warn: say so. give_up: drop the slot, for the sake of the server's disk; the tables are "
        "copied anew later.",
    )


class BackfillSection(Section):
    """How tables that have content are read."""

    connections_max: int = Field(
        default=READERS, ge=1, le=256, description="How many units are read at once, by a session each."
    )
    rows_per_s: int | None = Field(
        default=None, ge=1, description="How many rows a second are read at most, by all of them together."
    )


class PostgresSourceSection(SourceSection):
    """A live PostgreSQL, 15 or newer, whose changes are captured from a logical replication slot."""

    type: Literal["postgres"] = Field(description="Kind of source.")
    dsn: Text = Field(description="A connection string of libpq: `postgresql://…` or `host=… dbname=…`.")
    slot: Text | None = Field(
        default=None, description="The replication slot. Default: `truecut_NAME`; made when it is missing."
    )
    publication: Text | None = Field(
        default=None,
        description="The publication. Default: `truecut_NAME`; made for the tables of this file when it is "
        "missing and that is permitted.",
    )
    wal_budget: WalBudgetSection | None = Field(
        default=None, description="How much of its log the server may keep for us, and what then."
    )
    backfill: BackfillSection = Field(
        default_factory=BackfillSection, description="How tables that have content are read."
    )


class PostgresSourceKind:
    """`type: postgres` under `source`."""

    title = "PostgreSQL"
    section = PostgresSourceSection
    words = SourceWords(
        behind="its server and the journal",
        keep="give `wal_budget`, `journal.bytes_max` and the sink's `hold` more room",
    )
    dsn_begins = ("postgresql://", "postgres://")  # no catalog of a lake is written so
    knows_keys = True
    lists_tables = True
    captured = True
    worker_modules = ("truecut.sources.postgres.tasks",)

    def check_engine(self) -> Check:
        """psycopg with libpq."""
        import psycopg

        from truecut.model.finding import Check

        return Check("psycopg", f"{psycopg.__version__} with libpq {psycopg.pq.version()}")

    def settle(self, section: PostgresSourceSection, *, base: Path) -> PostgresSource:
        """The database's address."""
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            conninfo_to_dict(section.dsn)
        except ProgrammingError:  # its text holds the address
            raise Unusable("dsn", "not a connection string; write postgresql://USER@HOST/DATABASE") from None
        if section.slot is not None and not _SLOT.fullmatch(section.slot):
            raise Unusable("slot", "a slot's name has small letters, digits and _, at most 63 of them")
        if section.publication is not None and len(section.publication.encode()) > NAME_MAX:
            raise Unusable("publication", "longer than the 63 bytes that PostgreSQL's names have")
        pace = UnitPace(section.backfill.connections_max, section.backfill.rows_per_s)
        return PostgresSource(Secret(section.dsn), section.slot, section.publication, _budget(section), pace)

    def tables(self, settings: SourceSettings) -> Sequence[FoundTable]:
        """Every table of its own."""
        from truecut.sources.postgres.address import server_address
        from truecut.sources.postgres.beginning import tables

        return tables(server_address(settings))

    def open(self, settings: SourceSettings, *, generation: int) -> CapturedSource:
        """The driver's side."""
        from truecut.sources.postgres.source import CapturedSource

        return CapturedSource(settings, generation=generation)

    def capturing(self, settings: SourceSettings) -> Captured:
        """The server and what is in the journal of it."""
        from truecut.sources.postgres.captured_server import CapturedServer

        return CapturedServer(settings)

    def place(self, text: str) -> int:
        """A place in the server's log: everything before it, so the one before it is the last of ours."""
        if not _LSN.fullmatch(text) or not lsn_of(text):
            raise ValueError("expected a place in the log, e.g. 0/16B3748, or a position of ours")
        return lsn_of(text) - 1

    def begin(self, dsn: str | None, *, folder: Path) -> Beginning:
        """The server's section, and its tables."""
        from truecut.sources.postgres.beginning import begin

        return begin(dsn)

    def survey(self, settings: SourceSettings, *, generation: int) -> PostgresSurvey:
        """What `plan` and `doctor` ask."""
        from truecut.sources.postgres.survey import PostgresSurvey

        return PostgresSurvey(settings, generation)

    def reread(self, settings: SourceSettings, *, generation: int) -> AbstractContextManager[Reread]:
        """The server as it is now, at the place of a temporary slot."""
        from truecut.sources.postgres.reread import reread

        return reread(settings, generation=generation)


def _budget(section: PostgresSourceSection) -> WalBudget | None:
    budget = section.wal_budget
    if budget is None:
        return None
    return WalBudget(units.size_bytes(budget.bytes_max), give_up=budget.then == "give_up")


KIND = PostgresSourceKind()
