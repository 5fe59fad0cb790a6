"""The pipeline file as users write it, after `${…}` is expanded: strict, nothing unknown.

The JSON Schema and `docs/pipeline.md` are generated from these types; every field says what it means.
What a file must satisfy beyond the shape of each value is checked by `resolve`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from truecut.config.kinds import SINKS, SOURCES, OneOf
from truecut.config.section import (
    ConfValue,
    Duration,
    HostPort,
    PipelineName,
    Section,
    SinkSection,
    Size,
    SourceSection,
    Text,
)


class Metadata(Section):
    """Which pipeline this is."""

    name: PipelineName = Field(description="Name of the pipeline: letters, digits, `-` and `_`.")


class Table(Section):
    """One table to replicate."""

    name: Text = Field(
        description="`schema.table`, split at the first dot. Where the source lists its tables, both parts "
        "may have wildcards (`public.*`); an exact name beats them."
    )
    exclude: list[Text] = Field(
        default_factory=list,
        description="Of a name with wildcards: names, also with wildcards, to leave out.",
    )
    key: list[Text] | None = Field(
        default=None,
        description="The columns that identify a row. Required where the source knows no primary keys.",
    )
    route_by: Text | None = Field(default=None, description="The column whose value chooses the sink.")
    broadcast: bool = Field(
        default=False, description="Every sink gets all rows of this table, also those with a `route`."
    )
    unrouted: Literal["count", "stop"] = Field(
        default="count", description="Rows that match no sink are counted, or stop the table."
    )
    backfill: Literal["initial", "none"] = Field(
        default="initial",
        description="initial: what the table holds when it is first seen is copied, then its changes. none: "
        "only changes from then on, where the source is captured into a journal.",
    )
    on_schema_change: Literal["evolve", "stop"] = Field(
        default="evolve",
        description="evolve: columns that come or go do so at the sinks; one that is renamed is renamed in a "
        "PostgreSQL, while a lake holds its table (TC3012). stop: the table is held.",
    )
    on_gap: Literal["backfill", "stop"] = Field(
        default="backfill",
        description="When history that a sink still needs has expired: read a mirror whole again, or stop "
        "the table. An append table always stops.",
    )


class Batch(Section):
    """Bounds of one wave, and how often to look for changes."""

    rows_max: int = Field(default=500_000, ge=1, le=100_000_000, description="Changes in one wave.")
    bytes_max: Size = Field(default="64MiB", description="Bytes in one wave.")
    interval: Duration = Field(default="500ms", description="How often to look for changes.")
    deadline: Duration = Field(
        default="30s", description="How long a sink may make no progress before the others go on."
    )


class Journal(Section):
    """Where changes of a source that keeps no history are kept until every sink has them."""

    path: Text | None = Field(
        default=None, description="A folder on this machine. Default: `journal` in `state`."
    )
    bytes_max: Size = Field(default="20GiB", description="How large it may become before capture waits.")
    nodes: list[Text] | None = Field(
        default=None, min_length=1, description="Of a replicated log: its nodes, each `HOST:PORT`."
    )
    coordinator: HostPort | None = Field(
        default=None, description="Of a replicated log: its coordinator, `HOST:PORT`."
    )


class Verify(Section):
    """Verify all copies while they run, again and again."""

    level: Literal["files", "source", "sink"] = Field(
        default="sink",
        description="files: certificates and their evidence. source: and the source. sink: and the copies.",
    )
    interval: Duration = Field(default="1h", description="How long after the last time.")


class Certificate(Section):
    """Certificates of what was copied. Left out: none are issued, and no evidence is gathered."""

    path: Text | None = Field(
        default=None,
        description="A folder that Spark's executors share. Default: `certificates` in `state`.",
    )
    interval: Duration = Field(default="10s", description="How often one is issued while something moves.")
    keep: Duration | None = Field(
        default=None,
        description="Certificates, and the evidence that they told, go after so long. Left out: never.",
    )
    verify: Verify | None = Field(
        default=None, description="Verify all copies while they run. Left out: when somebody asks."
    )
    witness: Text | None = Field(
        default=None,
        description="A second replication slot of a source that is captured, made when it is missing: it "
        "keeps the source's log for `truecut verify --level log`, which reads it once more. Left out: none.",
    )
    witness_bytes_max: Size = Field(
        default="4GiB",
        description="How much of its log the server may keep for the witness. Beyond that the slot is "
        "dropped, and `--level log` knows nothing until the tables are copied anew.",
    )


class Lease(Section):
    """How runners of one pipeline share its sinks."""

    duration: Duration = Field(
        default="10s", description="After this long without a sign of life others take over."
    )


class Spark(Section):
    """How to start Spark."""

    master: Text | None = Field(
        default=None, description="Spark's master. Left out: chosen from the machine."
    )
    conf: dict[str, ConfValue] = Field(default_factory=dict, description="Further settings of Spark.")


class Spec(Section):
    """What the pipeline does."""

    source: Annotated[SourceSection, OneOf(SOURCES)]
    tables: list[Table] = Field(min_length=1, description="The tables to replicate.")
    sinks: list[Annotated[SinkSection, OneOf(SINKS)]] = Field(min_length=1, description="Where they go.")
    batch: Batch = Field(default_factory=Batch)
    lease: Lease = Field(default_factory=Lease)
    journal: Journal = Field(default_factory=Journal)
    certificate: Certificate | None = Field(
        default=None, description="Issue certificates of what was copied. Left out: none."
    )
    control: Text | None = Field(
        default=None,
        description="The control store: a file, or `postgresql://…`. Default: `control.db` in `state`.",
    )
    state: Text | None = Field(
        default=None,
        description="Folder for everything the pipeline keeps. Default: `.truecut/NAME` beside the file.",
    )
    spark: Spark = Field(default_factory=Spark)
    listen: HostPort | None = Field(
        default=None,
        description="`HOST:PORT` at which a run serves `/metrics`, `/healthz`, `/readyz`. Left out: nowhere.",
    )
    listen_token: Text | None = Field(
        default=None,
        description="What whoever asks for `/metrics` has to show (`Authorization: Bearer …`). Required "
        "where `listen` is an address that other machines can reach.",
    )


class PipelineFile(Section):
    """A Truecut pipeline: one source, its tables, and the sinks they are replicated to."""

    apiVersion: Literal["truecut/v1"] = Field(description="Version of this format.")
    kind: Literal["Pipeline"] = Field(description="What the file describes.")
    metadata: Metadata
    spec: Spec
