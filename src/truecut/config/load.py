"""Loading a pipeline file: bytes → tree → data → checked settings, or every fault at once.

Promises: only ConfigError comes out, whatever the bytes are; quickly; and never with a value that came
from the environment or another file in it. Nothing is connected to and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from truecut.config import expand, resolve, rules, shape, tree
from truecut.config.finding import ConfigError, Finding
from truecut.config.report import findings
from truecut.config.settings import Pipeline

FILE_BYTES_MAX = 1 << 20


def load(path: Path, *, environ: Mapping[str, str]) -> Pipeline:
    """The pipeline that a file describes; ConfigError with all findings when it cannot be used."""
    file = str(path)
    text = _read(path, file)
    parsed = tree.parse(text, file=file)
    absolute = path.absolute()
    document, problems = expand.to_document(parsed, environ=environ, base=absolute.parent, file=file)
    problems += shape.problems(document)
    pipeline = resolve.resolve(document, problems, path=absolute, file=file)
    if pipeline is None:
        raise ConfigError(findings(shape.without_consequences(problems), document, file=file))
    return pipeline


def _read(path: Path, file: str) -> str:
    try:
        if path.is_dir():
            raise _fault(file, rules.UNREADABLE, "this is a folder; name the pipeline file in it")
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _fault(file, rules.UNREADABLE, "there is no such file; `truecut init` writes one") from None
    except (OSError, ValueError):
        raise _fault(file, rules.UNREADABLE, "the file cannot be read; check its permissions") from None
    if len(content) > FILE_BYTES_MAX:
        message = "the file is larger than 1 MiB; is it a pipeline file? List many sinks in a for_each file"
        raise _fault(file, rules.TOO_LARGE, message)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"not UTF-8 text (byte {error.start + 1} of the file); save it as UTF-8"
        raise _fault(file, rules.NOT_UTF8, message, line) from None


def _fault(file: str, rule: rules.Rule, message: str, line: int = 1) -> ConfigError:
    return ConfigError([Finding(file, line, rule, "", message)])
