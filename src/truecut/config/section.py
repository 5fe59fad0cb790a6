"""The building blocks of the pipeline file: a section of it, and the kinds of values that sections hold.

Connectors describe their own sections with these (`config/kinds.py`): strict, nothing unknown, and no value
in an error, because it may be a secret.
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


def check_duration(text: str) -> str:
    """A duration, as it is written."""
    try:
        value_ms = units.duration_ms(text)
    except ValueError as error:
        raise PydanticCustomError(rules.BAD_UNIT.code, "{reason}", {"reason": str(error)}) from None
    if value_ms == 0:
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "must be longer than nothing")
    return text


def check_size(text: str) -> str:
    """A size, as it is written."""
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
Duration = Annotated[str, AfterValidator(check_duration), _text_schema(units.DURATION_PATTERN)]
Size = Annotated[str, AfterValidator(check_size), _text_schema(units.SIZE_PATTERN)]
PipelineName = Annotated[str, AfterValidator(_pipeline_name), _text_schema("[A-Za-z0-9_-]{1,63}")]
ConfValue = Annotated[
    str, BeforeValidator(_conf_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
# A port alone is a number: what is wrong with it is said when the address is read.
HostPort = Annotated[
    str, BeforeValidator(_conf_text), AfterValidator(_printable), WithJsonSchema({"type": "string"})
]
ModeName = Literal["mirror", "append"]


class Section(BaseModel):
    """A mapping of the file. Values are never part of an error: they may be secrets."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class SinkTable(Section):
    """One table at one sink."""

    name: Text = Field(description="A table of `spec.tables`.")
    mode: ModeName | None = Field(default=None, description="As for the sink, for this table alone.")


class ForEach(Section):
    """One sink for each line of a file."""

    file: Text = Field(description="A CSV file in UTF-8; the names in its header are the placeholders.")


class Hold(Section):
    """How much of the journal a sink may hold back."""

    bytes_max: Size = Field(description="Of the journal. Default: half of `journal.bytes_max`.")
    then: Literal["detach"] = Field(
        default="detach", description="The others go on; the sink is copied anew when it returns."
    )


class SourceSection(Section):
    """Where changes come from. Each kind of source adds what it needs."""

    type: str = Field(description="Kind of source.")


class SinkSection(Section):
    """One destination, or one for each line of a `for_each` file. Each kind of sink adds what it needs."""

    name: Text = Field(description="Name of the sink; with `for_each` it holds a `{placeholder}`.")
    type: str = Field(description="Kind of sink.")
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
    hold: Hold | None = Field(
        default=None,
        description="How much of the journal it may hold back, where the source is captured into one.",
    )
    existing: Literal["refuse", "replace"] = Field(
        default="refuse",
        description="What to do with a table that is there already and was not made by this pipeline.",
    )
