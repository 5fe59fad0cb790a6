"""The verifier with one thing in it changed: each such mutant judges something otherwise, or is listed with
the reason why none can. All of the decision about a virtual cut; of whatever else is asked of files a few in
`make test`, and all in `make soak`."""

from __future__ import annotations

import random
import types
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core import cut_life
from tests.proofs import certificates, test_decision
from tests.proofs.certificates import Certificate
from tests.verify import laid_before
from tests.verify.judging import answer, in_its_place
from tests.verify.laid_before import Case
from tests.verify.mutants import Mutant, mutants
from truecut_verify import cut

EQUIVALENT = {
    "cut: _state_wrong: change.place <= unit.lo: LtE is Lt": (
        "a change that the snapshot did not see, at or before lo, has been refused before"
    ),
}
MODULES = ("chain", "replay", "evidence", "verdict", "units", "documents", "digest")
ONE_OF = 60  # mutants, in `make test`


def cases() -> list[Certificate]:
    """Honest ones, mutated ones, and what lies at an edge that chance seldom meets."""
    found: list[Certificate] = []
    for seed in range(3000, 3080):
        honest = certificates.of(cut_life.run(seed))
        found += [honest, *test_decision.mutants(honest, random.Random(seed), 30), *_edges(honest)]
    for seed in range(4000, 4300):
        found += _seen_otherwise(certificates.of(cut_life.run(seed)))
    return found


def _edges(one: Certificate) -> Iterator[Certificate]:
    first = one.units[0]
    if len(first.rows) > 1:
        yield replace(one, units=(replace(first, rows=first.rows[::-1]), *one.units[1:]))
    if first.high is not None:  # a unit of no keys
        empty = replace(first, low=first.high, rows=())
        yield replace(one, units=(first, empty, *one.units[1:]))
    for more, told in ((2, (0, 1)), (1, (1,))):  # still running, and one that nobody could know of yet
        xmax, running = first.snapshot.xmax, first.snapshot.xip
        running |= {xmax + n for n in told}
        before: Any = SimpleNamespace(xmax=xmax + more, xip=running, xmin=min(running))
        yield replace(one, before=before)


def _seen_otherwise(one: Certificate) -> Iterator[Certificate]:
    """A change between lo and hi that a snapshot saw tells of another row: the row that was read counts."""
    for n, change in enumerate(one.log):
        for unit in one.units:
            if unit.lo < change.place <= unit.hi and change.row is not None:
                yield replace(one, log=(*one.log[:n], replace(change, row=b"another"), *one.log[n + 1 :]))


def _decided(module: types.ModuleType, one: Certificate, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(test_decision, "cut", module)
    try:
        said: str | None = module.decide(test_decision.evidence(one))
    except Exception as error:  # noqa: BLE001 - whatever it is, the mutant has shown itself
        return f"crashed: {type(error).__name__}"
    return said


def _listed(module: str) -> set[str]:
    return {name for name in EQUIVALENT if name.startswith(f"{module}: ")}


def test_every_mutant_of_the_decision_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By some certificate that it judges otherwise than the real one, or otherwise explains."""
    order = cases()
    expected = {id(one): _decided(cut, one, monkeypatch) for one in order}
    assert not [said for said in expected.values() if (said or "").startswith("crashed")]
    survivors, killed = set(), 0
    for mutant in mutants("cut"):
        module = types.ModuleType("truecut_verify.cut")
        exec(compile(mutant.tree, str(mutant), "exec"), module.__dict__)  # noqa: S102 - that is what it is for
        killer = next((one for one in order if _decided(module, one, monkeypatch) != expected[id(one)]), None)
        if killer is None:
            survivors.add(str(mutant))
        else:
            killed += 1
            order.remove(killer)
            order.insert(0, killer)
    assert survivors == _listed("cut")
    assert killed > 50


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, Any]]:
    """All that is laid before the verifier, and what the real one says."""
    return [(one, answer(one.question)) for one in laid_before.cases(tmp_path_factory.mktemp("laid"))]


def test_whatever_is_laid_before_it_gets_its_verdict(laid: list[tuple[Case, Any]]) -> None:
    """Honest folders pass, lies fail, what cannot be known is unknown; single functions answer."""
    assert {case.name: case.short(said) for case, said in laid} == {
        case.name: case.wanted for case, _ in laid
    }
    assert len({case.name for case, _ in laid}) == len(laid)


def _survivors(found: Iterable[Mutant], laid: list[tuple[Case, Any]]) -> set[str]:
    """Those that answer everything as the real one does. Whatever found the one before is asked first."""
    order, survivors = list(laid), set()
    for mutant in found:
        with in_its_place(mutant):
            killer = next((one for one in order if answer(one[0].question) != one[1]), None)
        if killer is None:
            survivors.add(str(mutant))
        else:
            order.remove(killer)
            order.insert(0, killer)
    return survivors


def test_a_mutant_of_the_verifier_is_found(laid: list[tuple[Case, Any]]) -> None:
    """One of many; which ones is drawn from their names, so that it stays when lines move."""
    some = [one for name in MODULES for one in mutants(name) if zlib.crc32(str(one).encode()) % ONE_OF == 0]
    assert len(some) > 2
    assert not _survivors(some, laid) - EQUIVALENT.keys()


@pytest.mark.soak
@pytest.mark.parametrize("module", MODULES)
def test_every_mutant_of_the_verifier_is_found(module: str, laid: list[tuple[Case, Any]]) -> None:
    """By something that is laid before it; those that nothing can find are listed, each with its reason."""
    assert _survivors(mutants(module), laid) == _listed(module)
