"""DuckLake as a kind of sink: its section of the pipeline file, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from truecut.config.beginning import quoted
from truecut.config.kinds import Address
from truecut.config.section import SinkSection, Text
from truecut.config.settings import SinkSettings
from truecut.lake import LakeAddress, check_engine, lake_of, parse_address, usable_catalog
from truecut.object_store import StorageSection, settle, usable_data_path

if TYPE_CHECKING:
    from truecut.model.finding import Check, Finding
    from truecut.sinks.contract import Pinned, SinkLook
    from truecut.sinks.ducklake.sink import DuckLakeSink


class DuckLakeSinkSection(SinkSection):
    """A DuckLake, or one for each line of a `for_each` file."""

    type: Literal["ducklake"] = Field(description="Kind of sink.")
    catalog: Text = Field(description="As for the source. Created when it does not exist.")
    data_path: Text | None = Field(
        default=None,
        description="Where the data goes, if the catalog does not know it already: a folder, or"
        " `s3://BUCKET/PREFIX`.",
    )
    storage: StorageSection | None = Field(default=None, description="As for the source.")


class DuckLakeSinkKind:
    """`type: ducklake` under `sinks`."""

    title = "DuckLake"
    section = DuckLakeSinkSection
    holder = "catalog"
    worker_modules = ("truecut.sinks.ducklake.sink",)

    def check_engine(self) -> Check:
        """DuckDB with its extensions."""
        return check_engine()

    def settle(self, section: DuckLakeSinkSection, *, base: Path) -> LakeAddress:
        """The lake's address."""
        data_path = usable_data_path(section.data_path)
        storage = settle(section.storage, data_path)
        return parse_address(usable_catalog(section.catalog), data_path, base=base, storage=storage)

    def called(self, address: Address, table: str) -> str:
        """As at the source."""
        return table

    def open(self, settings: SinkSettings, *, pipeline: str) -> DuckLakeSink:
        """The executor's side."""
        from truecut.sinks.ducklake.sink import DuckLakeSink

        return DuckLakeSink(
            name=settings.name,
            pipeline=pipeline,
            address=lake_of(settings.address),
            existing=settings.existing,
        )

    def example(self, name: str) -> str:
        """A lake of its own."""
        catalog, data = quoted(f"./{name}.ducklake"), quoted(f"./{name}-data")
        created = "# created when it does not exist"
        return f"type: ducklake\ncatalog: {catalog}      {created}\ndata_path: {data}\n"

    def look(self, sinks: Sequence[SinkSettings], *, pipeline: str) -> Mapping[str, SinkLook]:
        """What stands at these lakes."""
        from truecut.sinks.ducklake.inspection import look_at

        return look_at(sinks, pipeline=pipeline)

    def unfit(self, sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
        """Why a run could not write there."""
        from truecut.sinks.ducklake.inspection import unfit

        return unfit(sink, look)

    def pin(self, sink: SinkSettings, *, pipeline: str) -> AbstractContextManager[Pinned]:
        """The newest snapshot."""
        from truecut.sinks.ducklake.pinned import pin

        return pin(sink, pipeline=pipeline)


KIND = DuckLakeSinkKind()
