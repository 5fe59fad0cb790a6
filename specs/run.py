"""Runs models and tells what was seen: the small ones, the large ones with --large, or those named.

python -m specs.run [--large | MODEL...]
"""

from __future__ import annotations

import resource
import sys
import time

from specs import tlc


def main(arguments: list[str]) -> int:
    """1 when anything is violated."""
    models = list(tlc.LARGE) if arguments == ["--large"] else arguments or tlc.small_models()
    violated = [model for model in models if run(model)]
    return 1 if violated else 0


def run(model: str) -> bool:
    """Whether the model was violated; says so with states, depth and time."""
    started, used = time.monotonic(), _cpu_s()
    memory = "8g" if model in tlc.LARGE else "2g"
    verdict = tlc.check(tlc.config(model), module=tlc.module_of(model), memory=memory, timeout_s=48 * 3600)
    seconds, cpu = round(time.monotonic() - started), round(_cpu_s() - used)
    print(
        f"{model}: {verdict.violated or 'holds'}; {verdict.distinct:,} distinct states, "
        f"{verdict.generated:,} generated, depth {verdict.depth}, {seconds} s ({cpu} CPU s)",
        flush=True,
    )
    return verdict.violated is not None


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
