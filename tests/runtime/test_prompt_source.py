"""A source that says nothing is told as a fault, not waited for in silence."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from tests.e2e.world import eventually
from tests.patience import PATIENCE_S
from tests.runtime.quiet import StillSource
from truecut import threads
from truecut.config.kinds import SOURCES
from truecut.errors import Retry, TruecutError
from truecut.runtime.prompt_source import PromptSource
from truecut.sources.contract import Observation, Source


class SilentSource(StillSource):
    """Says nothing until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def observe(self) -> Observation:
        self.free.wait(PATIENCE_S)
        return super().observe()


def _fault(source: PromptSource) -> tuple[str, Retry]:
    with pytest.raises(TruecutError) as caught:
        source.observe()
    return caught.value.fault.code, caught.value.fault.retry


def test_a_source_that_says_nothing_is_given_up_and_asked_again() -> None:
    """Each question has its deadline; a few may hang, no more; when it speaks again, all is well."""
    silent = SilentSource()
    source = PromptSource(cast("Source", silent), deadline_ms=200)
    told = [_fault(source) for _ in range(threads.OWN_MAX + 1)]
    silent.free.set()
    assert told == [*[("TC3043", Retry.RETRYABLE)] * threads.OWN_MAX, ("TC5024", Retry.RETRYABLE)]
    patient = PromptSource(cast("Source", silent), deadline_ms=60_000)
    eventually(lambda: silent.looks == threads.OWN_MAX, what="those that hung come back")
    eventually(lambda: threads.refusal("asking the source") is None, what="and are not counted any more")
    assert patient.observe() == StillSource().observe()


@pytest.mark.parametrize("kind", SOURCES.names)
def test_where_to_look_is_said_in_the_words_of_the_source(kind: str) -> None:
    """A PostgreSQL has no catalog server."""
    silent = SilentSource()
    source = PromptSource(cast("Source", silent), deadline_ms=50, words=SOURCES[kind].words)
    with pytest.raises(TruecutError) as caught:
        source.observe()
    silent.free.set()
    assert caught.value.fault.fix.startswith(f"Check {SOURCES[kind].words.behind};")
    eventually(lambda: threads.refusal("asking the source") is None, what="it is not counted any more")


def test_what_a_source_raises_is_raised() -> None:
    """With its own code: the thread in between changes nothing."""

    class Refusing(StillSource):
        def observe(self) -> Observation:
            raise TruecutError("TC2001", "there is no such catalog", fix="Check it.")

    assert _fault(PromptSource(cast("Source", Refusing()), deadline_ms=60_000)) == (
        "TC2001",
        Retry.NOT_RETRYABLE,
    )
