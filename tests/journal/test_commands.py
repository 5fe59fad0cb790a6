"""The journal's commands as a user types them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journal.cluster import Cluster
from tests.journal.processes import ended, start
from tests.patience import PATIENCE_S
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
NUMBERS = "".join(f"{n}\n" for n in range(1, 100_001))


def truecut(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "truecut", "journal", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_the_five_commands_of_the_page(tmp_path: Path) -> None:
    """Three nodes, a coordinator, an append and a read, as they stand there but for the ports."""
    (block,) = re.findall(
        r"```sh\n(truecut journal coordinate.*?)```", (ROOT / "docs" / "journal.md").read_text(), re.DOTALL
    )
    first = free_port()
    lines = re.sub(r" +#.*", "", block.replace(":7000", f":{first}").replace(":700$n", ":0"))
    coordinate, serve, append, read, status = lines.strip().splitlines()
    alive = f"truecut journal status --coordinator 127.0.0.1:{first} | grep -c alive"
    script = "\n".join(
        [
            "trap 'kill $(jobs -p); wait' EXIT",
            coordinate.replace("&", "2>>log &"),
            serve.replace("& done", "2>>log & done"),
            f"until {alive} 2>>log | grep -q 3; do sleep 0.1; done",
            f"{append} > positions\n{read} > lines\n{status} > status",
        ]
    )
    program = tmp_path / "bin" / "truecut"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m truecut "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, env=environment, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "lines").read_text() == NUMBERS
    positions = (tmp_path / "positions").read_text().splitlines()
    assert positions == [f"00000001-{n:016X}" for n in range(1, 100_001)]
    assert "log numbers  idle" in (tmp_path / "status").read_text()


def test_the_same_without_any_process(tmp_path: Path) -> None:
    """One folder is the same journal."""
    place = ["--data", str(tmp_path), "--log", "numbers"]
    appended = truecut("append", *place, stdin=NUMBERS)
    assert appended.stdout.splitlines()[-1] == "00000001-00000000000186A0"
    assert truecut("read", *place).stdout == NUMBERS
    assert (
        truecut(
            "read",
            *place,
            "--after",
            "00000001-0000000000000002",
            "--upto",
            "00000001-0000000000000004",
            "--positions",
        ).stdout
        == "00000001-0000000000000003\t3\n00000001-0000000000000004\t4\n"
    )


def test_an_append_that_waits_for_nodes_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    """Status names the reason; Ctrl-C ends it, with nothing printed that is not durable."""
    cluster = Cluster(tmp_path, nodes=1).start()
    place = ["--coordinator", cluster.address]
    waiting = subprocess.Popen(
        [sys.executable, "-m", "truecut", "journal", "append", *place, "--log", "log"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert waiting.stdin is not None
    assert waiting.stderr is not None
    waiting.stdin.write("one\n")
    waiting.stdin.flush()
    assert "TC6040" in waiting.stderr.readline()
    status = truecut("status", *place)
    assert status.returncode == 1
    assert "wants 2 nodes, and 1 can" in status.stdout
    waiting.send_signal(signal.SIGINT)
    out, _ = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, out) == (130, "")
    cluster.stop()


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (signal.SIGINT, ("append", "--log", "events")),
        (signal.SIGTERM, ("read", "--log", "events")),
        (signal.SIGINT, ("status",)),
    ],
)
def test_a_signal_while_the_coordinator_does_not_answer_is_a_stop(
    number: signal.Signals, command: tuple[str, ...]
) -> None:
    """Its promise was not kept, and that it was stopped is why: not that nobody answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = start(*command, "--coordinator", f"127.0.0.1:{silent.getsockname()[1]}")
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
        process.send_signal(number)
        answer = ended(process)
        connection.close()
    assert (answer.returncode, answer.stdout) == (128 + number, "")
    assert "TC6041" not in answer.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("append", "--log", "events"),
        ("coordinate", "--listen", "127.0.0.1:0"),
        ("serve", "--listen", "127.0.0.1:0", "--coordinator", "127.0.0.1:1"),
    ],
)
def test_a_folder_that_cannot_be_made_is_the_environments_fault(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """Exit 3 and the folder's name: no bug, and nothing that trying again would answer."""
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file" / "logs", Path("/proc/none/logs")):
        answer = truecut(*command, "--data", str(folder))
        assert (answer.returncode, answer.stdout) == (3, ""), answer.stderr
        assert answer.stderr.startswith(f"TC6013 the journal's folder {folder}")
        assert "bug" not in answer.stderr
