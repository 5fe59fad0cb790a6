"""Runs models and tells what was seen: the small ones, the large ones with --large, or those named.

python -m specs.run [--large | MODEL...]
"""

from __future__ import annotations

import resource
import sys
import time
from functools import partial

from specs import tlc


def main(arguments: list[str]) -> int:
    """1 when anything is violated."""
    models = list(tlc.LARGE) if arguments == ["--large"] else arguments or tlc.small_models()
    violated = [model for model in models if run(model)]
    return 1 if violated else 0


def run(model: str) -> bool:
    """Whether the model was violated; says so with states, depth and time."""
    started, used = time.monotonic(), _cpu_s()
    large = model in tlc.LARGE
    verdict = tlc.check(
        tlc.config(model),
        module=tlc.module_of(model),
        memory="3g" if large else "2g",
        timeout_s=4 * 3600,
        on_line=partial(_show_progress, model) if large else lambda _: None,
    )
    seconds, cpu = round(time.monotonic() - started), round(_cpu_s() - used)
    print(
        f"{model}: {verdict.violated or 'holds'}; {verdict.distinct:,} distinct states, "
        f"{verdict.generated:,} generated, depth {verdict.depth}, {seconds} s ({cpu} CPU s)",
        flush=True,
    )
    return verdict.violated is not None


def _show_progress(model: str, line: str) -> None:
    """TLC tells once a minute how far it is, which is all that is seen of a large model for minutes."""
    if line.startswith("Progress("):
        print(f"{model}: {line.rstrip()}", file=sys.stderr, flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
