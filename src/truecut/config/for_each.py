"""One sink for each line of a CSV file: reading the file, filling the placeholders.

Every fault names its line. Values are text and never shown: a column may hold passwords.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from truecut.config import rules
from truecut.config.finding import did_you_mean, show

FILE_BYTES_MAX = 16 << 20

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

_OTHERS = ((";", ";"), ("\t", "tabs"))  # that spreadsheets write, and what they are called

Complain = Callable[[rules.Rule, int, str], None]  # rule, line, message


@dataclass(frozen=True, slots=True)
class Line:
    """One line below the header."""

    number: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """The file: the header's names and the lines that are sound."""

    columns: tuple[str, ...]
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders, taken apart once and filled many times."""

    literals: tuple[str, ...]  # one more than there are columns
    columns: tuple[int, ...]

    def fill(self, values: tuple[str, ...]) -> str:
        """The text for one line."""
        filled = [self.literals[0]]
        for literal, column in zip(self.literals[1:], self.columns, strict=True):
            filled += (values[column], literal)
        return "".join(filled)


class _NotCsv(Exception):
    def __init__(self, line: int) -> None:
        self.line = line


def template(text: str, columns: Sequence[str]) -> Template:
    """Take a text apart; KeyError with the name of a placeholder that is no column."""
    parts = PLACEHOLDER.split(text)
    places = {name: index for index, name in enumerate(columns)}
    return Template(tuple(parts[0::2]), tuple(places[name] for name in parts[1::2]))


def unknown_placeholder(name: str, columns: Sequence[str]) -> str:
    """What to say about a placeholder without a column."""
    hint = did_you_mean(name, columns) or f"; the columns are {', '.join(map(show, columns[:20]))}"
    return f"the placeholder {show('{' + name + '}')} has no column of that name{hint}"


def read_lines(path: Path, complain: Complain) -> Lines | None:
    """Read the file; None when nothing of it can be used."""
    content = _read(path, complain)
    if content is None:
        return None
    records = _records(content)
    try:
        header = next(records, None)
        if header is None or not any(header.values):
            complain(rules.FOR_EACH_EMPTY, 1, "the file is empty; its first line must name the columns")
            return None
        if (other := _other_separator(header)) is not None:
            message = f"the columns are separated by {other} here; separate them by commas"
            complain(rules.FOR_EACH_HEADER, header.number, message)
            return None
        if not _header_is_sound(header, complain):
            return None
        return Lines(header.values, list(_sound_lines(header, records, complain)))
    except _NotCsv as fault:
        message = "not CSV: a quote that is not closed, or text after one"
        complain(rules.FOR_EACH_LINE, fault.line, message)
        return None


def _read(path: Path, complain: Complain) -> str | None:
    try:
        if not path.is_file():
            complain(rules.FOR_EACH_UNREADABLE, 1, "there is no such file")
            return None
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            complain(rules.FOR_EACH_UNREADABLE, 1, "the file is larger than 16 MiB")
            return None
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        complain(rules.NOT_UTF8, line, "not UTF-8 text; save the file as UTF-8")
    except (OSError, ValueError):
        complain(rules.FOR_EACH_UNREADABLE, 1, "the file cannot be read; check its permissions")
    return None


def _records(content: str) -> Iterator[Line]:
    """The records with the line on which each begins (a quoted value may span lines)."""
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error:
            raise _NotCsv(number) from None
        yield Line(number, tuple(values))


def _other_separator(header: Line) -> str | None:
    (name, *more) = header.values
    return next((said for sign, said in _OTHERS if sign in name), None) if not more else None


def _header_is_sound(header: Line, complain: Complain) -> bool:
    sound = True
    seen: set[str] = set()
    for index, name in enumerate(header.values, start=1):
        if not name.strip():
            complain(rules.FOR_EACH_HEADER, header.number, f"column {index} has no name")
            sound = False
        elif name in seen:
            complain(rules.FOR_EACH_HEADER, header.number, f"the column {show(name)} stands twice")
            sound = False
        seen.add(name)
    return sound


def _sound_lines(header: Line, records: Iterator[Line], complain: Complain) -> Iterator[Line]:
    width = len(header.values)
    first: dict[tuple[str, ...], int] = {}
    count = 0
    for line in records:
        count += 1
        if not any(value.strip() for value in line.values):
            complain(rules.FOR_EACH_LINE, line.number, "the line is empty; remove it")
        elif len(line.values) != width:
            message = f"the header has {width} columns, this line has {len(line.values)}"
            complain(rules.FOR_EACH_LINE, line.number, message)
        elif line.values in first:
            message = f"the same as line {first[line.values]}; remove one"
            complain(rules.FOR_EACH_DUPLICATE, line.number, message)
        else:
            first[line.values] = line.number
            yield line
    if not count:
        complain(rules.FOR_EACH_EMPTY, header.number, "no line below the header; add one for each sink")
