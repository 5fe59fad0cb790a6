"""`truecut backfill` without Spark: what it refuses, how it waits for a runner, how it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.inside import call, untouched
from tests.e2e.process import started
from tests.e2e.world import World, eventually, tenants_document
from truecut.runtime.control import ControlStore, open_control
from truecut.runtime.pauses import Request, answered, read_pauses

HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    document = tenants_document(tenants=["t0", "t1"])
    document["spec"]["tables"].append({"name": "main.other", "key": ["id"], "broadcast": True})
    document["spec"]["sinks"][1]["tables"] = [{"name": "main.events"}]
    made = World(tmp_path, None, document)
    made.save()
    return made


@contextmanager
def somebody_runs(world: World) -> Iterator[ControlStore]:
    """A runner that is alive, as the control store says."""
    pipeline = world.pipeline()
    pipeline.state.mkdir(parents=True, exist_ok=True)
    control = open_control(pipeline.control, pipeline=pipeline.name)
    control.heartbeat("somebody", duration_ms=HOUR_MS, report={})
    yield control
    control.close()


def requests(world: World) -> tuple[Request, ...]:
    return read_pauses(world.pipeline().state).requests


def answer(world: World, control: ControlStore, told: dict[str, object]) -> None:
    """As a runner does: every sink tells what it shows, and the request's file goes."""
    (one,) = requests(world)
    copy = {"status": "streaming", "resumed": one.asked, "error": None, **told}
    control.report_sinks({name: {"tables": {one.table: copy}} for name in ("t0", "t1")})
    answered(world.pipeline().state, one)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--table", "main.event"), 'the pipeline has no table "main.event"; did you mean "main.events"?'),
        (("--table", "main.events", "--sink", "t9"), 'the pipeline has no sink "t9"'),
        (("--table", "main.other", "--sink", "t1"), 'the pipeline has no sink of main.other "t1"'),
    ],
)
def test_names_that_it_does_not_have_are_refused(world: World, arguments: tuple[str, ...], said: str) -> None:
    """With the one that was probably meant; nothing is asked for."""
    with untouched(world.folder):
        ended = call("backfill", world.file, *arguments)
    assert ended.code == 2
    assert f"TC1090 {said}" in ended.stderr


def test_a_table_of_which_only_changes_are_wanted_is_refused(world: World) -> None:
    """A reading would take what the log has told of it."""
    source = {"type": "postgres", "dsn": "postgresql://nobody@127.0.0.1:1/none"}
    world.document["spec"]["source"] = source
    world.document["spec"]["tables"] = [{"name": "public.t", "key": ["id"], "backfill": "none"}]
    for sink in world.document["spec"]["sinks"]:
        sink.pop("route")
        sink.pop("tables", None)
    world.save()
    with untouched(world.folder):
        ended = call("backfill", world.file, "--table", "public.t")
    assert (ended.code, ended.stderr.split(" ")[0]) == (2, "TC1067")


def test_it_waits_for_whoever_runs_the_pipeline(world: World) -> None:
    """Until the request is answered; it starts nothing itself."""
    with (
        somebody_runs(world) as control,
        started("backfill", world.file, "--table", "main.events", "--json") as command,
    ):
        eventually(lambda: bool(requests(world)), what="it asks")
        assert [(one.table, one.sink, one.again) for one in requests(world)] == [("main.events", None, True)]
        answer(world, control, {})
        stdout, stderr = command.popen.communicate()
        assert command.popen.returncode == 0, stderr
        assert json.loads(stdout)["sinks"] == ["t0", "t1"]


def test_a_request_that_is_answered_by_a_hold_has_failed(world: World) -> None:
    """The sink shows the number, and that it had to stop: the table was not read."""
    with (
        somebody_runs(world) as control,
        started("backfill", world.file, "--table", "main.events") as command,
    ):
        eventually(lambda: bool(requests(world)), what="it asks")
        answer(world, control, {"status": "held", "error": {"code": "TC3020", "message": "its key repeats"}})
        _, stderr = command.popen.communicate()
        assert command.popen.returncode == 1
        assert "TC3090 main.events was not read again everywhere:\n  t0: its key repeats" in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_waiting_and_not_the_request(
    world: World, number: signal.Signals, code: int
) -> None:
    """Whoever runs the pipeline answers it all the same."""
    with somebody_runs(world), started("backfill", world.file, "--table", "main.events") as command:
        eventually(lambda: bool(requests(world)), what="it asks")
        command.popen.send_signal(number)
        assert command.popen.wait() == code
        assert requests(world)


def test_a_timeout_ends_the_waiting_and_not_the_request(world: World) -> None:
    """It says so, and exits 1."""
    with somebody_runs(world):
        ended = call("backfill", world.file, "--table", "main.events", "--sink", "t1", "--timeout", "5s")
    assert ended.code == 1
    assert "TC3090 main.events was not read again everywhere" in ended.stderr
    assert [one.sink for one in requests(world)] == ["t1"]
