"""From faults at paths of the data to findings at lines of the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from truecut.config.finding import Finding, plain
from truecut.config.rules import Rule

Path = tuple[str | int, ...]
_NAME_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule at a path. Without `file` and `line` the place is looked up in the document."""

    rule: Rule
    path: Path
    message: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value stands, and whether a `${…}` made it (then it is never shown)."""

    line: int
    expanded: bool = False


@dataclass(slots=True)
class Document:
    """The file as plain data, with the place of each value."""

    data: object
    marks: dict[Path, Mark]
    broken: set[Path] = field(default_factory=set)  # values that could not be expanded
    _names: dict[Path, str] = field(default_factory=dict)

    def value(self, path: Path) -> object:
        """The value at a path; None where there is nothing."""
        here: object = self.data
        for step in path:
            if isinstance(here, list) and isinstance(step, int):
                here = here[step] if step < len(here) else None
            else:
                here = here.get(step) if isinstance(here, dict) else None
        return here

    def expanded(self, path: Path) -> bool:
        """Whether the value at a path came from a `${…}`."""
        mark = self.marks.get(path)
        return mark is not None and mark.expanded

    def line(self, path: Path) -> int:
        """The line of a path, or of the nearest thing around it."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks[path].line if path in self.marks else 1

    def describe(self, path: Path) -> str:
        """`sinks.lake.catalog`: items by their name where they have one, without the leading spec."""
        if len(path) > 1 and path[0] == "spec":
            return self._describe(path, 1)
        return self._describe(path, 0)

    def _describe(self, path: Path, start: int) -> str:
        text = ""
        for index in range(start, len(path)):
            step = path[index]
            name = (
                self._item_name(path[: index + 1]) if isinstance(step, int) else plain(step[:_NAME_CHARS_MAX])
            )
            text += f"[{step}]" if name is None else f".{name}" if text else name
        return text

    def _item_name(self, path: Path) -> str | None:
        if path not in self._names:
            name = self.value((*path, "name"))
            usable = isinstance(name, str) and name.strip() and not self.expanded((*path, "name"))
            self._names[path] = plain(str(name)[:_NAME_CHARS_MAX]) if usable else ""
        return self._names[path] or None


def findings(problems: Iterable[Problem], document: Document, *, file: str) -> list[Finding]:
    """In the order of the file; what other files hold comes last. Each only once."""
    found = {
        Finding(
            problem.file or file,
            problem.line or document.line(problem.path),
            problem.rule,
            document.describe(problem.path),
            problem.message,
        ): None
        for problem in problems
    }
    return sorted(found, key=lambda finding: (finding.file != file, finding.file, finding.line))
