"""Sinks owned for the moment: never beside somebody who lives, always after somebody who is dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.errors import TruecutError
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.ownership import owned

PIPELINE = """
apiVersion: truecut/v1
kind: Pipeline
metadata: {name: owned}
spec:
  source: {type: ducklake, catalog: "sqlite:source.db", data_path: source}
  tables: [{name: main.t, key: [id]}]
  sinks:
    - {name: a, type: ducklake, catalog: "sqlite:a.db", data_path: a}
    - {name: b, type: ducklake, catalog: "sqlite:b.db", data_path: b}
  lease: {duration: 3s}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return load(file, environ={})


@contextmanager
def living(control: ControlStore) -> Iterator[None]:
    """A run that has sink `a`, and renews it."""
    over = threading.Event()
    control.heartbeat("run", duration_ms=3_000, report={})
    assert control.claim("run", ["a"], duration_ms=3_000, count_max=1)

    def live() -> None:
        while not over.wait(0.2):
            control.heartbeat("run", duration_ms=3_000, report={})

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_living_owner_keeps_its_sinks_and_a_dead_one_is_waited_for(pipeline: Pipeline) -> None:
    """TC7054 beside a run that renews its leases, and nothing is kept; once it is dead, its lease runs out
    and is ours, with a larger token; while it is ours nobody else gets it, and at the end it is free."""
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        with living(control), pytest.raises(TruecutError) as refused, owned(pipeline, ["a", "b"]):
            pass
        assert refused.value.fault.code == "TC7054"
        assert control.reports().owners.get("b") is None
        with owned(pipeline, ["a", "b"]) as own:
            assert set(own.tokens) == {"a", "b"}
            assert control.claim("other", ["a", "b"], duration_ms=3_000, count_max=2) == {}
            threading.Event().wait(4)  # longer than a lease
            assert control.claim("other", ["a", "b"], duration_ms=3_000, count_max=2) == {}
            own.raise_tokens({"a": own.tokens["a"] + 5})
        later = control.claim("other", ["a", "b"], duration_ms=3_000, count_max=2)
        assert set(later) == {"a", "b"}
        assert all(later[name] > own.tokens[name] for name in later)
