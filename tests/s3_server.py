"""A private object store that speaks S3: S3Proxy over a folder, for tests and benchmarks.

A bucket is a folder below `data`, an object a file: what a store would do behind everybody's back (lose a
file, make it older, be full) is done to these. Lakes are read through it by plain DuckDB with httpfs.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_httpfs

from tests.maven import jars, java
from tests.patience import PATIENCE_S
from tests.ports import free_port

VERSION = "3.0.0"
KEY_ID = "truecut-tests"
# It takes half a second to start, and the memory of a small program.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGBACK = """<configuration>
  <appender name="err" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%d %level %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="err"/></root>
</configuration>
"""


@dataclass(frozen=True)
class S3Server:
    """A running store."""

    data: Path
    port: int
    secret: str
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def bucket(self, name: str) -> Path:
        """Its folder, made if it is not there."""
        folder = self.data / name
        folder.mkdir(exist_ok=True)
        return folder

    def storage(self, **changed: Any) -> dict[str, Any]:
        """The section of a pipeline file."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "key_id": KEY_ID,
            "secret": self.secret,
            "use_ssl": False,
            **changed,
        }

    def reached_by(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let plain DuckDB read and write there, as its manual says."""
        folder = Path(duckdb_extension_httpfs.__path__[0]) / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / 'httpfs.duckdb_extension'}'")
        connection.execute(
            f"CREATE OR REPLACE SECRET tests (TYPE s3, KEY_ID '{KEY_ID}', SECRET '{self.secret}', REGION "
            f"'us-east-1', ENDPOINT '{self.endpoint}', URL_STYLE 'path', USE_SSL false)"
        )

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections and answers nobody."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def s3_server(*, secret: str = "canary-secret-93b1") -> Iterator[S3Server]:
    """A store on a free port, with a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="truecut-s3-"))
    data, port = folder / "data", free_port()
    data.mkdir()
    settings = folder / "s3proxy.properties"
    settings.write_text(_settings(data, port, secret))
    (folder / "logback.xml").write_text(_LOGBACK)
    classes = f"{jars('org.gaul', 's3proxy', VERSION, name='s3proxy')}/*"
    logging = f"-Dlogback.configurationFile={folder / 'logback.xml'}"
    command = [java(), *_JVM, logging, "-cp", classes, "org.gaul.s3proxy.Main", "--properties", str(settings)]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_for(port, running, folder / "log")
        yield S3Server(data, port, secret, running)
    finally:
        running.kill()
        running.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _settings(data: Path, port: int, secret: str) -> str:
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": KEY_ID,
        "s3proxy.credential": secret,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": str(data),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _wait_for(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while running.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"S3Proxy {VERSION} did not start:\n{log.read_text()[-2000:]}")


def age(folder: Path, *, days: int) -> None:
    """Make all objects below a folder older."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        at = path.stat().st_mtime - days * 86_400
        os.utime(path, (at, at))
