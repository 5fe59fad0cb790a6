"""Lakes for the tests of sources, each in a folder of its own and with its owner's plain writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sources.lake_writer import LakeWriter
from truecut.lake import parse_address

MakeLake = Callable[..., LakeWriter]


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[MakeLake]:
    """Make a lake: `make_lake()`, `make_lake("sqlite:s.sqlite", inlining=0)`."""
    writers: list[LakeWriter] = []

    def make(catalog: str = "source.ducklake", *, inlining: int | None = None) -> LakeWriter:
        folder = tmp_path / str(len(writers))
        folder.mkdir()
        writers.append(LakeWriter(parse_address(catalog, "data", base=folder), inlining=inlining))
        return writers[-1]

    yield make
    for writer in writers:
        writer.close()
