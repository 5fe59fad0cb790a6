"""All that is laid before the verifier, to tell it from its mutants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.core import cut_life
from tests.proofs import certificates
from tests.proofs.test_checker import CHEATS
from tests.verify import test_cheats, test_units
from tests.verify.issuer import CopyOf, Json
from tests.verify.judging import Question, of_files
from tests.verify.single_answers import answers
from tests.verify.spliced import Spliced
from tests.verify.test_cheats import story
from tests.verify.worlds import HONEST, LIES, UNCERTAIN


@dataclass(frozen=True)
class Case:
    """A question, and what it has to be told in short: the verdict, or the whole answer."""

    name: str
    question: Question
    wanted: Any
    is_folder: bool = True

    def short(self, answer: Any) -> Any:
        """What `wanted` is compared with."""
        return answer[0]["verdict"] if self.is_folder else answer


def cases(folder: Path) -> Iterator[Case]:
    """All of them; folders are made in this one."""
    numbers = itertools.count(1)
    for builds, wanted in ((HONEST, "pass"), (UNCERTAIN, "unknown"), (LIES, "fail")):
        for name, build in builds.items():
            path = folder / str(next(numbers))
            key = build(path)
            yield Case(name, of_files(path, key if isinstance(key, bytes) else None), wanted)
    for name, (_, level, _) in test_cheats.SIGNED.items():
        path = folder / str(next(numbers))
        story(path, bend=test_cheats.SIGNED[name][0])
        yield Case(f"{level}: {name}", of_files(path), "fail")
    for name, (change, level, _) in test_cheats.UNSIGNED.items():
        path = folder / str(next(numbers))
        change(story(path))
        yield Case(f"{level}: {name}", of_files(path), "fail")
    yield from _units(folder / "units")
    for name, question, answer in answers(folder / "asked"):
        yield Case(name, question, answer, is_folder=False)


def _units(folder: Path) -> Iterator[Case]:
    """Bases that were read in units, with their evidence: honest, of another cut, hurt, gone, not whole."""
    lives = [certificates.of(cut_life.run(seed)) for seed in range(40)]
    lives = [one for one in lives if len(one.units) > 1 and one.log and len(one.claimed) > 1][:4]
    for n, one in enumerate(lives):
        for route in ("", test_units.ROUTE):
            path = folder / f"honest {n}{route}"
            Spliced(path, one, route).certified()
            yield Case(f"units {n}{route}", of_files(path), "pass")
    for name in sorted({*CHEATS} - test_units.OF_KEYS_ORDER):
        other = next((bent for one in lives if (bent := CHEATS[name](one)) is not None), None)
        if other is not None and not (name == "rows swapped" and len({row for _, row in other.claimed}) == 1):
            Spliced(folder / name, other).certified()
            yield Case(f"units: {name}", of_files(folder / name), "fail")
    Spliced(folder / "partial", lives[0], partial=True).certified()
    yield Case("units: not the whole row", of_files(folder / "partial"), "unknown")
    for name in ("hurt", "gone"):
        Spliced(folder / name, lives[0]).certified()
        file = folder / name / "evidence/unit0.parquet"
        if name == "gone":
            file.unlink()
        else:
            pq.write_table(pq.read_table(file), file, compression="none")
        yield Case(f"units: {name}", of_files(folder / name), "fail" if name == "hurt" else "unknown")
    for name, values in (("digest", {"digest": "f" * 32}), ("rows", {"rows": 99})):
        spliced = Bent(folder / name, lives[0])
        spliced.more = values
        spliced.certified()
        yield Case(f"units: another {name}", of_files(folder / name), "fail")
    few = Few(folder / "few", lives[0])
    few.certified()
    yield Case("units: a file too few", of_files(folder / "few"), "fail")


class Bent(Spliced):
    """Its units say something else of themselves."""

    more: Json

    def _unit(self, part: Any) -> Json:
        return {**super()._unit(part), **self.more}


class Few(Spliced):
    """Its last unit has no file."""

    def _splice(self, copy: CopyOf) -> tuple[Json, str]:
        whole, self.one = self.one, replace(self.one, units=self.one.units[:-1])
        told = super()._splice(copy)
        self.one = whole
        return told
