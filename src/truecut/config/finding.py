"""What is wrong with a pipeline file: all of it at once, each with its place.

Owns the form `file:line  code  path: what; did you mean …` and the promise that no value which came
from a `${…}` is in it: what is shown passes through `show`, and callers show only what the file says.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truecut.config.rules import Rule
from truecut.errors import ExitCode, TruecutError

_SHOWN_CHARS_MAX = 60
_FINDINGS_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in one place."""

    file: str
    line: int
    rule: Rule
    path: str  # sinks.lake.catalog; empty for the file as a whole
    message: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}  {self.rule.code}  {place}{self.message}"


class ConfigError(TruecutError):
    """The pipeline file cannot be used; `findings` says why, in the order of the file."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        first = self.findings[0]
        super().__init__(
            first.rule.code,
            "\n".join(_lines(self.findings)),
            fix=first.rule.fix,
            exit_code=ExitCode.WRONG_INPUT,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return ConfigError, (self.findings,)

    def __str__(self) -> str:
        return self.fault.message


def _lines(findings: Sequence[Finding]) -> Iterable[str]:
    yield from (str(finding) for finding in findings[:_FINDINGS_SHOWN_MAX])
    if len(findings) > _FINDINGS_SHOWN_MAX:
        yield f"… and {len(findings) - _FINDINGS_SHOWN_MAX} more"


def show(text: str) -> str:
    """Text from the file in quotes: short, on one line, nothing that a terminal would obey."""
    short = text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
    return '"' + plain(short) + '"'


def plain(text: str) -> str:
    """The same without quotes, for names in a path."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """`; did you mean "path"?`, or nothing when no name is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(text[:_SHOWN_CHARS_MAX].lower(), by_lower, n=1, cutoff=0.55)
    return f"; did you mean {show(by_lower[near[0]])}?" if near else ""
