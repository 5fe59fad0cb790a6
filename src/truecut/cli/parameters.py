"""Kinds of arguments that several commands take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from truecut.model.position import Position

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

pipeline_argument = click.argument("file", type=click.Path(path_type=Path))


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+)(ms|s|m|h)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration; write e.g. 500ms, 2s, 10m, 1h", param, ctx)
        return int(match[1]) * _UNITS_MS[match[2]]


class _Place(click.ParamType[Position]):
    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        try:
            return Position.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
POSITION = _Place()
