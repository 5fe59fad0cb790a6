"""YAML text as a tree whose every node knows its line.

Built from parser events, without recursion, so that no file can exhaust the stack (the C composer dies
of deep nesting). Scalars follow YAML 1.2's core schema: `no` is the text "no", a date is text, too.
Tags and merge keys are refused; keys are always text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from truecut.config import rules
from truecut.config.finding import ConfigError, Finding, show
from truecut.config.report import Path, Problem

DEPTH_MAX = 40

Scalar = str | int | float | bool | None

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]{1,3})")
_QUOTED = re.compile(r"""\"[^\"]*\"|'[^']*'""")
_UNQUOTED_REFERENCE = re.compile(r"([\[{,].*([,\[]|:\s)|\[)[^,\[\]{}]*\$\{")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_PLAIN_TAGS = (*_TEXT_TAGS, "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


@dataclass(slots=True)
class Node:
    """A scalar, a list or a mapping; a mapping's entries carry the line of their key."""

    line: int
    value: Scalar | list[Node] | dict[str, tuple[int, Node]]
    text: str = ""  # a scalar as written


@dataclass(slots=True)
class Tree:
    """One document, and what is wrong with it without being fatal."""

    root: Node
    problems: list[Problem] = field(default_factory=list)


def parse(text: str, *, file: str) -> Tree:
    """The only document in `text`; ConfigError, with the place, when it is not YAML."""
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else min(mark.line + 1, text.count("\n") + 1)
        column = "" if mark is None else f" at column {mark.column + 1}"
        unquoted = _unquoted_reference(text, line)
        if unquoted is not None:
            message = 'not YAML: a ${…} inside braces or brackets must stand in quotes: "${NAME}"'
            raise builder.fault(rules.NOT_YAML, unquoted, message) from None
        raise builder.fault(rules.NOT_YAML, line, f"not YAML: {error.problem}{column}") from None
    except yaml.YAMLError:
        line = _line_of_unprintable(text)
        raise builder.fault(rules.NOT_YAML, line, "not YAML: a character that is not allowed") from None
    if builder.root is None or (builder.root.value is None and not builder.root.text):
        raise builder.fault(rules.EMPTY_FILE, 1, "the file is empty; `truecut init` writes one to begin with")
    return Tree(builder.root, builder.problems)


def _unquoted_reference(text: str, line: int) -> int | None:
    """The line, at or just before the one that YAML stumbles over, with a `${` in braces without quotes."""
    lines = text.split("\n")
    near = range(line, max(0, line - 3), -1)
    return next((n for n in near if _UNQUOTED_REFERENCE.search(_QUOTED.sub("", lines[n - 1]))), None)


def _line_of_unprintable(text: str) -> int:
    for number, line in enumerate(text.split("\n"), start=1):
        if yaml.reader.Reader.NON_PRINTABLE.search(line):
            return number
    return 1


@dataclass(slots=True)
class _Frame:
    """A collection that is still open, and the key that waits for its value."""

    node: Node
    key: tuple[str, int] | None = None
    entered: str = ""  # the key whose value is being read


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._documents = 0
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node] = {}

    def fault(self, rule: rules.Rule, line: int, message: str) -> ConfigError:
        return ConfigError([Finding(self.file, line, rule, "", message)])

    def feed(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self.fault(
                    rules.SEVERAL_DOCUMENTS,
                    line,
                    "a second YAML document begins here; a file holds one pipeline",
                )
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self.fault(
                    rules.NOT_YAML, line, f"not YAML: no anchor {show(str(event.anchor))} before this"
                )
            self._place(self._anchors[event.anchor], line)
        elif isinstance(event, yaml.NodeEvent):
            self._open(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._stack.pop()

    def _open(self, event: yaml.NodeEvent, line: int) -> None:
        self._refuse_tag(event, line)
        if isinstance(event, yaml.ScalarEvent):
            node = Node(line, _scalar(event), event.value)
        else:
            node = Node(line, [] if isinstance(event, yaml.SequenceStartEvent) else {})
        if event.anchor:
            self._anchors[event.anchor] = node
        self._place(node, line)
        if not isinstance(event, yaml.ScalarEvent):
            self._stack.append(_Frame(node))
            if len(self._stack) > DEPTH_MAX:
                raise self.fault(rules.TOO_DEEP, line, f"nested more than {DEPTH_MAX} levels deep")

    def _refuse_tag(self, event: yaml.NodeEvent, line: int) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _PLAIN_TAGS:
            raise self.fault(
                rules.NOT_YAML, line, f"the tag {show(str(tag))} is not supported; write plain values"
            )

    def _place(self, node: Node, line: int) -> None:
        """Put a node where it belongs: the root, the next item, the next key or the key's value."""
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if isinstance(frame.node.value, list):
            frame.node.value.append(node)
        elif frame.key is None:
            if isinstance(node.value, list | dict):
                raise self.fault(rules.NOT_YAML, line, "a key must be text, not a list or a mapping")
            frame.key = (node.text, line)
            frame.entered = node.text
        else:
            self._enter(frame, *frame.key, node)
            frame.key = None

    def _enter(self, frame: _Frame, key: str, line: int, node: Node) -> None:
        entries = frame.node.value
        assert isinstance(entries, dict)
        if key == "<<":
            message = "merge keys are not supported; repeat the settings"
            self.problems.append(Problem(rules.NOT_YAML, self._path(key), message, line=line))
        elif key in entries:
            message = f"stands twice; first on line {entries[key][0]}"
            self.problems.append(Problem(rules.DUPLICATE_KEY, self._path(key), message, line=line))
        else:
            entries[key] = (line, node)

    def _path(self, key: str) -> Path:
        path: list[str | int] = []
        for frame in self._stack[:-1]:
            value = frame.node.value
            path.append(len(value) - 1 if isinstance(value, list) else frame.entered)
        return (*path, key)


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    text: str = event.value
    if not event.implicit[0] or event.tag in _TEXT_TAGS:  # quoted, a block, or said to be text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
