"""A pipeline run by its real runner, with its Spark jobs carried out in this very process.

Everything else is as it is: plans, reading tasks, routes, orders, sinks. So a test of content costs no Spark.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from truecut.model.order import Receipt
from truecut.runtime import jobs
from truecut.spark.wave import job as wave
from truecut.spark.wave.apply import Takeover, run_takeovers
from truecut.spark.wave.job import RecoverJob, WaveJob, WaveResult

SLOTS = 2


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no job of a runner asks for Spark."""
    monkeypatch.setattr(jobs, "run_wave", lambda _, job: run_wave(job))
    monkeypatch.setattr(jobs, "run_recover", lambda _, job: run_recover(job))
    monkeypatch.setattr(jobs, "slots", lambda _: SLOTS)
    monkeypatch.setattr(jobs, "name_job", lambda *_: None)
    monkeypatch.setattr(jobs, "fraction_done", lambda *_: 0.0)


def run_wave(job: WaveJob) -> WaveResult:
    """What the job's task does where there is one executor."""
    parcels = job.reading.read_all(bytes_max=1 << 40)
    results = [batch.to_pylist()[0] for batch in wave._apply(job, parcels, threads=SLOTS)]
    return WaveResult([pickle.loads(result["payload"]) for result in results if result["sink"] >= 0])


def run_recover(job: RecoverJob) -> list[Receipt]:
    """Take the sinks over, one after another."""
    takeovers: Any = (Takeover(n, job.pipeline, *sink) for n, sink in enumerate(job.sinks))
    return [receipt for _, receipt in run_takeovers(takeovers, threads=SLOTS, deadline_ms=job.deadline_ms)]
