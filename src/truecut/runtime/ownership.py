"""A few sinks owned for the moment, by a command that writes to them beside or instead of a run.

Promises: nobody's lease is taken while its owner lives; what a dead run has left is waited for until it runs
out; ours are renewed in a thread and given back at the end, however it comes. The sinks' own fences make it
safe; the leases see to it that nobody is fenced off in the middle of his work.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

from truecut.config.settings import Pipeline
from truecut.errors import ExitCode, Retry, TruecutError
from truecut.runtime.control import ControlStore, open_control

_HEARTBEATS = 4  # in the life of a lease


@dataclass(slots=True)
class Ownership:
    """The sinks that are ours, each with the token of its lease."""

    control: ControlStore
    name: str
    duration_ms: int
    tokens: dict[str, int] = field(default_factory=dict)

    def claim(self, sinks: Iterable[str]) -> None:
        """All of them; TruecutError when a run that lives has one."""
        wanted = set(sinks)
        renewed = _Renewed()
        while wanted:
            found = self.control.claim(
                self.name, sorted(wanted), duration_ms=self.duration_ms, count_max=len(wanted)
            )
            self.tokens |= found
            wanted -= found.keys()
            if not wanted:
                return
            busy = renewed.owned_by_the_living(self.control, wanted)
            if busy is not None:
                raise TruecutError(
                    "TC7054",
                    f"sink {busy} is a running run's; it cannot be repaired beside it",
                    fix="Stop the run, repair, and start it again.",
                    retry=Retry.RETRYABLE,
                    exit_code=ExitCode.FAILED,
                )
            time.sleep(self.duration_ms / 1000 / (4 * _HEARTBEATS))

    def raise_tokens(self, above: Mapping[str, int]) -> None:
        """Sinks have seen larger tokens than ours: the store was lost once."""
        if above:
            self.tokens |= self.control.raise_token(self.name, above, duration_ms=self.duration_ms)


@dataclass(slots=True)
class _Renewed:
    """Who has been alive since we first looked: one that was killed has its leases for a while."""

    first: dict[str, int] = field(default_factory=dict)

    def owned_by_the_living(self, control: ControlStore, sinks: Iterable[str]) -> str | None:
        """One of these sinks, of an owner that has had a heartbeat since."""
        told = control.reports()
        for sink in sorted(sinks):
            until = told.alive_until_ms.get(told.owners.get(sink, ""))
            if until is not None and until > self.first.setdefault(told.owners[sink], until):
                return sink
        return None


@contextmanager
def owned(pipeline: Pipeline, sinks: Iterable[str]) -> Iterator[Ownership]:
    """These sinks, as long as the block takes."""
    name = f"repair-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        own = Ownership(control, name, pipeline.lease_ms)
        over = threading.Event()
        keeper = threading.Thread(target=_keep, args=(own, over), daemon=True)
        keeper.start()  # first: what is ours must not run out while we wait for the rest
        try:
            own.claim(sinks)
            yield own
        finally:
            over.set()
            keeper.join()
            with suppress(TruecutError):  # they run out by themselves
                control.leave(name)


def _keep(own: Ownership, over: threading.Event) -> None:
    """A store that is away is asked again; the fence decides what became of the sinks meanwhile."""
    while not over.wait(own.duration_ms / 1000 / _HEARTBEATS):
        with suppress(TruecutError):
            own.control.heartbeat(
                own.name, duration_ms=own.duration_ms, report={"observed_at_ms": time.time_ns() // 1_000_000}
            )
