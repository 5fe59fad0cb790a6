"""What was found, for people and for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.journal.memory import MARKS, Memory
from benchmarks.journal.speed import Figures

_COLUMNS = {
    "batches_mb_s": ("window 1", "MB/s"),
    "window_mb_s": ("window 16", "MB/s"),
    "singles_per_s": ("1 KiB appends", "/s"),
    "read_mb_s": ("read", "MB/s"),
}
WANTED = {
    "local": "256 KiB batches 200 MB/s; read 400 MB/s",
    "replicated": "window 16 100 MB/s; 1 KiB appends 800/s; read 400 MB/s",
    "visibility": "20 ms",
    "failover": "p50 1 s",
    "memory": "flat",
}


@dataclass
class Found:
    """By form, or by process."""

    sizes: dict[str, float]
    load: float  # of the machine, before anything ran
    cores: int
    speed: dict[str, Figures] = field(default_factory=dict)
    visibility_s: dict[str, list[float]] = field(default_factory=dict)
    failover_s: list[float] = field(default_factory=list)
    memory: dict[str, Memory] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "sizes": self.sizes,
            "load": self.load,
            "cores": self.cores,
            "speed": {
                form: {**_known(asdict(figures)), "ratio_to_kafka": self._ratios(figures)}
                for form, figures in self.speed.items()
            },
            "visibility_s": {form: _spread(delays) for form, delays in self.visibility_s.items()},
            "failover_s": _spread(self.failover_s) if self.failover_s else None,
            "memory_mb": {name: _marks(found) for name, found in self.memory.items()},
            "wanted": WANTED,
        }

    def lines(self) -> list[str]:
        """As a terminal has it."""
        sizes = ", ".join(f"{name} {value:g}" for name, value in self.sizes.items())
        lines = [f"{sizes}; {self.cores} cores, load {self.load:.1f} before"]
        if self.speed:
            lines += ["", *self._speed_lines()]
        if self.visibility_s:
            lines += ["", f"an append's return until another process has it (wanted {WANTED['visibility']})"]
            lines += [
                f"  {form:12} {_spread_text(delays, 1e3, 'ms')}" for form, delays in self.visibility_s.items()
            ]
        if self.failover_s:
            lines += [
                "",
                f"a replica killed until the next append is committed (wanted {WANTED['failover']})",
            ]
            lines += [f"  {'replicated':12} {_spread_text(self.failover_s, 1e3, 'ms')}"]
        if self.memory:
            lines += ["", *self._memory_lines()]
        return lines

    def _speed_lines(self) -> list[str]:
        titles = "".join(f"{f'{title}, {unit}':>20}{'':9}" for title, unit in _COLUMNS.values())
        lines = [f"{'':13}{titles}"]
        for form, figures in self.speed.items():
            ratios = self._ratios(figures)
            cells = "".join(
                f"{_number(getattr(figures, name)):>20}{_ratio(ratios.get(name)):>9}" for name in _COLUMNS
            )
            lines.append(f"  {form:11}{cells}")
        lines += [f"  wanted, {form}: {WANTED[form]}" for form in self.speed if form in WANTED]
        return lines

    def _memory_lines(self) -> list[str]:
        title = "".join(f"{f'{mark:.0%}':>9}" for mark in MARKS)
        lines = [
            f"resident MB by what was written (wanted {WANTED['memory']})",
            f"  {'':12}{title}{'most':>9}",
        ]
        for name, found in self.memory.items():
            marks = "".join(f"{found.at(mark):9.0f}" for mark in MARKS)
            lines.append(f"  {name:12}{marks}{found.most:9.0f}")
        return lines

    def _ratios(self, figures: Figures) -> dict[str, float]:
        kafka = self.speed.get("kafka")
        if kafka is None or kafka is figures:
            return {}
        return _known({name: getattr(figures, name) / getattr(kafka, name) for name in _COLUMNS})


def _known(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not math.isnan(value)}


def _marks(found: Memory) -> dict[str, float]:
    return {**{f"{mark:.0%}": found.at(mark) for mark in MARKS}, "max": found.most}


def _spread(delays: Sequence[float]) -> dict[str, float]:
    ordered = sorted(delays)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"count": len(ordered), "p50": statistics.median(ordered), "p95": p95, "max": ordered[-1]}


def _spread_text(delays: Sequence[float], factor: float, unit: str) -> str:
    spread = _spread(delays)
    told = ", ".join(f"{name} {spread[name] * factor:.1f} {unit}" for name in ("p50", "p95", "max"))
    return f"{told} of {spread['count']}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"({ratio:.2f} x)"
