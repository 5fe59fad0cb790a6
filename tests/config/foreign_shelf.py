"""A sink of somebody else's, as their package has it: the sink in memory, kept in a file.

The test installs it under this name, apart from our tests; it knows nothing but what `truecut` offers, and
the other module of its package.
"""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from tests.sinks.memory import MemorySink, MemoryStaged, Store
from truecut.config.kinds import Unusable
from truecut.config.section import SinkSection, Text
from truecut.config.settings import SinkSettings
from truecut.model.finding import Finding
from truecut.model.order import Order, Receipt
from truecut.sinks.contract import Capabilities, Packet, Sink, SinkLook


class ShelfSection(SinkSection):
    """Its section of the pipeline file."""

    type: Literal["shelf"]
    label: Text


@dataclass(frozen=True)
class ShelfAddress:
    """Which file."""

    path: Path

    def identity(self, folders: dict[str, str]) -> tuple[str, Path]:
        return "shelf", self.path

    def folders(self) -> Iterator[Path]:
        return iter(())

    def data_folder(self) -> None:
        return None

    def places(self) -> Iterator[tuple[str, str]]:
        return iter(())


@dataclass(frozen=True)
class ShelfSink(Sink[MemoryStaged]):
    """The file is read and written whole, under a lock."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    path: Path

    def recover(self, *, epoch: int, token: int) -> Receipt:
        with self._store() as store:
            return MemorySink(store).recover(epoch=epoch, token=token)

    def stage(self, order: Order, packets: Iterator[Packet]) -> MemoryStaged:
        return MemorySink(Store()).stage(order, packets)

    def commit(self, order: Order, staged: MemoryStaged) -> Receipt:
        with self._store() as store:
            return MemorySink(store).commit(order, staged)

    @contextmanager
    def _store(self) -> Iterator[Store]:
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = pickle.loads(self.path.read_bytes()) if self.path.exists() else (None, {}, {})
            store = Store(*kept)
            yield store
            new = self.path.with_suffix(".new")
            new.write_bytes(pickle.dumps((store.cursor, store.mirrors, store.logs)))
            new.rename(self.path)


class ShelfKind:
    """`type: shelf` under `sinks`."""

    title = "a shelf"
    section = ShelfSection
    holder = "label"
    worker_modules = ("foreign_shelf",)

    def settle(self, section: ShelfSection, *, base: Path) -> ShelfAddress:
        if section.label == "broken":
            raise Unusable("label", "no such shelf")
        return ShelfAddress(base / section.label)

    def called(self, address: ShelfAddress, table: str) -> str:
        return table

    def open(self, settings: SinkSettings, *, pipeline: str) -> ShelfSink:
        assert isinstance(settings.address, ShelfAddress)
        return ShelfSink(settings.address.path)

    def look(self, sinks: Sequence[SinkSettings], *, pipeline: str) -> Mapping[str, SinkLook]:
        return {sink.name: SinkLook() for sink in sinks}

    def unfit(self, sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
        return iter(())


KIND = ShelfKind()
