"""The JVM that a session runs in: started by us, so that it can be waited for with patience, and ended.

PySpark would start one by itself, but hands it over only when it answers: whoever is told to stop meanwhile
could not end it. Promises: `start` does not wait; it dies with this process, however that ends (its stdin
closes), at once by `kill`, and by `end` after it has removed its temporary files; Ctrl-C in a terminal does
not reach it.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_S = 0.05
TAIL_BYTES = 16 << 10
TIDY_S = 10.0


class JvmEnded(Exception):
    """It ended instead of answering; `said` is the end of what it printed."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"the JVM ended with {code}")
        self.said = said


class Jvm:
    """One JVM with PySpark's gateway in it."""

    def __init__(self, settings: Mapping[str, str], *, log: Path, environ: Mapping[str, str]) -> None:
        from pyspark.find_spark_home import _find_spark_home

        self._folder = tempfile.mkdtemp(prefix="truecut-jvm-")
        self._info = os.path.join(self._folder, "gateway")
        self._log = log
        command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._logged = os.fstat(descriptor).st_size
        try:
            self._process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=descriptor,
                env={
                    **os.environ,
                    **environ,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": self._info,
                },
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        _alive.add(self)

    def wait(self) -> None:
        """Until it answers; JvmEnded when it does not."""
        while not os.path.exists(self._info):
            code = self._process.poll()
            if code is not None:
                raise JvmEnded(code, self._said())
            time.sleep(POLL_S)

    @contextmanager
    def offered(self) -> Iterator[None]:
        """A session that is made in this block finds it."""
        content = Path(self._info).read_bytes()
        port, length = struct.unpack(">ii", content[:8])  # as PySpark's gateway writes it
        found = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": content[8 : 8 + length].decode(),
        }
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.update(found)
        try:
            yield
        finally:
            for name in found:
                del os.environ[name]

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def end(self, *, patience_s: float = TIDY_S) -> None:
        """As if this process had ended: it removes its temporary files; if that takes too long, at once. May
        be called twice."""
        if self._process.stdin is not None:
            with suppress(OSError):  # it has ended already
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patience_s)
        self.kill()

    def kill(self) -> None:
        """At once, whatever it is doing. May be called twice."""
        if self._process.poll() is None:
            self._process.kill()
            # With a limit: in a signal's handler another wait, which was interrupted, may hold Popen's lock.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=TIDY_S)
        _alive.discard(self)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(self._logged, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace")


_alive: set[Jvm] = set()  # one that nobody held would lose its stdin, and end
