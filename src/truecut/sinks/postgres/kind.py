"""PostgreSQL as a kind of sink: its section of the pipeline file, and how it is opened."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from truecut.config.kinds import Address, Unusable
from truecut.config.secret import Secret
from truecut.config.section import SinkSection, Text
from truecut.config.settings import SinkSettings
from truecut.sinks.postgres.address import PostgresAddress, postgres_of

if TYPE_CHECKING:
    from truecut.model.finding import Check, Finding
    from truecut.sinks.contract import Pinned, SinkLook
    from truecut.sinks.postgres.sink import PostgresSink

_RESERVED = ("_truecut", "information_schema")

with warnings.catch_warnings():
    # `schema` is the word of the file; pydantic has an old method of that name, which nobody calls.
    warnings.filterwarnings("ignore", message='Field name "schema"')

    class PostgresSinkSection(SinkSection):
        """A PostgreSQL database, or one schema of it."""

        type: Literal["postgres"] = Field(description="Kind of sink.")
        dsn: Text = Field(description="A connection string of libpq: `postgresql://…` or `host=… dbname=…`.")
        schema: Text | None = Field(  # type: ignore[assignment]
            default=None,
            description="All tables go into this schema. Left out: each into the schema of its own name.",
        )


class PostgresSinkKind:
    """`type: postgres` under `sinks`."""

    title = "PostgreSQL"
    section = PostgresSinkSection
    holder = "schema"
    worker_modules = ("truecut.sinks.postgres.sink",)

    def check_engine(self) -> Check:
        """psycopg with libpq."""
        import psycopg

        from truecut.model.finding import Check

        return Check("psycopg", f"{psycopg.__version__} with libpq {psycopg.pq.version()}")

    def settle(self, section: PostgresSinkSection, *, base: Path) -> PostgresAddress:
        """The database's address."""
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        schema: str | None = section.schema
        try:
            conninfo_to_dict(section.dsn)
        except ProgrammingError:  # its text holds the address
            raise Unusable("dsn", "not a connection string; write postgresql://USER@HOST/DATABASE") from None
        if schema is not None and (schema in _RESERVED or schema.startswith("pg_")):
            raise Unusable("schema", "this schema is PostgreSQL's or Truecut's own; choose another")
        if schema is not None and len(schema.encode()) > 63:
            raise Unusable("schema", "longer than the 63 bytes that PostgreSQL's names have")
        return PostgresAddress(Secret(section.dsn), schema)

    def called(self, address: Address, table: str) -> str:
        """The sink's one schema, if it has one, and the table's own name."""
        return str(postgres_of(address).table(table))

    def open(self, settings: SinkSettings, *, pipeline: str) -> PostgresSink:
        """The executor's side."""
        from truecut.sinks.postgres.sink import PostgresSink

        return PostgresSink(
            name=settings.name,
            pipeline=pipeline,
            address=postgres_of(settings.address),
            existing=settings.existing,
        )

    def example(self, name: str) -> str:
        """A database that the environment names."""
        return "type: postgres\ndsn: ${TARGET_DSN}      # postgresql://USER:PASSWORD@HOST/DATABASE\n"

    def look(self, sinks: Sequence[SinkSettings], *, pipeline: str) -> Mapping[str, SinkLook]:
        """What stands at these databases."""
        from truecut.sinks.postgres.inspection import look_at

        return look_at(sinks, pipeline=pipeline)

    def unfit(self, sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
        """Why a run could not write there."""
        from truecut.sinks.postgres.inspection import unfit

        return unfit(sink, look)

    def pin(self, sink: SinkSettings, *, pipeline: str) -> AbstractContextManager[Pinned]:
        """A snapshot that a session holds."""
        from truecut.sinks.postgres.pinned import pin

        return pin(sink, pipeline=pipeline)


KIND = PostgresSinkKind()
