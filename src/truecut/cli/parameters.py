"""Kinds of arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truecut.config.units import duration_ms, meant_duration
from truecut.model.position import Position

pipeline_argument = click.argument("file", type=click.Path(path_type=Path))


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return duration_ms(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is {error}{meant_duration(str(value))}", param, ctx)


class _Place(click.ParamType[Position | str]):
    """A position, or text that is for the source to understand."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position | str:
        try:
            return value if isinstance(value, Position) else Position.parse(str(value))
        except ValueError:
            return str(value)


class _Address(click.ParamType[str]):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from truecut.listen_address import Address

        try:
            return str(Address.parse(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
POSITION = _Place()
ADDRESS = _Address()
