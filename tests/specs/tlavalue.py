"""Reading TLA+ values and state graphs as TLC prints them.

Values become plain Python: integers, booleans, strings (model values too), tuples for sequences,
frozensets for sets, dicts for records and functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|-?\d+|<<|>>|\|->|:>|@@|[\[\]{}(),]|\w+)')
_NODE = re.compile(r'^(-?\d+) \[label="(.*)"(?:,style = filled)?\]')
_EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)"')


@dataclass(frozen=True, slots=True)
class Graph:
    """All states of a model and all steps between them."""

    states: dict[str, dict[str, Any]]
    edges: list[tuple[str, str, str]]  # from, action, to


def parse(text: str) -> Any:
    """One value."""
    tokens = _TOKEN.findall(text)
    value, rest = _value(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"trailing text in a TLA+ value: {tokens[rest : rest + 5]}")
    return value


def _value(tokens: list[str], at: int) -> tuple[Any, int]:
    token = tokens[at]
    if token == "<<":
        items, at = _items(tokens, at + 1, ">>")
        return tuple(items), at
    if token == "{":
        items, at = _items(tokens, at + 1, "}")
        return frozenset(_frozen(item) for item in items), at
    if token == "[":
        return _pairs(tokens, at + 1, arrow="|->", between=",", end="]")
    if token == "(":
        return _pairs(tokens, at + 1, arrow=":>", between="@@", end=")")
    if token in ("TRUE", "FALSE"):
        return token == "TRUE", at + 1
    if token.startswith('"'):
        return token[1:-1], at + 1
    return (int(token) if token.lstrip("-").isdigit() else token), at + 1


def _items(tokens: list[str], at: int, end: str) -> tuple[list[Any], int]:
    items = []
    while tokens[at] != end:
        item, at = _value(tokens, at)
        items.append(item)
        at += tokens[at] == ","
    return items, at + 1


def _pairs(tokens: list[str], at: int, *, arrow: str, between: str, end: str) -> tuple[dict[Any, Any], int]:
    pairs = {}
    while tokens[at] != end:
        key, at = _value(tokens, at)
        if tokens[at] != arrow:
            raise ValueError(f"expected {arrow}, found {tokens[at]}")
        pairs[_frozen(key)], at = _value(tokens, at + 1)
        at += tokens[at] == between
    return pairs, at + 1


def _frozen(value: Any) -> Any:
    """Sets hold records: as sorted pairs they can be hashed."""
    if isinstance(value, dict):
        return Record((key, _frozen(inner)) for key, inner in sorted(value.items()))
    return value


class Record(tuple[tuple[str, Any], ...]):
    """A record inside a set."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        for key, value in self:
            if key == name:
                return value
        raise AttributeError(name)


def plain(value: Any) -> Any:
    """The same with dicts for records."""
    return {key: plain(inner) for key, inner in value} if isinstance(value, Record) else value


@cache
def _cached(text: str) -> Any:
    return parse(text)


def read_graph(path: Path) -> Graph:
    """What `-dump dot,actionlabels` wrote."""
    states: dict[str, dict[str, Any]] = {}
    edges: list[tuple[str, str, str]] = []
    for line in _lines(path):
        if edge := _EDGE.match(line):
            edges.append((edge[1], edge[3], edge[2]))
        elif node := _NODE.match(line):
            states[node[1]] = _state(node[2])
    return Graph(states, edges)


def _lines(path: Path) -> Iterator[str]:
    with path.open() as file:
        yield from file


def _state(label: str) -> dict[str, Any]:
    text = label.replace("\\\\", "\\").replace('\\"', '"').replace("\\n", "\n")
    state = {}
    for part in re.split(r"(?:^|\n)/\\ ", text):
        if part:
            name, _, value = part.partition(" = ")
            state[name.strip()] = _cached(value)
    return state
