"""Array literals: {1,NULL,"a b"}, nested as deep as the column is declared.

An array of PostgreSQL has a shape and lower bounds of its own in every value. A list column has neither: it
holds arrays of the declared depth that begin at 1, and what does not is refused. An empty array is an empty
list at any depth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecut.sources.postgres.values import Reader, Unfit

_SHAPE = "it is an array of another shape, or with another lower bound, than the column is declared with"


def list_reader(element: Reader, *, dims: int, delimiter: str) -> Reader:
    """A reader of arrays of what `element` reads, `dims` deep."""

    def read(texts: pa.Array) -> pa.Array:
        flat = _split(texts, delimiter) if dims == 1 else None
        parsed = _parse_all(texts, dims, delimiter) if flat is None else flat
        try:
            made = element(parsed.elements)
        except Unfit as error:
            raise Unfit(parsed.row_of(error.index), error.reason) from None
        for offsets in reversed(parsed.offsets[1:]):
            made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made)
        return pa.ListArray.from_arrays(pa.array(parsed.offsets[0], pa.int32()), made, mask=texts.is_null())

    return read


@dataclass(slots=True)
class _Parsed:
    """The elements of all rows, and for each level where its lists begin, with the end of the last."""

    elements: pa.Array
    offsets: list[np.ndarray[tuple[int], np.dtype[np.int64]]]

    def row_of(self, element: int) -> int:
        """The row that an element is of."""
        for offsets in reversed(self.offsets):
            element = int(np.searchsorted(offsets, element, side="right")) - 1
        return element


def _split(texts: pa.Array, delimiter: str) -> _Parsed | None:
    """Where no element is quoted and no array nested, Arrow can split them; otherwise None."""
    plain = pc.match_substring_regex(texts, r'^\{[^{}"\\]+\}$')
    if not pc.all(plain, min_count=0).as_py():
        return None
    inner = pc.ascii_trim(texts.view(pa.string()), characters="{}")
    lists = pc.split_pattern(inner, delimiter)
    lists = lists if lists.null_count == 0 else pc.fill_null(lists, pa.scalar([], lists.type))
    elements = lists.flatten()
    elements = pc.if_else(pc.equal(elements, "NULL"), pa.scalar(None, pa.string()), elements)
    return _Parsed(elements.view(pa.binary()), [np.append(0, np.cumsum(pc.list_value_length(lists)))])


def _parse_all(texts: pa.Array, dims: int, delimiter: str) -> _Parsed:
    parser = _Parser(delimiter, [[0] for _ in range(dims)])
    for index, value in enumerate(texts.to_pylist()):
        parser.take(index, value)
    elements = pa.array(parser.elements, pa.binary())
    return _Parsed(elements, [np.array(level, np.int64) for level in parser.ends])


_TOKEN = rb'"((?:[^"\\]|\\.)*)"|([^{}%s"\\]+)|([{}%s])'  # quoted where it holds any of these
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(slots=True)
class _Parser:
    delimiter: str
    ends: list[list[int]]  # for each level: where each list ends among the lists or elements below
    elements: list[bytes | None] = field(default_factory=list)

    def take(self, index: int, value: bytes | None) -> None:
        """One row."""
        if value is None or value == b"{}":
            self._close(0)
            return
        tokens = _tokens(index, value, self.delimiter)
        if self._list(index, tokens, 0, 0) != len(tokens):
            raise Unfit(index, _SHAPE)

    def _list(self, index: int, tokens: list[tuple[bytes, bool]], at: int, level: int) -> int:
        """The list whose brace stands at `at`; returns where it is over."""
        if at >= len(tokens) or tokens[at] != (b"{", True):
            raise Unfit(index, _SHAPE)
        while True:
            at = self._item(index, tokens, at + 1, level)
            if at >= len(tokens) or not tokens[at][1]:
                raise Unfit(index, _SHAPE)
            if tokens[at][0] == b"}":
                self._close(level)
                return at + 1
            if tokens[at][0] == b"{":
                raise Unfit(index, _SHAPE)

    def _item(self, index: int, tokens: list[tuple[bytes, bool]], at: int, level: int) -> int:
        if level + 1 < len(self.ends):
            return self._list(index, tokens, at, level + 1)
        if at >= len(tokens) or tokens[at][1]:
            raise Unfit(index, _SHAPE)
        value = tokens[at][0]
        self.elements.append(None if value == b"NULL" else value.removeprefix(b"\0"))
        return at + 1

    def _close(self, level: int) -> None:
        below = self.ends[level + 1] if level + 1 < len(self.ends) else None
        self.ends[level].append(len(self.elements) if below is None else len(below) - 1)


def _tokens(index: int, value: bytes, delimiter: str) -> list[tuple[bytes, bool]]:
    """Elements and punctuation (True). A quoted element begins with a zero byte, which no text has, so that
    "NULL" is not NULL."""
    pattern = _pattern(delimiter)
    found = []
    at = 0
    while at < len(value):
        match = pattern.match(value, at)
        if match is None:
            raise Unfit(index, _SHAPE)
        quoted, bare, mark = match.groups()
        if mark is not None:
            found.append((mark, True))
        else:
            found.append((b"\0" + _ESCAPE.sub(rb"\1", quoted) if bare is None else bare, False))
        at = match.end()
    return found


@cache
def _pattern(delimiter: str) -> re.Pattern[bytes]:
    mark = re.escape(delimiter.encode())
    return re.compile(_TOKEN % (mark, mark), re.DOTALL)
