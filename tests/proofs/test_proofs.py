"""Coq's verdict on the proofs, and that the page beside them says what they say."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs.vernacular import PROOFS, theorems, unproved

FILES = sorted(PROOFS.glob("*.v"))
README = (PROOFS / "README.md").read_text()
NAMED = re.findall(r"^### `(\w+)\.(\w+)`$", README, re.MULTILINE)
PROVED = [(file.stem, name) for file in FILES for name in theorems(file.read_text())]
CLOSED = "Closed under the global context"


def test_every_file_is_accepted(built: Path) -> None:
    """Coq has checked each file that is there: none was left out of the Makefile."""
    assert {file.stem for file in built.glob("*.vo")} == {file.stem for file in FILES}


def test_every_theorem_rests_on_nothing(built: Path) -> None:
    """Coq itself finds no axiom below any theorem that the page names."""
    files = sorted({file for file, _ in NAMED})
    asked = [f"Require {' '.join(files)}.", *(f"Print Assumptions {file}.{name}." for file, name in NAMED)]
    assert _told(built, asked) == [CLOSED] * len(NAMED)


def test_an_axiom_would_be_found(built: Path) -> None:
    """Coq names an axiom that a theorem rests on."""
    asked = ["Axiom luck : False.", "Theorem anything : 1 = 2.", "Proof. destruct luck. Qed."]
    told = _told(built, [*asked, "Print Assumptions anything."])
    assert told == ["Axioms:", "luck : False"]


def _told(built: Path, lines: list[str]) -> list[str]:
    (built / "asked.v").write_text("\n".join(lines) + "\n")
    asked = subprocess.run(["coqc", "-q", "asked.v"], cwd=built, capture_output=True, text=True, check=False)
    for left in built.glob("asked.*"):
        left.unlink()
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.splitlines()


def test_the_page_names_every_theorem_and_no_other() -> None:
    """A theorem without its claim and its premises is not there for anybody."""
    assert sorted(NAMED) == sorted(PROVED)
    assert len(PROVED) > 15


@pytest.mark.parametrize("entry", re.split(r"^### ", README, flags=re.MULTILINE)[1:])
def test_every_theorem_has_its_claim_and_its_premises(entry: str) -> None:
    """Each entry says what is claimed, and for each premise what stands for it."""
    assert "**Claim.**" in entry
    assert "| premise | what stands for it |" in entry or "**Premises.** None" in entry


def test_what_the_page_refers_to_is_there() -> None:
    """A test or a file that stands for a premise exists."""
    root = PROOFS.parent
    named = re.findall(r"`((?:tests|src|specs)/[\w/]+\.\w+)(?:::(\w+))?`", README)
    assert len(named) > 10
    for file, name in named:
        text = (root / file).read_text()
        assert not name or re.search(rf"^def {name}\b", text, re.MULTILINE), f"{file}::{name}"


def test_what_stands_for_a_premise_in_production_is_called_there() -> None:
    """A function that the page names is called by the program, or stands among what only the machine does;
    and what stands there is not called."""
    root = PROOFS.parent / "src"
    trees = {path: ast.parse(path.read_text()) for path in root.rglob("*.py")}
    named = set(re.findall(r"`src/([\w/]+\.py)::(\w+)`", README))
    model = set(re.findall(r"`src/([\w/]+\.py)::(\w+)`", _paragraph("What only the machine does")))
    called = {(file, name) for file, name in named if name in _called(trees, root / file)}
    uncalled = {one for one in named if one not in called}
    assert uncalled == {one for one in model if one not in called}
    assert {name for _, name in uncalled} == {"split", "bracket", "record_unit", "top_level"}
    assert {"doubts", "ready", "wave", "splice_of", "reach", "asked"} <= {name for _, name in called}


def _paragraph(title: str) -> str:
    return README.split(f"**{title}.**")[1].split("\n- **")[0]


def _called(trees: dict[Path, ast.Module], path: Path) -> set[str]:
    """Functions of a module that other modules use, and those that these use there."""
    functions = {one.name: one for one in trees[path].body if isinstance(one, ast.FunctionDef)}
    found = {name for other, tree in trees.items() if other != path for name in _used(tree, path.stem)}
    waiting = list(found & set(functions))
    while waiting:
        inner = {one.id for one in ast.walk(functions[waiting.pop()]) if isinstance(one, ast.Name)}
        waiting += list((inner & set(functions)) - found)
        found |= inner
    return found & set(functions)


def _used(tree: ast.Module, module: str) -> Iterator[str]:
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom) and (one.module or "").rpartition(".")[2] == module:
            yield from (alias.name for alias in one.names)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == module:
            yield one.attr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_is_believed(file: Path) -> None:
    """No axiom, no proof left out, no assumption outside a section."""
    assert unproved(file.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "Axiom a : False.",
        "Lemma a : False.\nProof. Admitted.",
        "Proof. admit.",
        "Parameter n : nat.",
        "Section S.\nHypothesis h : False.\nEnd S.\nHypothesis g : False.",
        "Variable n : nat.",
        "(* (* in *) a comment *) Axiom a : False.",
        "Unset Guard Checking.",
    ],
)
def test_what_is_believed_would_be_found(text: str) -> None:
    """Each way to leave out a proof is noticed."""
    assert unproved(text) != []


def test_words_in_comments_and_premises_in_sections_are_no_axioms() -> None:
    """What may be said is not refused."""
    assert unproved("(* no Axiom (* admit *) *)\nSection S.\nHypothesis h : 0 = 0.\nEnd S.") == []
