"""The pipeline file as users write it, after `${…}` is expanded: strict, nothing unknown.

The JSON Schema and `docs/pipeline.md` are generated from these types; every field says what it means.
What a file must satisfy beyond the shape of each value is checked by `resolve`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from truecut.config import rules, units


def _duration(text: str) -> str:
    try:
        value_ms = units.duration_ms(text)
    except ValueError as error:
        raise PydanticCustomError(rules.BAD_UNIT.code, "{reason}", {"reason": str(error)}) from None
    if value_ms == 0:
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "must be longer than nothing")
    return text


def _size(text: str) -> str:
    try:
        value = units.size_bytes(text)
    except ValueError as error:
        raise PydanticCustomError(rules.BAD_UNIT.code, "{reason}", {"reason": str(error)}) from None
    if value == 0:
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "must be larger than nothing")
    return text


def _printable(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "must not be empty")
    if not text.isprintable():
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "must not hold line ends or control characters")
    return text


def _pipeline_name(text: str) -> str:
    if not text.isascii() or not text.replace("-", "a").replace("_", "a").isalnum() or len(text) > 63:
        raise PydanticCustomError(
            rules.BAD_NAME.code, "may hold letters, digits, - and _, at most 63 of them"
        )
    return text


def _conf_text(value: object) -> object:
    """Spark's settings are text; a number or a truth value is written as Spark writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _text_schema(pattern: str) -> WithJsonSchema:
    # A reference stands for text that an editor cannot know.
    return WithJsonSchema({"type": "string", "pattern": rf"^{pattern}$|\$\{{.+\}}"})


Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_printable)]
Duration = Annotated[str, AfterValidator(_duration), _text_schema(units.DURATION_PATTERN)]
Size = Annotated[str, AfterValidator(_size), _text_schema(units.SIZE_PATTERN)]
PipelineName = Annotated[str, AfterValidator(_pipeline_name), _text_schema("[A-Za-z0-9_-]{1,63}")]
ConfValue = Annotated[
    str, BeforeValidator(_conf_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
ModeName = Literal["mirror", "append"]


class Section(BaseModel):
    """A mapping of the file. Values are never part of an error: they may be secrets."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class Metadata(Section):
    """Which pipeline this is."""

    name: PipelineName = Field(description="Name of the pipeline: letters, digits, `-` and `_`.")


class Source(Section):
    """Where changes come from."""

    type: Literal["ducklake"] = Field(description="Kind of source.")
    catalog: Text = Field(
        description="The lake's catalog: a DuckDB file; or `sqlite:PATH`; or `postgres:CONNINFO`."
    )
    data_path: Text | None = Field(
        default=None, description="Where the data is, if the catalog does not know it."
    )


class Table(Section):
    """One table to replicate."""

    name: Text = Field(description="`schema.table`, split at the first dot.")
    key: list[Text] | None = Field(
        default=None, description="The columns that identify a row. Required: DuckLake knows no primary keys."
    )
    route_by: Text | None = Field(default=None, description="The column whose value chooses the sink.")
    broadcast: bool = Field(
        default=False, description="Every sink gets all rows of this table, also those with a `route`."
    )
    unrouted: Literal["count", "stop"] = Field(
        default="count", description="Rows that match no sink are counted, or stop the table."
    )
    on_gap: Literal["backfill", "stop"] = Field(
        default="backfill",
        description="When history that a sink still needs has expired: read a mirror whole again, or stop "
        "the table. An append table always stops.",
    )


class SinkTable(Section):
    """One table at one sink."""

    name: Text = Field(description="A table of `spec.tables`.")
    mode: ModeName | None = Field(default=None, description="As for the sink, for this table alone.")


class ForEach(Section):
    """One sink for each line of a file."""

    file: Text = Field(description="A CSV file in UTF-8; the names in its header are the placeholders.")


class Sink(Section):
    """One destination, or one for each line of a `for_each` file."""

    name: Text = Field(description="Name of the sink; with `for_each` it holds a `{placeholder}`.")
    type: Literal["ducklake"] = Field(description="Kind of sink.")
    catalog: Text = Field(description="As for the source. Created when it does not exist.")
    data_path: Text | None = Field(
        default=None, description="Where the data goes, if the catalog does not know it already."
    )
    route: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Only rows whose `route_by` column equals this. Left out: all rows."
    )
    for_each: ForEach | None = Field(
        default=None,
        description="Makes one sink for each line; `{column}` is replaced in the texts of this sink.",
    )
    mode: ModeName = Field(
        default="mirror", description="mirror: the same rows as the source; append: one row for each change."
    )
    tables: list[SinkTable] | None = Field(
        default=None, min_length=1, description="The tables it carries. Left out: all, in the sink's mode."
    )
    existing: Literal["refuse", "replace"] = Field(
        default="refuse",
        description="What to do with a table that is there already and was not made by this pipeline.",
    )


class Batch(Section):
    """Bounds of one wave, and how often to look for changes."""

    rows_max: int = Field(default=500_000, ge=1, le=100_000_000, description="Changes in one wave.")
    bytes_max: Size = Field(default="64MiB", description="Bytes in one wave.")
    interval: Duration = Field(default="500ms", description="How often to look for changes.")
    deadline: Duration = Field(
        default="30s", description="How long one sink may take before the others go on."
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

    source: Source
    tables: list[Table] = Field(min_length=1, description="The tables to replicate.")
    sinks: list[Sink] = Field(min_length=1, description="Where they go.")
    batch: Batch = Field(default_factory=Batch)
    lease: Lease = Field(default_factory=Lease)
    control: Text | None = Field(
        default=None,
        description="The control store: a file, or `postgresql://…`. Default: `control.db` in `state`.",
    )
    state: Text | None = Field(
        default=None,
        description="Folder for everything the pipeline keeps. Default: `.truecut/NAME` beside the file.",
    )
    spark: Spark = Field(default_factory=Spark)


class PipelineFile(Section):
    """A Truecut pipeline: one source, its tables, and the sinks they are replicated to."""

    apiVersion: Literal["truecut/v1"] = Field(description="Version of this format.")
    kind: Literal["Pipeline"] = Field(description="What the file describes.")
    metadata: Metadata
    spec: Spec
