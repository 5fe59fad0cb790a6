"""What makes Spark start sooner: imports that are done once, classes that are loaded once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.patience import PATIENCE_S
from truecut.spark import archive, zygote
from truecut.spark.session import check_java, python_of


def _who_runs(spark: SparkSession, role: str) -> dict[str, object]:
    """What a worker of this role says of itself, and of where it comes from."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            daemon = psutil.Process().parent()
            assert daemon is not None
            known = {
                "role": os.environ["TRUECUT_ROLE"],
                "name": psutil.Process().name(),
                "daemon": daemon.pid,
                "zygote": daemon.ppid(),
            }
            yield pa.RecordBatch.from_pydict({"said": [json.dumps(known)]})

    with python_of(spark, role):
        said = spark.range(1).coalesce(1).mapInArrow(tell, "said string")
    return dict(json.loads(said.collect()[0].said))


def test_daemons_of_all_roles_are_forked_from_one_interpreter(spark: SparkSession) -> None:
    """The imports are done once; yet each role has a daemon, an environment and a name of its own."""
    first, second = _who_runs(spark, "one"), _who_runs(spark, "two")
    assert (first["role"], second["role"]) == ("one", "two")
    assert (first["name"], second["name"]) == ("truecut-one", "truecut-two")
    assert first["daemon"] != second["daemon"]
    assert first["zygote"] == second["zygote"]
    assert "truecut.spark.zygote" in psutil.Process(int(str(first["zygote"]))).cmdline()


def test_a_daemon_that_finds_no_zygote_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None was started, it is gone, or it ends before it has taken over."""
    monkeypatch.delenv(zygote.VARIABLE, raising=False)
    assert not zygote.hand_over()
    address = tmp_path / "socket"
    monkeypatch.setenv(zygote.VARIABLE, str(address))
    assert not zygote.hand_over()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address))
        listener.listen()
        dying = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).accept()"
        command = [sys.executable, "-c", dying, str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=(listener.fileno(),)):
            assert not zygote.hand_over()


def test_the_zygote_ends_with_a_driver_that_is_killed() -> None:
    """Nothing stays behind: neither the process nor its folder."""
    driver = "from truecut.spark.zygote import Zygote; print(Zygote().address, flush=True); input()"
    command = [sys.executable, "-c", driver]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        (child,) = psutil.Process(process.pid).children()
        assert Path(address).exists()
        process.kill()
    child.wait(timeout=PATIENCE_S)
    assert not Path(address).parent.exists()


def test_an_archive_is_used_with_what_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Java, or none made: nothing is said to the JVM."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert archive.options("17") == ""
    for folder in archive.folders():
        folder.mkdir(parents=True)
        made = folder / archive._name("17")
        made.touch()
        assert archive.options("17") == f" -XX:SharedArchiveFile={made}"
        assert archive.options("21") == ""
        made.unlink()


def test_the_jvm_maps_the_archive_that_the_set_up_has_made(spark: SparkSession) -> None:
    """An archive that does not fit would silently be left out."""
    option = archive.options(check_java())
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert option.partition("=")[2] in Path(f"/proc/{pid}/maps").read_text()
    assert option
