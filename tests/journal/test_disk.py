"""What is written is all written, in its place, also where the system takes a part at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from truecut.journal import disk

PARTS = [b"abc", b"", b"defgh", b"i" * 20, b"jk"]
MANY = [bytes([n % 251]) for n in range(2 * os.sysconf("SC_IOV_MAX") + 3)]


@pytest.mark.parametrize("parts", [PARTS, MANY], ids=["few", "more than go at once"])
@pytest.mark.parametrize("at_once", [1, 3, 4, 9, 1 << 20])
def test_a_write_that_stops_half_way_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Sequence[bytes], at_once: int
) -> None:
    """A disk that is nearly full does so, and a signal. What is before and behind stays."""
    path, whole = tmp_path / "file", b"".join(parts)
    real = os.pwritev

    def pwritev(descriptor: int, pending: Sequence[bytes], offset: int) -> int:
        assert len(pending) <= os.sysconf("SC_IOV_MAX")
        assert offset < 7 + len(whole), "it is written behind its place"
        return real(descriptor, [b"".join(pending)[:at_once]], offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    path.write_bytes(b"." * (len(whole) + 12))
    descriptor = disk.open_or_create(path)
    disk.write_at(descriptor, 7, parts)
    os.close(descriptor)
    assert path.read_bytes() == b"......." + whole + b"....."
