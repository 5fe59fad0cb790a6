"""A process that is stopped inside a write to a control store in SQLite: nobody can take its lock away.

Others are told who it is, go on asking, lose what ran out meanwhile, and read in spite of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e.world import eventually
from tests.runtime.quiet import StillSource, ToldJobs, pipeline_in, running
from truecut.config.secret import Secret
from truecut.errors import Retry, TruecutError
from truecut.lock_holder import is_stopped
from truecut.runtime import database
from truecut.runtime.control import open_control
from truecut.runtime.run_report import View

WRITES = """
import sys, time
from truecut.config.secret import Secret
from truecut.runtime.control import open_control
store = open_control(Secret(sys.argv[1]), pipeline="p")
with store._db.transaction("p"):
    print("inside", flush=True)
    sys.stdin.read()
"""


@contextmanager
def stopped_inside_a_write(path: Path) -> Iterator[int]:
    """A real process that holds the file; at the end it goes on and leaves."""
    command = [sys.executable, "-c", WRITES, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            eventually(lambda: is_stopped(process.pid), what="it is stopped")
            yield process.pid
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.communicate("")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CONNECT_S", 0.3)


def test_it_is_said_who_keeps_the_others_out(tmp_path: Path) -> None:
    """The error names the process and how to wake it; a retry can help, and does once it goes on. Whoever
    only reads is not kept out at all, nor who opens the store."""
    path = tmp_path / "control.db"
    with closing(open_control(Secret(str(path)), pipeline="p")) as store:
        store.claim("r", ["a"], duration_ms=3_600_000, count_max=1)
        with stopped_inside_a_write(path) as pid:
            with pytest.raises(TruecutError) as refused:
                store.heartbeat("r", duration_ms=3_600_000, report={})
            fault = refused.value.fault
            assert (fault.code, fault.retry) == ("TC5014", Retry.RETRYABLE)
            assert f"process {pid}, which is stopped" in fault.message
            assert f"kill -CONT {pid}" in fault.fix
            with closing(open_control(Secret(str(path)), pipeline="p")) as another:
                assert another.held("r") == store.held("r") == {"a"}
        assert store.heartbeat("r", duration_ms=3_600_000, report={})[0] == {"a"}


def test_whoever_has_left_meanwhile_is_the_same_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes away between our last try and the look at who it was: no other code, so that a run which has
    said who kept it out does not say something else."""
    path = tmp_path / "control.db"
    with closing(open_control(Secret(str(path)), pipeline="p")) as store, stopped_inside_a_write(path):
        monkeypatch.setattr(database, "writer_of", lambda _: None)
        with pytest.raises(TruecutError) as refused:
            store.heartbeat("r", duration_ms=3_600_000, report={})
        assert (refused.value.fault.code, refused.value.fault.retry) == ("TC5014", Retry.RETRYABLE)


def test_a_run_outlives_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its leases run out by its own clock, so nothing is started; afterwards it claims them anew, with larger
    tokens. It says once who keeps it out, and that this is over."""
    pipeline = pipeline_in(tmp_path, lease={"duration": "3s"})
    path = Path(pipeline.control.reveal())
    jobs, views = ToldJobs(), list[View]()
    with (
        closing(open_control(pipeline.control, pipeline=pipeline.name)) as control,
        running(pipeline, control, StillSource(), jobs, views.append),
    ):
        eventually(lambda: len(jobs.tokens) == 2 == len(views[-1].sinks), what="both sinks are ours")
        with stopped_inside_a_write(path) as pid:
            eventually(lambda: not views[-1].sinks, what="the leases have run out")
            fault = views[-1].control_fault
            assert fault is not None
            assert str(pid) in fault.message
            before = {sink: max(tokens) for sink, tokens in jobs.tokens.items()}
        eventually(lambda: all(max(jobs.tokens[s]) > t for s, t in before.items()), what="claimed anew")
        eventually(lambda: views[-1].control_fault is None, what="the store answers again")
    said = [record for record in caplog.records if record.message.startswith("the control store")]
    assert [record.__dict__["facts"].code for record in said] == ["TC5014", ""]
