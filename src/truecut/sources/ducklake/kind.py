"""DuckLake as a kind of source: its section of the pipeline file, and how it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from truecut.config.kinds import SourceWords
from truecut.config.section import SourceSection, Text
from truecut.config.settings import SourceSettings
from truecut.lake import LakeAddress, check_engine, lake_of, parse_address, usable_catalog
from truecut.object_store import StorageSection, settle, usable_data_path

if TYPE_CHECKING:
    from truecut.config.beginning import Beginning, FoundTable
    from truecut.model.finding import Check
    from truecut.sources.contract import Reread
    from truecut.sources.ducklake.source import DuckLakeSource
    from truecut.sources.ducklake.survey import DuckLakeSurvey


class DuckLakeSourceSection(SourceSection):
    """A DuckLake whose snapshots are the history."""

    type: Literal["ducklake"] = Field(description="Kind of source.")
    catalog: Text = Field(
        description="The lake's catalog: a DuckDB file; or `sqlite:PATH`; or `postgres:CONNINFO`."
    )
    data_path: Text | None = Field(
        default=None,
        description="Where the data is, if the catalog does not know it: a folder, or `s3://BUCKET/PREFIX`.",
    )
    storage: StorageSection | None = Field(
        default=None, description="How its object store is reached. Left out: the usual chain."
    )


class DuckLakeSourceKind:
    """`type: ducklake` under `source`."""

    title = "DuckLake"
    section = DuckLakeSourceSection
    words = SourceWords(
        commits="snapshots",
        behind="its catalog server and storage",
        keep="keep snapshots longer than a sink may lag",
    )
    dsn_begins = ("",)  # PATH, sqlite:PATH, postgres:CONNINFO
    knows_keys = False
    captured = False
    lists_tables = False
    worker_modules = ("truecut.sources.ducklake.tasks",)

    def check_engine(self) -> Check:
        """DuckDB with its extensions."""
        return check_engine()

    def settle(self, section: DuckLakeSourceSection, *, base: Path) -> LakeAddress:
        """The lake's address."""
        data_path = usable_data_path(section.data_path)
        storage = settle(section.storage, data_path)
        return parse_address(usable_catalog(section.catalog), data_path, base=base, storage=storage)

    def tables(self, settings: SourceSettings) -> Sequence[FoundTable]:
        """It is not asked: the file names them, with their keys."""
        return ()

    def open(self, settings: SourceSettings, *, generation: int) -> DuckLakeSource:
        """The driver's side."""
        from truecut.sources.ducklake.source import DuckLakeSource

        return DuckLakeSource(lake_of(settings.address), generation=generation)

    def place(self, text: str) -> int:
        """A snapshot's number."""
        if not text.isascii() or not text.isdigit():
            raise ValueError("expected a snapshot's number, or a position such as 00000001-0000000001A2B3C0")
        return int(text)

    def begin(self, dsn: str | None, *, folder: Path) -> Beginning:
        """The lake's section, and its tables."""
        from truecut.sources.ducklake.beginning import begin

        return begin(dsn, folder=folder)

    def survey(self, settings: SourceSettings, *, generation: int) -> DuckLakeSurvey:
        """What `plan` and `doctor` ask."""
        from truecut.sources.ducklake.survey import DuckLakeSurvey

        return DuckLakeSurvey(lake_of(settings.address), generation)

    def reread(self, settings: SourceSettings, *, generation: int) -> AbstractContextManager[Reread]:
        """Any version that is still there."""
        from truecut.sources.ducklake.reread import reread

        return reread(self.open(settings, generation=generation))


KIND = DuckLakeSourceKind()
