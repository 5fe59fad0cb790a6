"""Questions to the verifier as it is loaded now: the real one, or one with a mutant in a module's place."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.verify.mutants import PACKAGE, Mutant

Question = Callable[[], Any]  # of the modules that are loaded now
CPU_S = 4.0  # an honest answer takes hundredths


# --- the verifier, imported anew ----------------------------------------------------------------------------


class _InItsPlace(MetaPathFinder):
    """Finds one module: a mutant of it."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = f"{PACKAGE}.{mutant.module}"
        self._code: CodeType = compile(mutant.tree, str(mutant), "exec")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == self._name else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)  # noqa: S102 - that is what it is for


@contextmanager
def in_its_place(mutant: Mutant) -> Iterator[None]:
    """Whoever imports the verifier meanwhile gets one with this mutant; nobody who has it already."""
    finder, real = _InItsPlace(mutant), _forgotten()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forgotten()
        sys.modules.update(real)


def _forgotten() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == PACKAGE]
    return {name: sys.modules.pop(name) for name in names}


def verifier(module: str) -> Any:
    """One of its modules, as it is loaded now."""
    return import_module(f"{PACKAGE}.{module}")


def answer(question: Question) -> Any:
    """What it says, refusals and crashes included; that it never ends, too."""
    with _bounded():
        try:
            return question()
        except _Endless:
            return "it does not end"
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells one verifier from another
            return type(error).__name__, str(error), getattr(error, "witness", None)


class _Endless(BaseException):
    """Nobody who catches errors takes it for one."""


@contextmanager
def _bounded() -> Iterator[None]:
    """By the processor's time, so that other work beside it does not count."""

    def over(*_: Any) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# --- questions ----------------------------------------------------------------------------------------------


def of_files(path: Path, public_key: bytes | None = None) -> Question:
    """All that can be said of files, in JSON and in words."""

    def asked() -> Any:
        verdict = verifier("verdict")
        with verifier("folder").opened([path]) as folders:
            checks = [one for each in folders for one in verifier("files").examine(each, public_key).checks]
        return verdict.document(checks), verdict.sentences(checks), verdict.claims(checks)

    return asked
