"""One at a time issues certificates of a pipeline, and hands over its key; another one verifies in a run.

Promises: the lease is renewed as long as the block lasts, however long folding takes; `is_ours` tells whether
it was kept, before anything is issued that rests on it. A number is used once even where two believe they
have it (`certificate.issue`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.runtime.control import open_control
from truecut.runtime.leases import HEARTBEATS

LEASE, VERIFICATION = "certificates", "verification"
_LOOK_S = 0.2

IsOurs = Callable[[], bool]


def control_name(pipeline: str) -> str:
    """The store of the lease: those who issue are not counted among those that share the sinks."""
    return f"{pipeline}/certificates"


@contextmanager
def alone(
    pipeline: Pipeline, runner: str, *, patience_s: float = 0, lease: str = LEASE
) -> Iterator[IsOurs | None]:
    """None: somebody else is at it. At the end `runner` lets go of all that it has: each name has one."""
    name = control_name(pipeline.name)
    with closing(open_control(pipeline.control, pipeline=name)) as control:
        until = time.monotonic() + patience_s
        while not control.claim(runner, [lease], duration_ms=pipeline.lease_ms, count_max=1):
            if time.monotonic() >= until:
                yield None
                return
            time.sleep(_LOOK_S)
        ended = threading.Event()
        keeper = threading.Thread(target=_keep, args=(pipeline, runner, ended), name="lease", daemon=True)
        keeper.start()
        try:
            yield lambda: lease in control.held(runner)
        finally:
            ended.set()
            keeper.join()
            control.leave(runner)


def _keep(pipeline: Pipeline, runner: str, ended: threading.Event) -> None:
    """Until the end; a store that does not answer is asked again."""
    while not ended.wait(pipeline.lease_ms / HEARTBEATS / 1000):
        with (
            suppress(TruecutError),
            closing(open_control(pipeline.control, pipeline=control_name(pipeline.name))) as control,
        ):
            control.renew(runner, duration_ms=pipeline.lease_ms)
