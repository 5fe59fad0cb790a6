"""`truecut run` as an operator meets it: its log, its metrics, its health, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest
import yaml

from tests.cli.canaries import CREATE, ROW, assert_silent
from tests.cli.commands import truecut
from tests.cli.inside import seed
from tests.e2e.process import started
from tests.e2e.world import World, eventually, tenants_document
from tests.patience import PATIENCE_S
from truecut.lake import lake_of
from truecut.model.position import Position
from truecut.runtime.control import open_control
from truecut.sources.ducklake.source import DuckLakeSource

WRONG_SETTING_CPU_S = 15
INSERT = f"INSERT INTO lake.main.events SELECT i, 't' || (i % 3), '{ROW}' FROM range({{}}, {{}}) r(i)"


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _said(log: Path, words: str) -> bool:
    return any(words in line["message"] for line in _lines(log))


def _get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{address}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_run_tells_what_it_does_and_how_it_ended(tmp_path: Path) -> None:
    """Events in the log with code, sink, table and position, nothing for each wave; metrics and health while
    it runs, where the file says so; a summary when it is stopped; no row's value anywhere."""
    world = World(tmp_path, None, tenants_document(tenants=["t0", "t1"]))
    world.document["spec"]["listen"] = "127.0.0.1:0"
    world.source(CREATE, INSERT.format(0, 30))
    world.save()
    log = tmp_path / "run.log"
    options = ("--log-format", "json", "--log-file", log, "--json")
    with started("run", world.file, *options) as process:
        eventually(lambda: _said(log, "listening on"), what="it listens")
        said = next(line["message"] for line in _lines(log) if "listening on" in line["message"])
        address = re.findall(r"http://\S+:\d+", said)[0]
        assert _get(address, "/healthz")[0] == 200
        current = 'truecut_sinks{pipeline="tenants",state="current"} 2.0'
        eventually(partial(_shows, address, current), what=current)
        assert _get(address, "/readyz")[0] == 200
        for number in range(3):  # three waves at least
            world.source(INSERT.format(30 + number * 3, 33 + number * 3))
            rows = 11 + number
            wanted = (
                f'truecut_rows_applied_total{{pipeline="tenants",sink="t0",table="main.events"}} {rows}.0'
            )
            eventually(partial(_shows, address, wanted), what=wanted)
        process.popen.send_signal(signal.SIGTERM)
        stdout, stderr = process.popen.communicate(timeout=PATIENCE_S)
    assert (process.popen.returncode, stderr) == (0, "")
    world.assert_mirrors()
    summary = json.loads(stdout)
    assert (summary["schema"], summary["outcome"]) == ("truecut.run/v1", "stopped")
    assert {s["name"]: (s["state"], s["rows_applied"]) for s in summary["sinks"]} == {
        "t0": ("current", 13),
        "t1": ("current", 13),
    }
    assert summary["until"] is None
    assert summary["rows_unrouted"] == {"main.events": 13}
    lines = _lines(log)
    assert {line["level"] for line in lines} == {"info"}
    words = (
        "started",
        "took over",
        "seed of main.events for",
        "seed of main.events ended: 20 rows",
        "stopping",
    )
    assert all(any(word in line["message"] for line in lines) for word in words)
    seed = next(line for line in lines if "ended: 20 rows" in line["message"])
    assert (seed["sink"], seed["table"]) == ("t0, t1", "main.events")
    assert re.fullmatch(r"[0-9A-F]{8}-[0-9A-F]{16}", seed["position"])
    assert not any("wave" in line["message"] for line in lines)
    assert_silent(stdout, log.read_text())


def _shows(address: str, wanted: str) -> bool:
    return wanted in _get(address, "/metrics")[1].splitlines()


def _empty_world(folder: Path, **spec: Any) -> World:
    world = World(folder, None, tenants_document(tenants=["t0"], **spec))
    world.source(CREATE)
    world.save()
    return world


@pytest.mark.parametrize(
    ("number", "options", "code"),
    [(signal.SIGINT, (), 0), (signal.SIGTERM, ("--until-caught-up", "--json"), 143)],
)
def test_a_signal_while_spark_starts_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...], code: int
) -> None:
    """The JVM goes with the command; an open-ended run has done what it should, a promise was not kept."""
    world = _empty_world(tmp_path)
    with started("run", world.file, *options) as process:
        eventually(lambda: len(process.tree()) > 1, pause_s=0.01, what="the JVM is being started")
        children = process.tree()[1:]
        process.popen.send_signal(number)
        stdout, stderr = process.popen.communicate(timeout=PATIENCE_S)
        assert process.popen.returncode == code, stderr
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert alive == []
    assert "Traceback" not in stdout + stderr
    if options:
        _assert_it_never_began(json.loads(stdout), "not reached", until="head")
    else:
        assert stdout.startswith("tenants: stopped after ")
        assert stdout.endswith("; source not seen; no sink was looked at; 0 rows applied\n")


def test_a_signal_while_the_file_is_read_is_a_clean_stop(tmp_path: Path) -> None:
    """No phase of an open-ended run turns a stop into a failure; the file comes through a pipe, so we know
    when it is being read."""
    text = _empty_world(tmp_path).file.read_text()
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with started("run", pipe) as process:
        with pipe.open("w") as writer:  # opens when it is being read
            process.popen.send_signal(signal.SIGINT)
            eventually(lambda: _has_taken(process.popen.pid, signal.SIGINT), what="the signal is taken up")
            writer.write(text)
        stdout, stderr = process.popen.communicate(timeout=PATIENCE_S)
    assert process.popen.returncode == 0, stderr
    assert "Traceback" not in stdout + stderr


@pytest.mark.parametrize(
    ("number", "level", "code"),
    [
        (signal.SIGINT, "files", 130),
        (signal.SIGTERM, "log", 143),
        (signal.SIGINT, "source", 130),
        (signal.SIGTERM, "sink", 143),
    ],
)
def test_a_signal_ends_a_verification_of_any_level_from_its_start(
    tmp_path: Path, number: signal.Signals, level: str, code: int
) -> None:
    """It promises a verdict: one that was stopped before it had one says so, and gives none."""
    text = _empty_world(tmp_path).file.read_text()
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with started("verify", pipe, "--level", level) as process:
        with pipe.open("w") as writer:  # opens when it is being read
            process.popen.send_signal(number)
            eventually(lambda: _has_taken(process.popen.pid, number), what="the signal is taken up")
            writer.write(text)
        stdout, stderr = process.popen.communicate(timeout=PATIENCE_S)
    assert (process.popen.returncode, stdout) == (code, ""), stderr
    assert "Traceback" not in stderr


def _has_taken(pid: int, number: signal.Signals) -> bool:
    """Nothing of it is pending any more."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(mask >> (number - 1) & 1 for mask in pending)


@pytest.mark.parametrize(
    ("spark", "setting", "code"),
    [
        ({"master": "locl[2]"}, "spark.master: not a master of Spark", "TC5005"),
        ({"master": "spark://127.0.0.1:1"}, "spark.master: nobody listens", "TC5006"),
        ({"conf": {"spark.driver.memory": "lots"}}, "spark.conf.spark.driver.memory: Spark does", "TC5007"),
        ({"conf": {"spark.sql.shuffle.partitions": "-3"}}, "spark.sql.shuffle.partitions: Spark", "TC5007"),
    ],
)
def test_wrong_settings_of_spark_are_found_at_their_line(
    tmp_path: Path, spark: dict[str, Any], setting: str, code: str
) -> None:
    """By `run`, exit 3, and by `doctor`: the setting, its line, and what to do. No bug is reported, and
    nobody waits: a master is looked at before a JVM is started, and Spark refuses a setting at once."""
    world = _empty_world(tmp_path, spark=spark)
    without_java = {"JAVA_HOME": "/nowhere"} if "master" in spark else {}
    before = getrusage(RUSAGE_CHILDREN)
    line = next(
        n for n, text in enumerate(world.file.read_text().splitlines(), 1) if setting_key(spark) in text
    )
    ran = truecut("run", world.file.name, "--until-caught-up", cwd=tmp_path, **without_java)
    assert ran.returncode == 3, ran.stderr
    after = getrusage(RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < WRONG_SETTING_CPU_S
    examined = truecut("doctor", world.file.name, cwd=tmp_path)
    assert examined.returncode == 3, examined.stdout
    for text in (ran.stderr, examined.stdout):
        assert code in text
        assert f"pipeline.yaml:{line}  " in text
        assert setting in text


def setting_key(spark: dict[str, Any]) -> str:
    """What the file's line holds."""
    return "master:" if "master" in spark else next(iter(spark["conf"]))


def test_nothing_to_do_is_found_out_without_spark(tmp_path: Path) -> None:
    """Everything is where it shall be: exit 0 with a summary, and no JVM was started. Nor was anything
    imported that takes longer than the look itself."""
    world = World(tmp_path, None, tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, INSERT.format(0, 30))
    pipeline = world.pipeline()
    seed(pipeline, "t0", "t1")
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        control.generation(DuckLakeSource(lake_of(pipeline.source.address), generation=1).observe().identity)
        control.report_sinks({"t0": {"tables": {}}, "t1": {"tables": {}}})
    alone = {"JAVA_HOME": "/nowhere", "PYTHONPROFILEIMPORTTIME": "1"}
    ended = truecut("run", world.file.name, "--until-caught-up", "--json", cwd=tmp_path, **alone)
    assert ended.returncode == 0, ended.stderr
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert imported & {"duckdb", "pandas", "pyspark", "rich"} == {"duckdb"}
    summary = json.loads(ended.stdout)
    assert (summary["outcome"], [sink["state"] for sink in summary["sinks"]]) == ("reached", ["current"] * 2)
    world.source(INSERT.format(30, 40))
    ended = truecut("run", world.file.name, "--until-caught-up", cwd=tmp_path, JAVA_HOME="/nowhere")
    assert (ended.returncode, "TC5002" in ended.stderr) == (3, True)


def test_a_position_that_sinks_have_passed_is_refused_without_spark(tmp_path: Path) -> None:
    """Nobody goes back: exit 1, each sink with its place, nothing is written. Exactly there is reached."""
    world = World(tmp_path, None, tenants_document(tenants=["t0", "t1"]))
    world.source(CREATE, INSERT.format(0, 30))
    pipeline = world.pipeline()
    seed(pipeline, "t0", "t1")
    seen = DuckLakeSource(lake_of(pipeline.source.address), generation=1).observe()
    with closing(open_control(pipeline.control, pipeline=pipeline.name)) as control:
        control.generation(seen.identity)
        control.report_sinks({"t0": {"tables": {}}, "t1": {"tables": {}}})
    before, head = Position(1, seen.head.place - 1), seen.head

    def run_until(position: object) -> CompletedProcess[str]:
        options = ("--until-position", str(position))
        return truecut("run", world.file.name, *options, cwd=tmp_path, JAVA_HOME="/nowhere")

    for given in (before, before.place):
        ended = run_until(given)
        assert (ended.returncode, "TC3019" in ended.stderr) == (1, True), ended.stderr
        for sink in ("t0", "t1"):
            assert f"  {sink}: main.events stands at {head} already, beyond {before}\n" in ended.stderr
    assert "it is of an earlier source" in run_until(Position(0, head.place)).stderr
    ended = run_until(head)
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"tenants: reached {head} after ")


def test_the_time_that_the_start_takes_counts(tmp_path: Path) -> None:
    """`--timeout` is from the command's start: one that is over before Spark is there ends then."""
    world = _empty_world(tmp_path)
    options = ("--until-caught-up", "--timeout", "1ms", "--json")
    ended = truecut("run", world.file.name, *options, cwd=tmp_path)
    assert ended.returncode == 1
    assert re.search(r"\n  (t0: Spark has not started|source: it has not answered) in time\n", ended.stderr)
    _assert_it_never_began(json.loads(ended.stdout), "not reached", until="head")
    assert json.loads(ended.stdout)["stragglers"]


def _assert_it_never_began(summary: dict[str, Any], outcome: str, *, until: str | None) -> None:
    """Nothing was seen, and nothing is said of what was not seen."""
    told = (summary["schema"], summary["pipeline"], summary["outcome"], summary["until"])
    assert told == ("truecut.run/v1", "tenants", outcome, until)
    assert (summary["head"], summary["sinks"], summary["rows_applied"]) == (None, [], 0)


def test_a_run_ends_with_its_jvm_and_leaves_no_files_behind(tmp_path: Path) -> None:
    """One that has ended has removed what Spark keeps in the temporary folder; one whose JVM was killed says
    so and ends, so that somebody may start it again."""
    world = World(tmp_path, None, tenants_document(tenants=["t0"]))
    world.source(CREATE, INSERT.format(0, 30))
    world.save()
    kept = tmp_path / "java"
    kept.mkdir()
    env = {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={kept}"}
    ended = truecut("run", world.file.name, "--until-caught-up", cwd=tmp_path, **env)
    assert ended.returncode == 0, ended.stderr
    assert list(kept.iterdir()) == []
    log = tmp_path / "run.log"
    with started("--log-format", "json", "run", world.file, "--log-file", log, env=env) as process:
        eventually(lambda: _said(log, "took over"), what="it has taken its sink over")
        next(child for child in process.tree() if child.name() == "java").kill()
        _, stderr = process.popen.communicate(timeout=PATIENCE_S)
    assert (process.popen.returncode, "TC5009" in stderr) == (3, True), stderr


@pytest.mark.parametrize("module", ["truecut.cli.main", "truecut.cli.run"])
@pytest.mark.parametrize(
    ("number", "options", "code"),
    [
        (signal.SIGINT, (), 0),
        (signal.SIGTERM, (), 0),
        (signal.SIGINT, ("--until-caught-up",), 130),
        (signal.SIGTERM, ("--until-position", "3"), 143),
    ],
)
def test_a_signal_in_the_first_imports_is_kept(
    tmp_path: Path, module: str, number: signal.Signals, options: tuple[str, ...], code: int
) -> None:
    """As if it had come a moment later; nothing is written to stderr but what happened."""
    world = _empty_world(tmp_path)
    ended = _signalled_at(module, number, "run", str(world.file), *options)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list((tmp_path / ".truecut").glob("**/spark*"))


@pytest.mark.parametrize(
    ("number", "command", "code"),
    [
        (signal.SIGINT, ("run",), 0),
        (signal.SIGTERM, ("run", "--until-caught-up"), 143),
        (signal.SIGINT, ("capture",), 0),
        (signal.SIGINT, ("verify",), 130),
        (signal.SIGTERM, ("verify", "--level", "source"), 143),
    ],
)
def test_a_signal_while_the_source_does_not_answer_is_a_stop(
    tmp_path: Path, number: signal.Signals, command: tuple[str, ...], code: int
) -> None:
    """A server that takes the connection and says nothing is waited for, and the signal is heard."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d"
        document = tenants_document(tenants=["t0"])
        document["spec"]["source"] = {"type": "postgres", "dsn": dsn}
        document["spec"]["tables"] = [{"name": "public.*", "broadcast": True}]
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump(document))
        with started(*command, file) as process:
            silent.settimeout(PATIENCE_S)
            connection, _ = silent.accept()
            process.popen.send_signal(number)
            _, stderr = process.popen.communicate(timeout=PATIENCE_S)
            connection.close()
    assert process.popen.returncode == code, stderr
    assert "Traceback" not in stderr


def test_a_signal_in_the_first_imports_ends_a_command_that_only_looks(tmp_path: Path) -> None:
    """With the code of the interface, before it has done anything."""
    world = _empty_world(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM):
        ended = _signalled_at("truecut.cli.main", number, "validate", str(world.file))
        assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


def test_a_second_signal_in_the_first_imports_ends_it_at_once(tmp_path: Path) -> None:
    """Whatever is being imported."""
    ended = _signalled_at("truecut.cli.main", signal.SIGINT, "run", str(tmp_path / "none.yaml"), times=2)
    assert (ended.returncode, ended.stderr) == (130, "")


def _signalled_at(
    module: str, number: signal.Signals, *arguments: str, times: int = 1
) -> CompletedProcess[str]:
    """The command, which gets the signal while this module is being imported."""
    program = (
        "import os, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        f"            for _ in range({times}): os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Hook())\n"
        "from truecut.cli.entry import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
