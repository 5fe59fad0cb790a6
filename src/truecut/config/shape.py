"""Checks the shape of a file: keys, types and values, each by itself. Pydantic finds, this explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from truecut.config import file as written
from truecut.config import reserved, rules, units
from truecut.config.finding import did_you_mean, show
from truecut.config.kinds import SINKS, SOURCES, Kinds
from truecut.config.report import Document, Path, Problem
from truecut.config.section import SinkSection, SourceSection, check_duration, check_size

_Model = TypeVar("_Model", bound=BaseModel)

_PROBLEMS_MAX = 1000  # of a file that is wrong everywhere, nobody reads more

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_BY_CODE = {rule.code: rule for rule in vars(rules).values() if isinstance(rule, rules.Rule)}


def validate(model: type[_Model], data: object) -> _Model | None:
    """A piece of the file, if its shape is right; its faults are found by `problems`."""
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def problems(document: Document) -> list[Problem]:
    """Everything that is wrong with the shape of the file."""
    try:
        written.PipelineFile.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[:_PROBLEMS_MAX]
        found = [_explain(document, detail) for detail in details]
        return [problem for problem in found if problem.path not in document.broken]
    return []


def without_consequences(found: Sequence[Problem]) -> list[Problem]:
    """Leave out what follows from a type that is not available yet: its other settings are right or wrong
    by rules that nobody knows here."""
    causes = {p.path: p for p in found if p.rule is rules.NOT_YET and p.path[-1:] == ("type",)}
    sections = {path[:-1] for path in causes}

    def follows(problem: Problem) -> bool:
        inside = any(problem.path[:length] in sections for length in range(1, len(problem.path) + 1))
        return inside and causes.get(problem.path) is not problem

    return [problem for problem in found if not follows(problem)]


def _explain(document: Document, error: ErrorDetails) -> Problem:
    path: Path = error["loc"]
    kind = error["type"]
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(document, path)
    if kind == "missing":
        return Problem(rules.MISSING, path, "is missing" + _what_it_is(document, path))
    if kind == "literal_error":
        return _wrong_value(document, path)
    if kind in _EXPECTED:
        return _wrong_type(document, path, _EXPECTED[kind])
    if kind == rules.BAD_UNIT.code:
        return Problem(rules.BAD_UNIT, path, error["msg"] + _nearest_unit(document, path, error["msg"]))
    if kind in _BY_CODE:
        return Problem(_BY_CODE[kind], path, error["msg"])
    return Problem(rules.OUT_OF_RANGE, path, _out_of_range(kind, context))


def _out_of_range(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "too_short" | "string_too_short":
            return "must not be empty"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case _:
            return "is not a value that can be used"


def _unknown_key(document: Document, path: Path) -> Problem:
    key = str(path[-1])
    if key in reserved.KEYS:
        return Problem(rules.NOT_YET, path, "is not available yet; take it out")
    known = _model_at(document, path[:-1])
    hint = did_you_mean(key, known.model_fields) if known else ""
    return Problem(rules.UNKNOWN_KEY, path, "unknown key" + (hint or _belongs_elsewhere(key)))


def _belongs_elsewhere(key: str) -> str:
    places = [name for name, model in _SECTIONS.items() if key in model.model_fields]
    return f"; it belongs to {' or '.join(places)}" if places else ""


_SECTIONS: dict[str, type[BaseModel]] = {
    "metadata": written.Metadata,
    "spec": written.Spec,
    "spec.tables": written.Table,
    "spec.sinks": SinkSection,
    "spec.batch": written.Batch,
    "spec.journal": written.Journal,
    "spec.certificate": written.Certificate,
    "spec.certificate.verify": written.Verify,
    "spec.lease": written.Lease,
    "spec.spark": written.Spark,
}


_KINDS: dict[type[BaseModel], Kinds[Any]] = {SourceSection: SOURCES, SinkSection: SINKS}


def _model_at(document: Document, path: Path) -> type[BaseModel] | None:
    """The type of the mapping at a path; a source's and a sink's is that of its kind."""
    model: type[BaseModel] = written.PipelineFile
    for depth, step in enumerate(path, start=1):
        if isinstance(step, int):
            continue
        field = model.model_fields.get(step)
        inner = None if field is None else _section_in(field.annotation)
        if inner is None:
            return None
        kind = _KINDS[inner].find(_type_at(document, path[: depth + 1])) if inner in _KINDS else None
        model = inner if kind is None else kind.section
    return model


def _type_at(document: Document, path: Path) -> object:
    """What `type` says at a path, or at the item of the list there."""
    here = path if isinstance(path[-1], int) else path[:2]
    return document.value((*here, "type"))


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The section inside `Section`, `list[Section]` or `Section | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for found in map(_section_in, get_args(annotation)) if found), None)


def _what_it_is(document: Document, path: Path) -> str:
    parent = _model_at(document, path[:-1])
    field = parent.model_fields.get(str(path[-1])) if parent else None
    return f" ({field.description.rstrip('.')})" if field is not None and field.description else ""


def _wrong_value(document: Document, path: Path) -> Problem:
    allowed = [str(value) for value in _allowed(document, path)]
    expected = "expected " + " or ".join(allowed)
    value = document.value(path)
    if not isinstance(value, str):
        return Problem(rules.WRONG_TYPE, path, f"{expected}, found {_found(value)}")
    if document.expanded(path):
        return Problem(rules.WRONG_VALUE, path, f"{expected}; what the ${{…}} gives is none of them")
    if value in _reserved_values(path):
        return Problem(rules.NOT_YET, path, f"{show(value)} is not available yet; {expected}")
    return Problem(rules.WRONG_VALUE, path, f"{expected}, found {show(value)}{did_you_mean(value, allowed)}")


def _allowed(document: Document, path: Path) -> list[object]:
    parent = _model_at(document, path[:-1])
    if parent in _KINDS and path[-1] == "type":
        return list(_KINDS[parent].names)
    field = parent.model_fields[str(path[-1])] if parent else None
    return [] if field is None else list(_literals(field.annotation))


def _literals(annotation: Any) -> Iterator[object]:
    for argument in get_args(annotation):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _literals(argument)


def _reserved_values(path: Path) -> frozenset[str]:
    if path == ("spec", "source", "type"):
        return reserved.SOURCE_TYPES
    if path[-1] == "type":
        return reserved.SINK_TYPES
    return reserved.MODES if path[-1] == "mode" else frozenset()


def _wrong_type(document: Document, path: Path, expected: str) -> Problem:
    value = document.value(path)
    hint = ""
    if value is None:
        hint = "; give it a value or take the key out"
    elif (meant := _with_unit(document, path)) is not None:
        return Problem(rules.BAD_UNIT, path, meant)
    elif expected == "text" and isinstance(value, int | float):
        hint = "; put it in quotes"
    elif expected == "a list" and isinstance(value, str) and not document.expanded(path):
        hint = f"; write [{show(value)}]"
    elif document.expanded(path):
        hint = " (a ${…} always gives text)"
    return Problem(rules.WRONG_TYPE, path, f"expected {expected}, found {_found(value)}{hint}")


def _with_unit(document: Document, path: Path) -> str | None:
    """What to say of a number where a duration or a size is expected."""
    value = document.value(path)
    parent = _model_at(document, path[:-1]) if path else None
    field = parent.model_fields.get(str(path[-1])) if parent else None
    checks = {getattr(rule, "func", None) for rule in field.metadata} if field else set()
    if isinstance(value, bool) or not isinstance(value, int) or not {check_duration, check_size} & checks:
        return None
    if check_size in checks:
        return f'expected a size, found a number without a unit; did you mean "{value}MiB"?'
    return f"expected a duration, found a number without a unit{units.meant_duration(str(value))}"


def _found(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _nearest_unit(document: Document, path: Path, message: str) -> str:
    value = document.value(path)
    if not isinstance(value, str) or document.expanded(path):
        return ""
    if "size" not in message:
        return units.meant_duration(value)
    near = units.nearest_size(value)
    return f'; did you mean "{near}"?' if near else ""
