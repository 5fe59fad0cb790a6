"""Where a run's CPU seconds go: each part (a folder of tests) beside the budget that CONTRIBUTING.md states.

CPU seconds of the tests and of whatever they start, wherever it runs: the same on a busy machine, nearly. A
part over its budget is said loudly and fails nothing: speed is never a test. Printed when all tests run.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

SLOWEST = 40
_BUDGET = re.compile(r"^\| `tests/(\w+)` \|[^|]*\| ([\d,]+) \|$", re.MULTILINE)
_TOLD = "cpu_s"
PLUGIN = "truecut-timing"


def budgets(contributing: str) -> dict[str, int]:
    """Part → CPU seconds, as the page states them."""
    return {part: int(seconds.replace(",", "")) for part, seconds in _BUDGET.findall(contributing)}


def part_of(file: str) -> str:
    """`e2e` for `tests/e2e/test_kills.py`."""
    return file.split("/")[1]


def report(spent: Mapping[str, float], budget: Mapping[str, int]) -> list[str]:
    """Each part beside its budget, those over it marked; then the files that cost most."""
    parts: dict[str, float] = {}
    for file, seconds in spent.items():
        parts[part_of(file)] = parts.get(part_of(file), 0.0) + seconds
    lines = [_line(f"tests/{part}", seconds, budget.get(part)) for part, seconds in _costly(parts)]
    lines.append(_line("all", sum(parts.values()), sum(budget.values()) or None))
    files = [f"{seconds:8.0f}  {file}" for file, seconds in _costly(spent)[:SLOWEST]]
    return [*lines, "the most costly files:", *files]


def _costly(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    """The most costly first."""
    return sorted(seconds.items(), key=lambda one: -one[1])


def _line(name: str, seconds: float, budget: int | None) -> str:
    beside = "" if budget is None else f" of {budget:5}"
    over = f"  OVER BUDGET by {seconds - budget:.0f}" if budget is not None and seconds > budget else ""
    return f"{seconds:8.0f}{beside}  {name}{over}"


class CpuTimes:
    """Counts this process and its descendants; each file is charged with what came since the one before."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._known: set[psutil.Process] = set()  # also those whose parents have died
        self._last_s = self._total_s()

    def charge(self, file: str) -> None:
        """What was used since the last call. A stray that died took its share along."""
        total_s = self._total_s()
        self.spent[file] = self.spent.get(file, 0.0) + max(0.0, total_s - self._last_s)
        self._last_s = total_s

    @contextmanager
    def charged_to(self, file: str, *, meanwhile: str) -> Iterator[None]:
        """What the block uses is another file's than that which runs it."""
        self.charge(meanwhile)
        yield
        self.charge(file)

    def _total_s(self) -> float:
        self._known = {process for process in self._known if process.is_running()}
        self._known |= {psutil.Process(), *psutil.Process().children(recursive=True)}
        return sum(_cpu_s(process) for process in self._known)


def _cpu_s(process: psutil.Process) -> float:
    """Its own, and that of the children that it has waited for."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


class Timing:
    """The plugin: in each process that runs tests, and in the one that they report to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._times = CpuTimes()
        self._running = ""  # the file whose test it is
        self._told: dict[str, float] = {}  # by the processes that ran the tests

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._running = item.path.relative_to(self._config.rootpath).as_posix()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self._times.charge(self._running)
        return result

    def charged_to(self, file: str) -> AbstractContextManager[None]:
        """What a session's end does for all of them would be the last file's."""
        return self._times.charged_to(file, meanwhile=self._running)

    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_TOLD] = self._times.spent

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        for file, seconds in getattr(node, "workeroutput", {}).get(_TOLD, {}).items():
            self._told[file] = self._told.get(file, 0.0) + seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent = {**self._times.spent, **self._told}
        if not spent or self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
            return
        usual = self._config.getoption("markexpr") == "not soak"
        page = Path(self._config.rootpath, "CONTRIBUTING.md").read_text(encoding="utf-8")
        terminalreporter.section("CPU seconds")
        for line in report(spent, budgets(page) if usual else {}):
            terminalreporter.write_line(line, red="OVER BUDGET" in line)


def pytest_configure(config: pytest.Config) -> None:
    """Always on: it costs a look at the process table for each file."""
    config.pluginmanager.register(Timing(config), PLUGIN)
