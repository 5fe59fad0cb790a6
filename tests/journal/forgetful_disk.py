"""A disk that forgets whatever was not synced, in the place of the journal's own.

`Recording` carries out every call of journal/disk.py and writes it down. `Platter` follows what was written
down: what is durable, and what a crash may leave any part of: data, names in folders, renames. So one life
of a journal shows what a power failure could have left at each of its steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from truecut.journal import disk

FOLDER = 0  # the number of everything that is a folder
Tree = dict[str, bytes | None]  # what a crash leaves: files by their paths; None for a folder


@dataclass(frozen=True, slots=True)
class Written:
    """To the file of that number."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """The file is so long now."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Named:
    """A name stands for a file from now on, or for none; another one may go in the same step."""

    path: str
    file: int | None
    gone: str | None = None

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Synced:
    """All that was written to a file, or named in a folder."""

    what: int | str


@dataclass(frozen=True, slots=True)
class Told:
    """The journal has said so, and must stand by it."""

    what: Any


Change = Written | Cut | Named
Step = Change | Synced | Told


@dataclass
class Platter:
    """What is on the disk, and what is on its way there."""

    content: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    unsynced: list[Change] = field(default_factory=list)

    def copy(self) -> Platter:
        return Platter(dict(self.content), dict(self.names), list(self.unsynced))

    def take(self, step: Step) -> None:
        if isinstance(step, Synced):
            done = [one for one in self.unsynced if _place(one) == step.what]
            self.content, self.names = self._with(done)
            self.unsynced = [one for one in self.unsynced if _place(one) != step.what]
        elif not isinstance(step, Told):
            self.unsynced.append(step)

    def synced(self) -> Tree:
        """What is left by the worst crash."""
        return self._tree([])

    def everything(self) -> Tree:
        """What the next process finds when only this one is killed."""
        return self._tree(self.unsynced)

    def live_names(self) -> dict[str, int]:
        return self._with(self.unsynced)[1]

    def highest(self) -> int:
        """No file has a number above it."""
        named = [one.file or 0 for one in self.unsynced if isinstance(one, Named)]
        return max([0, *self.content, *self.names.values(), *named])

    def crashes(self) -> Iterator[Tree]:
        """What a power failure may leave: nothing that was not synced, one thing only, all but one, half of
        one, everything."""
        yield self.synced()
        yield self.everything()
        for n, one in enumerate(self.unsynced):
            yield self._tree([one])
            yield self._tree([*self.unsynced[:n], *self.unsynced[n + 1 :]])
            if isinstance(one, Written) and len(one.data) > 1:
                half = len(one.data) // 2
                yield self._tree([replace(one, data=one.data[:half])])
                yield self._tree([replace(one, data=one.data[half:], offset=one.offset + half)])

    def _tree(self, survivors: Sequence[Change]) -> Tree:
        content, names = self._with(survivors)
        tree: Tree = {}
        for path in sorted(names):
            folder = path.rpartition("/")[0]
            if not folder or folder in tree:
                tree[path] = None if names[path] == FOLDER else content.get(names[path], b"")
        return tree

    def _with(self, changes: Sequence[Change]) -> tuple[dict[int, bytes], dict[str, int]]:
        content, names = dict(self.content), dict(self.names)
        for one in changes:
            if isinstance(one, Written):
                before = content.get(one.file, b"").ljust(one.offset, b"\0")
                content[one.file] = before[: one.offset] + one.data + before[one.offset + len(one.data) :]
            elif isinstance(one, Cut):
                content[one.file] = content.get(one.file, b"")[: one.size].ljust(one.size, b"\0")
            else:
                if one.gone is not None:
                    names.pop(one.gone, None)
                if one.file is None:
                    names.pop(one.path, None)
                else:
                    names[one.path] = one.file
        return content, names


def _place(change: Change) -> int | str:
    return change.folder if isinstance(change, Named) else change.file


def lay(tree: Tree, root: Path) -> Path:
    """The folder as a crash has left it."""
    root.mkdir()
    for path, data in tree.items():
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
    return root


CALLS = (
    "create",
    "open_or_create",
    "write_at",
    "truncate",
    "sync",
    "sync_file",
    "make",
    "rename",
    "link",
    "remove",
    "remove_folder",
    "sync_folder",
)


class Recording:
    """The calls of journal/disk.py for one folder. `without`: a sync that is left out."""

    def __init__(self, root: Path, platter: Platter | None = None, without: str | None = None) -> None:
        self.steps: list[Step] = []
        self.synced: set[str] = set()  # the names of the syncs that were asked for
        self._root = root
        self._without = without
        self._names = dict(platter.live_names()) if platter else {}
        self._next = platter.highest() + 1 if platter else 1
        self._open: dict[int, int] = {}  # which file a descriptor stands for
        self._real = {name: getattr(disk, name) for name in CALLS}
        self._lock = threading.RLock()

    @contextmanager
    def in_place(self) -> Iterator[Recording]:
        """For this block the journal writes here."""
        with ExitStack() as stack:
            for name in CALLS:
                stack.enter_context(patch.object(disk, name, getattr(self, name)))
            yield self

    def tell(self, what: Any) -> None:
        with self._lock:
            self.steps.append(Told(what))

    # --- the calls ---

    def create(self, path: Path) -> int:
        with self._lock:
            descriptor = self._opened(path, self._real["create"])
            self.steps.append(Cut(self._open[descriptor], 0))
            return descriptor

    def open_or_create(self, path: Path) -> int:
        with self._lock:
            return self._opened(path, self._real["open_or_create"])

    def write_at(self, descriptor: int, offset: int, parts: Sequence[bytes]) -> None:
        with self._lock:
            self._real["write_at"](descriptor, offset, parts)
            self.written(self._open[descriptor], offset, b"".join(parts))

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            self._real["truncate"](descriptor, size)
            self.steps.append(Cut(self._open[descriptor], size))

    def sync(self, descriptor: int, name: str) -> None:
        self.done(self._open[descriptor], name)

    def sync_file(self, path: Path, name: str) -> None:
        self.done(self._names[self.relative(path)], name)

    def make(self, folder: Path) -> None:
        with self._lock:
            if not folder.exists():
                self._real["make"](folder)
                self.named(Named(self.relative(folder), FOLDER))

    def rename(self, path: Path, other: Path) -> None:
        with self._lock:
            self._real["rename"](path, other)
            gone = self.relative(path)
            self.named(Named(self.relative(other), self._names[gone], gone))

    def link(self, path: Path, other: Path) -> None:
        with self._lock:
            self._real["link"](path, other)
            self.named(Named(self.relative(other), self._names[self.relative(path)]))

    def remove(self, path: Path) -> None:
        with self._lock:
            there = path.exists()
            self._real["remove"](path)
            if there:
                self.named(Named(self.relative(path), None))

    def remove_folder(self, folder: Path) -> None:
        with self._lock:
            self._real["remove_folder"](folder)
            if not folder.exists():
                self.named(Named(self.relative(folder), None))

    def sync_folder(self, folder: Path, name: str) -> None:
        if folder.is_relative_to(self._root):
            self.done(self.relative(folder), name)

    # --- what they are made of ---

    def relative(self, path: Path) -> str:
        found = str(path.relative_to(self._root))
        return "" if found == "." else found

    def file_at(self, path: Path) -> int:
        """The number of a file, which is new if nothing of that name is known."""
        name = self.relative(path)
        if name not in self._names:
            self.named(Named(name, self._next))
            self._next += 1
        return self._names[name]

    def written(self, file: int, offset: int, data: bytes) -> None:
        with self._lock:
            self.steps.append(Written(file, offset, data))

    def done(self, what: int | str, name: str) -> None:
        with self._lock:
            self.synced.add(name)
            if name != self._without:
                self.steps.append(Synced(what))

    def named(self, step: Named) -> None:
        self.steps.append(step)
        if step.gone is not None:
            self._names.pop(step.gone)
        if step.file is None:
            self._names.pop(step.path, None)
        else:
            self._names[step.path] = step.file

    def _opened(self, path: Path, really: Callable[[Path], int]) -> int:
        descriptor = really(path)
        self._open[descriptor] = self.file_at(path)
        return descriptor
