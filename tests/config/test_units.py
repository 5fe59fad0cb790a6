"""Durations and sizes."""

from __future__ import annotations

import pytest

from truecut.config.units import duration_ms, meant_duration, nearest_duration, nearest_size, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("2s", 2000), ("10m", 600_000), ("1h", 3_600_000), ("0s", 0)]
)
def test_durations(text: str, expected: int) -> None:
    """A whole number and a unit."""
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["1KiB", "64MiB", "20GiB", "1TiB"])
def test_sizes(text: str) -> None:
    """Binary units, exactly."""
    power = {"K": 10, "M": 20, "G": 30, "T": 40}[text[-3]]
    assert size_bytes(text) == int(text[:-3]) << power


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "1.5s", "-1s", " 1s", "1s ", "1s\n", "1 s", "1S", "1d", "٣s", "1h30m", "9" * 12 + "s"],
)
def test_nothing_else_is_a_duration(text: str) -> None:
    """Durations are `500ms 2s 10m 1h`, nothing else."""
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "5", "64MB", "64M", "64mib", "64 MiB", "1B", "-1MiB", "1.5GiB", "MiB"])
def test_nothing_else_is_a_size(text: str) -> None:
    """Sizes are `64MiB`, nothing else."""
    with pytest.raises(ValueError, match="not a size"):
        size_bytes(text)


def test_what_was_meant_is_suggested() -> None:
    """A suggestion is itself right."""
    assert [nearest_duration(t) for t in ("2 sec", "5", "3 Minutes", "x")] == ["2s", "5ms", "3m", None]
    assert [meant_duration(t) for t in ("2 sec", "5", "x")] == [
        '; did you mean "2s"?',
        '; did you mean "5s" or "5ms"?',
        "",
    ]
    assert [nearest_size(t) for t in ("64 MB", "1g", "2kb", "5", "x")] == [
        "64MiB",
        "1GiB",
        "2KiB",
        None,
        None,
    ]
