"""Modules of the verifier with one comparison, connective, negation or refusal changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "truecut_verify"
_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """`place`: the line in words that stay when lines move; `what` was changed there."""

    module: str
    place: str
    what: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.module}: {self.place}: {self.what}"


def mutants(module: str) -> Iterator[Mutant]:
    """Every one of a module."""
    spec = find_spec(f"{PACKAGE}.{module}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    nodes = list(ast.walk(tree))
    owner = _owners(tree)
    seen: dict[str, int] = {}
    for n, node in enumerate(nodes):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            change(list(ast.walk(changed))[n])
            place = f"{owner.get(n, '')}: {ast.unparse(node).splitlines()[0][:90]}"
            seen[place + what] = seen.get(place + what, 0) + 1
            again = f" ({seen[place + what]})" if seen[place + what] > 1 else ""
            yield Mutant(module, place, what + again, ast.fix_missing_locations(changed))


def _owners(tree: ast.Module) -> dict[int, str]:
    """Of each node, by its number: the function that it stands in."""
    numbers = {id(node): n for n, node in enumerate(ast.walk(tree))}
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found |= {numbers[id(inner)]: node.name for inner in ast.walk(node)}
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            other = _OTHER[type(op)]

            def compare(at: ast.Compare, n: int = n, other: type[ast.cmpop] = other) -> None:
                at.ops[n] = other()

            yield f"{type(op).__name__} is {other.__name__}" + (f" at {n}" if n else ""), compare
    elif isinstance(node, ast.BoolOp):

        def connect(at: ast.BoolOp) -> None:
            at.op = ast.Or() if isinstance(at.op, ast.And) else ast.And()

        yield "and is or" if isinstance(node.op, ast.And) else "or is and", connect
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):

        def affirm(at: ast.UnaryOp) -> None:
            at.op = ast.UAdd()
            at.operand = ast.Call(ast.Name("bool", ast.Load()), [at.operand], [])

        yield "not is gone", affirm
    elif isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body):

        def let_pass(at: ast.If) -> None:
            at.test = ast.Constant(False)

        yield "nothing is raised", let_pass
