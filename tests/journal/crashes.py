"""Every crash of a life: what the disk has at each step is laid out, and whoever starts there is asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.journal.forgetful_disk import Platter, Recording, Step, Told, Tree, lay
from truecut.errors import TruecutError


class Life(Protocol):
    """What somebody does on a disk, and what must be so after a crash, whatever was told before."""

    def live(self, folder: Path, recording: Recording) -> None: ...

    def live_again(self, folder: Path, recording: Recording) -> None:
        """After a kill, which leaves everything that was written."""

    def check(self, folder: Path, told: list[Any]) -> None: ...


class Crashes:
    """All of them, each once."""

    def __init__(self, life: Life, folder: Path, without: str | None = None) -> None:
        self.synced: set[str] = set()
        self.checked = 0
        self._life = life
        self._folder = folder
        self._without = without
        self._seen: set[int] = set()
        self._count = 0

    def everywhere(self) -> None:
        """At each step of one life, whatever part is left. And after a kill at any of these steps, at each
        step of the next life, when nothing is left that was not synced."""
        killed = list(self._walk(Platter(), [], self._record(self._life.live, Platter()), Platter.crashes))
        for platter, told in killed:
            if self._is_new((platter, told)):
                steps = self._record(self._life.live_again, platter)
                list(self._walk(platter, told, steps, lambda one: [one.synced()]))

    def _record(self, live: Callable[[Path, Recording], None], platter: Platter) -> list[Step]:
        folder = self._lay(platter.everything())
        recording = Recording(folder, platter, self._without)
        with recording.in_place():
            live(folder, recording)
        self.synced |= recording.synced
        shutil.rmtree(folder)
        return recording.steps

    def _walk(
        self,
        platter: Platter,
        told: list[Any],
        steps: list[Step],
        crashes: Callable[[Platter], Iterable[Tree]],
    ) -> Iterator[tuple[Platter, list[Any]]]:
        platter, told = platter.copy(), list(told)
        for step in steps:
            if isinstance(step, Told):
                told.append(step.what)
            platter.take(step)
            for tree in crashes(platter):
                self._check(tree, told)
            yield platter.copy(), list(told)

    def _check(self, tree: Tree, told: list[Any]) -> None:
        if self._is_new((tree, told)):
            self.checked += 1
            folder = self._lay(tree)
            self._life.check(folder, told)
            shutil.rmtree(folder)

    def _is_new(self, situation: object) -> bool:
        known = len(self._seen)
        self._seen.add(hash(repr(situation)))
        return len(self._seen) > known

    def _lay(self, tree: Tree) -> Path:
        self._count += 1
        return lay(tree, self._folder / f"{self._count}")


def is_missed(life: Life, folder: Path, sync: str) -> bool:
    """Whether a sync that is left out breaks what was told, or leaves damage where only a crash was."""
    try:
        Crashes(life, folder, without=sync).everywhere()
    except (AssertionError, TruecutError):
        return True
    return False
