"""What was found, for people and for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.journal.memory import MARKS, Memory
from benchmarks.journal.speed import Figures, median

PEERS = {"kafka": "three brokers, two copies", "kafka-1": "one broker, one copy"}
_RATIOS = ("batches_mb_s", "window_mb_s", "singles_per_s", "read_mb_s")
_COLUMNS = {
    "batches_mb_s": ("window 1", "MB/s"),
    "window_mb_s": ("window 16", "MB/s"),
    "singles_per_s": ("1 KiB appends", "/s"),
    "read_mb_s": ("read", "MB/s"),
    "window_cpu_s_gb": ("window 16", "CPU s/GB"),
    "read_cpu_s_gb": ("read", "CPU s/GB"),
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
    speed: dict[str, list[Figures]] = field(default_factory=dict)  # round by round
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
                form: {**_known(asdict(median(rounds))), "ratios": self._ratios(form)}
                for form, rounds in self.speed.items()
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
        titles = "".join(f"{f'{title}, {unit}':>20}" for title, unit in _COLUMNS.values())
        lines = [f"{'medians of the rounds':24}{titles}"]
        for form, rounds in self.speed.items():
            cells = "".join(f"{_number(getattr(median(rounds), name)):>20}" for name in _COLUMNS)
            lines.append(f"  {form:22}{cells}")
        lines += ["times a peer, the median of the rounds' own ratios and the least and the most of them"]
        for form in self.speed:
            for peer, ratios in self._ratios(form).items():
                cells = "".join(f"{_ratio(ratios.get(name)):>20}" for name in _RATIOS)
                lines.append(f"  {f'{form} / {peer}':22}{cells}")
        lines += [f"  {peer}: {what}" for peer, what in PEERS.items() if peer in self.speed]
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

    def _ratios(self, form: str) -> dict[str, dict[str, list[float]]]:
        """To each peer: the median of the rounds' ratios, the least, the most."""
        if form in PEERS or form == "disk":
            return {}
        return {
            peer: {name: _of_rounds(self.speed[form], self.speed[peer], name) for name in _RATIOS}
            for peer in PEERS
            if peer in self.speed
        }


def _of_rounds(ours: Sequence[Figures], theirs: Sequence[Figures], name: str) -> list[float]:
    """Ratios within a round: what else the machine did meets both."""
    ratios = [getattr(one, name) / getattr(other, name) for one, other in zip(ours, theirs, strict=True)]
    return [statistics.median(ratios), min(ratios), max(ratios)]


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
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _ratio(ratio: Sequence[float] | None) -> str:
    return "" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})"
