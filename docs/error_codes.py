"""Harvests every error code from the source, with the message and the fix that stand beside it.

A code is a text `TCnnnn` (or a module's constant for one) followed, in the same call or tuple, by its
message and perhaps its fix. Nothing is imported: the source is read as a syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

_CODE = re.compile(r"TC\d{4}")


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One place where a code gets its words."""

    code: str
    module: str
    meaning: str
    fix: str


def mentioned(source: Path = SOURCE) -> set[str]:
    """Every code that the source mentions at all."""
    return {code for path in source.rglob("*.py") for code in _CODE.findall(path.read_text(encoding="utf-8"))}


def harvest(source: Path = SOURCE) -> list[Use]:
    """Every code with its words, sorted by code."""
    trees = {
        _module(path, source): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }
    constants = {module: dict(_constants(tree)) for module, tree in trees.items()}
    uses: set[Use] = set()
    for module, tree in trees.items():
        names = {**_imported(tree, constants), **constants[module]}
        uses.update(_uses(module, tree, names))
    return sorted(uses)


def _module(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            code = _code(statement.value, {})
            if code is not None:
                yield statement.targets[0].id, code


def _imported(tree: ast.Module, constants: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {
        alias.asname or alias.name: constants[node.module][alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module in constants
        for alias in node.names
        if alias.name in constants[node.module]
    }


def _uses(module: str, tree: ast.Module, names: Mapping[str, str]) -> Iterator[Use]:
    scopes: dict[ast.AST, ast.AST] = {}
    for scope in ast.walk(tree):  # outer functions come before the inner ones, which win
        if isinstance(scope, ast.Module | ast.FunctionDef):
            scopes.update(dict.fromkeys(ast.walk(scope), scope))
    for node, scope in scopes.items():
        if isinstance(node, ast.Call | ast.Tuple):
            use = _use(module, node, names, _texts_before(node, scope))
            if use is not None:
                yield use


def _texts_before(node: ast.expr, scope: ast.AST) -> dict[str, ast.expr]:
    """What the variables of a function hold at one of its lines, as far as the text tells."""
    assigned = [
        (inner.lineno, target.id, inner.value)
        for inner in ast.walk(scope)
        if isinstance(inner, ast.Assign) and inner.lineno < node.lineno
        for target in inner.targets
        if isinstance(target, ast.Name)
    ]
    return {name: value for _, name, value in sorted(assigned, key=lambda item: item[0])}


def _use(
    module: str, node: ast.Call | ast.Tuple, names: Mapping[str, str], variables: Mapping[str, ast.expr]
) -> Use | None:
    values = node.args if isinstance(node, ast.Call) else node.elts
    keywords = node.keywords if isinstance(node, ast.Call) else []
    fix = next((keyword.value for keyword in keywords if keyword.arg == "fix"), None)
    place = next((i for i, value in enumerate(values) if _code(value, names)), None)
    if place is None:
        return None
    texts = [_text(value, variables) for value in values[place + 1 :]]
    texts = [text for text in texts if text]
    if not texts:
        return None
    fix_text = _text(fix, variables) if fix is not None else texts[1] if len(texts) > 1 else ""
    return Use(_code(values[place], names) or "", module, texts[0], fix_text)


def _code(value: ast.expr, names: Mapping[str, str]) -> str | None:
    if isinstance(value, ast.Name):
        return names.get(value.id)
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and _CODE.fullmatch(value.value):
        return value.value
    return None


def _text(value: ast.expr, variables: Mapping[str, ast.expr]) -> str:
    """A text as the source writes it; what is filled in at run time stands in braces."""
    match value:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_part(part) for part in parts)
        case ast.Name(id=name) if name in variables and not isinstance(variables[name], ast.Name):
            return _text(variables[name], variables)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, variables) + _text(right, variables)
        case ast.IfExp(body=body, orelse=orelse):
            return " / ".join(filter(None, (_text(body, variables), _text(orelse, variables))))
        case _:
            return ""


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str() as text):
            return text
        case ast.FormattedValue(value=ast.Name(id=name)) | ast.FormattedValue(value=ast.Attribute(attr=name)):
            return "{…}" if name.startswith("__") else "{" + name + "}"
        case _:
            return "{…}"
