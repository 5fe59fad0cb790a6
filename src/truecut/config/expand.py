"""`${NAME}`, `${NAME:-default}`, `${file:PATH}` and `$$` in the values of a parsed file.

Also the step from the tree to plain data, where aliases unfold: both are bounded, so that a small file
cannot become a large one. Promises that what a `${…}` gave is marked and never part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath

from truecut.config import rules
from truecut.config.finding import ConfigError, Finding, show
from truecut.config.report import Document, Mark, Path, Problem
from truecut.config.tree import DEPTH_MAX, Node, Tree

VALUES_MAX = 200_000
_EXPANDED_CHARS_MAX = 16 << 20
_SECRET_FILE_BYTES_MAX = 64 << 10

_REFERENCE = re.compile(r"\$(?:\$|\{([^}]*)\}|\{)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class _Fault(Exception):
    def __init__(self, rule: rules.Rule, message: str) -> None:
        self.rule = rule
        self.message = message


def to_document(
    tree: Tree, *, environ: Mapping[str, str], base: FilePath, file: str
) -> tuple[Document, list[Problem]]:
    """Plain data with every reference expanded; `base` is the folder that file paths are relative to."""
    unfolding = _Unfolding(environ, base, file)
    document = unfolding.document
    document.marks[()] = Mark(tree.root.line)
    document.data = unfolding.unfold(tree.root, ())
    return document, [*tree.problems, *unfolding.problems]


class _Unfolding:
    def __init__(self, environ: Mapping[str, str], base: FilePath, file: str) -> None:
        self.document = Document(None, {})
        self.problems: list[Problem] = []
        self._environ = environ
        self._base = base
        self._file = file
        self._chars_left = _EXPANDED_CHARS_MAX
        self._secret_files: dict[str, str] = {}

    def unfold(self, node: Node, path: Path) -> object:
        if len(path) > DEPTH_MAX or len(self.document.marks) > VALUES_MAX:
            raise self._too_much(node.line, "aliases unfold into too much; write the settings out")
        if isinstance(node.value, dict):
            return {key: self._child(child, (*path, key), line) for key, (line, child) in node.value.items()}
        if isinstance(node.value, list):
            return [self._child(child, (*path, i), child.line) for i, child in enumerate(node.value)]
        if isinstance(node.value, str) and "$" in node.value:
            return self._expand(node, path)
        return node.value

    def _child(self, node: Node, path: Path, line: int) -> object:
        self.document.marks[path] = Mark(line)
        return self.unfold(node, path)

    def _expand(self, node: Node, path: Path) -> str:
        line = self.document.marks[path].line
        text, faults, used = self._expand_text(node.text)
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise self._too_much(line, "its ${…} expand into too much")
        if faults:
            self.document.broken.add(path)
            self.problems += [Problem(fault.rule, path, fault.message) for fault in faults]
        if used:
            self.document.marks[path] = Mark(line, expanded=True)
        return text

    def _expand_text(self, text: str) -> tuple[str, list[_Fault], bool]:
        faults: list[_Fault] = []
        used = False

        def replacement(match: re.Match[str]) -> str:
            nonlocal used
            if match[0] == "$$":
                return "$"
            used = True
            try:
                return self._resolve(match[1])
            except _Fault as fault:
                faults.append(fault)
                return ""

        return _REFERENCE.sub(replacement, text), faults, used

    def _resolve(self, reference: str | None) -> str:
        if reference is None:
            raise _Fault(rules.BAD_REFERENCE, "${ is never closed; write ${NAME}, or $$ for a plain dollar")
        if "$" in reference:
            raise _Fault(rules.BAD_REFERENCE, "a ${…} cannot stand inside another, nor a $ in its default")
        if reference.startswith("file:"):
            return self._secret_file(reference.removeprefix("file:"))
        match = _VARIABLE.fullmatch(reference)
        if match is None:
            raise _Fault(
                rules.BAD_REFERENCE,
                "not a reference; write ${NAME}, ${NAME:-default} or ${file:PATH}, or $$ for a plain dollar",
            )
        value = self._environ.get(match[1])
        if match[2] is not None:  # as in a shell: the default also stands in for an empty variable
            return value or match[2]
        if value is None:
            name = match[1]
            raise _Fault(
                rules.VARIABLE_MISSING,
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}",
            )
        return value

    def _secret_file(self, name: str) -> str:
        if name not in self._secret_files:
            self._secret_files[name] = _read_secret(self._base / name, shown=show(name))
        return self._secret_files[name]

    def _too_much(self, line: int, message: str) -> ConfigError:
        return ConfigError([Finding(self._file, line, rules.TOO_DEEP, "", message)])


def _read_secret(path: FilePath, *, shown: str) -> str:
    """A file's text without its last line end."""
    try:
        if not path.is_file():
            raise _Fault(rules.SECRET_FILE, f"there is no file {shown}")
        with path.open("rb") as stream:
            content = stream.read(_SECRET_FILE_BYTES_MAX + 1)
        if len(content) > _SECRET_FILE_BYTES_MAX:
            raise _Fault(rules.SECRET_FILE, f"the file {shown} is larger than 64 KiB")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise _Fault(rules.SECRET_FILE, f"the file {shown} is not UTF-8 text") from None
    except (OSError, ValueError):
        raise _Fault(rules.SECRET_FILE, f"the file {shown} cannot be read") from None
