"""Sinks as written become sinks as used: one each, or one for each line of a `for_each` file.

Checks what sinks can do to each other: the same name, the same place.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from truecut.config import rules, units
from truecut.config.finding import show
from truecut.config.for_each import (
    Line,
    Lines,
    Template,
    read_lines,
    template,
    unknown_placeholder,
)
from truecut.config.kinds import SINKS, Address, SinkKind, Unusable
from truecut.config.report import Document, Path, Problem
from truecut.config.section import SinkSection
from truecut.config.settings import SinkSettings
from truecut.model.table import Mode

_STRAY_PLACEHOLDER = re.compile(r"(?<!\$)\{[A-Za-z_][A-Za-z0-9_]*\}")
_NOT_TEXTS = frozenset({"type", "mode", "existing"})  # these are chosen, not written


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink was written: a path of the pipeline file, perhaps with a line of a `for_each` file."""

    path: Path
    file: str | None = None
    line: int | None = None
    name: str | None = None  # to be shown; None when a `${…}` made it

    def problem(self, rule: rules.Rule, message: str) -> Problem:
        """A fault of this sink."""
        return Problem(rule, self.path, message, file=self.file, line=self.line)

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        return ("another sink" if self.name is None else f"the sink {show(self.name)}") + line


class SinkBuilder:
    """Collects the sinks, in the order of the file."""

    def __init__(self, document: Document, problems: list[Problem], *, base: FilePath, file: str) -> None:
        self.built: list[tuple[SinkSettings, Place]] = []
        self._document = document
        self._problems = problems
        self._base = base
        self._folder = FilePath(file).parent
        self._names: dict[str, Place] = {}
        self._files: dict[str, Lines | None] = {}

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The `for_each` files that were read."""
        return tuple(self._base / file for file in self._files)

    def add(self, path: Path, sink: SinkSection, modes: Mapping[str, Mode]) -> None:
        """Add what one entry of `sinks` stands for."""
        texts = {field: text for field, text in sink if isinstance(text, str) and field not in _NOT_TEXTS}
        if sink.for_each is None:
            if not self._has_stray_placeholder(path, texts):
                shown = None if self._document.expanded((*path, "name")) else sink.name
                self._build(Place((*path, "name"), name=shown), sink, texts, modes)
            return
        label = self._label(path, sink.for_each.file)
        lines = self._read(path, sink.for_each.file, label)
        templates = None if lines is None else self._templates(path, texts, lines)
        if lines is not None and templates is not None:
            for line in lines.lines:
                self._build_line(path, label, sink, templates, modes, line)

    # --- for_each -------------------------------------------------------------------------------------

    def _label(self, path: Path, file: str) -> str:
        """The file's name in findings."""
        if self._document.expanded((*path, "for_each", "file")):
            return "<for_each file>"
        return str(self._folder / file)

    def _read(self, path: Path, file: str, label: str) -> Lines | None:
        if file not in self._files:

            def complain(rule: rules.Rule, line: int, message: str) -> None:
                if (
                    rule is rules.FOR_EACH_UNREADABLE
                ):  # there is no line to point to but the one that names it
                    self._problems.append(Problem(rule, (*path, "for_each", "file"), f"{label}: {message}"))
                else:
                    self._problems.append(Problem(rule, (*path, "for_each"), message, file=label, line=line))

            self._files[file] = read_lines(self._base / file, complain)
        return self._files[file]

    def _templates(self, path: Path, texts: Mapping[str, str], lines: Lines) -> dict[str, Template] | None:
        found: dict[str, Template] = {}
        for field, text in texts.items():
            here = (*path, field)
            try:
                found[field] = template(text, lines.columns)
            except KeyError as error:
                message = "a placeholder in what the ${…} gives has no column of that name"
                if not self._document.expanded(here):
                    message = unknown_placeholder(error.args[0], lines.columns)
                self._problems.append(Problem(rules.PLACEHOLDER, here, message))
        name = found.get("name")
        if name is not None and not name.columns:
            message = 'needs a placeholder, so that each line gives a sink of its own, e.g. "t-{column}"'
            self._problems.append(Problem(rules.FOR_EACH_NAME, (*path, "name"), message))
            return None
        return found if len(found) == len(texts) else None

    def _build_line(
        self,
        path: Path,
        label: str,
        sink: SinkSection,
        templates: Mapping[str, Template],
        modes: Mapping[str, Mode],
        line: Line,
    ) -> None:
        place = Place((*path, "for_each"), label, line.number)
        for field, parts in templates.items():
            if any(not line.values[column].strip() for column in parts.columns):
                self._problems.append(
                    place.problem(rules.FOR_EACH_LINE, f"a value that {field} needs is empty")
                )
                return
        odd = next((f for f, parts in templates.items() if f != "route" and _leads_astray(parts, line)), None)
        if odd is not None:
            message = f"a value that {odd} needs has blanks around it, or leads to another folder (/, \\, ..)"
            self._problems.append(place.problem(rules.FOR_EACH_LINE, message))
            return
        texts = {field: parts.fill(line.values) for field, parts in templates.items()}
        if any(not text.isprintable() for field, text in texts.items() if field != "route"):
            message = "a value for a name or a path holds line ends or control characters"
            self._problems.append(place.problem(rules.FOR_EACH_LINE, message))
            return
        shown = None if self._document.expanded((*path, "name")) else texts["name"]
        self._build(Place(place.path, label, line.number, shown), sink, texts, modes)

    # --- one sink -------------------------------------------------------------------------------------

    def _has_stray_placeholder(self, path: Path, texts: Mapping[str, str]) -> bool:
        """A placeholder that nothing will fill: its sink would get nobody's rows, or a file of that name."""
        stray = False
        for field, text in texts.items():
            match = _STRAY_PLACEHOLDER.search(text)
            hidden = self._document.expanded((*path, field)) or text.startswith("postgres:")
            if match and not hidden:
                message = f"the placeholder {show(match[0])} needs a for_each: {{file: …}}"
                self._problems.append(Problem(rules.PLACEHOLDER, (*path, field), message))
                stray = True
        return stray

    def _build(
        self, place: Place, sink: SinkSection, texts: Mapping[str, str], modes: Mapping[str, Mode]
    ) -> None:
        name = texts["name"]
        if name in self._names:
            message = f"the same name as {self._names[name]}; names of sinks must differ"
            self._problems.append(place.problem(rules.DUPLICATE_SINK, message))
            return
        self._names[name] = place
        try:
            address = SINKS[sink.type].settle(sink.model_copy(update=dict(texts)), base=self._base)
        except Unusable as error:
            self._problems.append(place.problem(rules.OUT_OF_RANGE, f"{error.setting}: {error.message}"))
            return
        if (meeting := _meeting(SINKS[sink.type], address, modes)) is not None:
            self._problems.append(place.problem(rules.DUPLICATE_TABLE, meeting))
            return
        settings = SinkSettings(
            name=name,
            type=sink.type,
            address=address,
            route=texts.get("route"),
            existing=sink.existing,
            modes=modes,
            hold_bytes_max=0 if sink.hold is None else units.size_bytes(sink.hold.bytes_max),
        )
        self.built.append((settings, place))


def _meeting(kind: SinkKind, address: Address, tables: Iterable[str]) -> str | None:
    """Two tables that would be one there."""
    known: dict[str, str] = {}
    for table in tables:
        other = known.setdefault(kind.called(address, table).lower(), table)
        if other != table:
            return f"{show(other)} and {show(table)} would have one name there; give one a sink of its own"
    return None


def _leads_astray(parts: Template, line: Line) -> bool:
    """A value that is a part of a name or path must stay one: a tenant may not choose its folder by `../`.

    A placeholder that stands alone is the whole path: then the file says where things are.
    """
    whole = not any(parts.literals)
    path = not whole and not parts.literals[0].startswith(("postgres:", "postgresql:"))
    values = [line.values[column] for column in parts.columns]
    return any(v != v.strip() or (path and (v in (".", "..") or set("/\\") & set(v))) for v in values)


def refuse_shared_catalogs(
    problems: list[Problem], sinks: Sequence[tuple[SinkSettings, Place]], source: Address | None
) -> None:
    """No sink writes into the source, no two sinks into one catalog: they would share its cursor and fence,
    and two runners would take it from each other for ever."""
    folders: dict[str, str] = {}
    source_identity = None if source is None else source.identity(folders)
    by_lake: dict[Hashable, tuple[SinkSettings, Place]] = {}
    for sink, place in sinks:
        identity = sink.address.identity(folders)
        if identity == source_identity:
            holder = SINKS[sink.type].holder
            message = f"its {holder} is the source's own; give the sink another"
            problems.append(place.problem(rules.SINK_IS_SOURCE, message))
        if identity in by_lake:
            problems.append(place.problem(rules.SHARED_CATALOG, _sharing(sink, *by_lake[identity])))
        by_lake.setdefault(identity, (sink, place))


def _sharing(sink: SinkSettings, other: SinkSettings, other_place: Place) -> str:
    holder = SINKS[sink.type].holder
    shared = next((table for table in sink.modes if table in other.modes), None)
    if shared is not None:
        return f"writes {show(shared)} into the same {holder} as {other_place}; give it its own {holder}"
    return f"writes into the same {holder} as {other_place}; make one sink of both, with the `tables` of both"
