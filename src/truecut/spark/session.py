"""The Spark session: quiet, small, tuned for many short jobs of few large packets.

Options of the pipeline file (`spark.conf`) win over everything here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from truecut.config.kinds import worker_modules
from truecut.errors import ExitCode, TruecutError
from truecut.spark import archive
from truecut.spark.jvm import TIDY_S, Jvm
from truecut.spark.zygote import MODULES, VARIABLE, Zygote
from truecut.state_folder import SPARK_LOG, WAREHOUSE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from truecut.config.settings import Pipeline

JAVA_MIN = 17
_roles = threading.Lock()


def default_master() -> str:
    """More slots than cores: a sink that waits for its storage must not starve the others."""
    return f"local[{max(8, 4 * (os.cpu_count() or 2))}]"


def slots(spark: SparkSession) -> int:
    """How many tasks may run at once."""
    return max(1, spark.sparkContext.defaultParallelism)


def executors(spark: SparkSession) -> int:
    """How many processes run tasks now: one, unless it is a cluster."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return 1
    known = context._jsc.sc().statusTracker().getExecutorInfos()
    return max(1, len(known) - 1)  # the driver is among them


@contextmanager
def python_of(spark: SparkSession, role: str) -> Iterator[None]:
    """Functions made in the block run in Python processes of their own, which no other role shares.

    Spark hands a task to whichever idle Python process has waited longest. So a lake that one task
    attached would be found attached again by chance only, were these processes shared with all others;
    Spark shares them between functions of the same environment.
    """
    environment = spark.sparkContext.environment
    with _roles:
        environment["TRUECUT_ROLE"] = role
        try:
            yield
        finally:
            del environment["TRUECUT_ROLE"]


def open_session(
    *,
    app: str,
    master: str | None,
    conf: Mapping[str, str],
    scratch: Path,
    worker_modules: Sequence[str] = (),
) -> SparkSession:
    """Start (or join) Spark. `scratch` receives the warehouse folder that Spark insists on."""
    starting = Starting(app=app, master=master, conf=conf, scratch=scratch, worker_modules=worker_modules)
    return starting.session()


class Starting:
    """Spark on its way: the JVM is started at once, and what it is for can be prepared meanwhile.

    In a process that has one already it is joined.
    """

    def __init__(
        self,
        *,
        app: str,
        master: str | None,
        conf: Mapping[str, str],
        scratch: Path,
        worker_modules: Sequence[str] = (),  # what its Python workers need beside what all need
    ) -> None:
        java_version = check_java()
        # Executors must run this very interpreter, or they pick whatever `python3` is first on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark import SparkContext

        modules = ",".join(worker_modules)
        self._settings = {
            "spark.app.name": f"truecut-{app}",
            "spark.master": master or default_master(),
            **_settings(scratch, java_options() + archive.options(java_version)),
            f"spark.executorEnv.{MODULES}": modules,
            **conf,
        }
        self._log = scratch / SPARK_LOG
        self._has_session = False
        self._jvm: Jvm | None = None
        self._zygote: Zygote | None = None
        if SparkContext._gateway is None:
            self._zygote = Zygote(modules) if _workers_are_here(self._settings) else None
            environ = {MODULES: modules}
            if self._zygote is not None:
                environ[VARIABLE] = self._zygote.address
            self._jvm = Jvm(self._settings, log=self._log, environ=environ)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Starting:
        """As its file says."""
        spark = pipeline.spark
        return cls(
            app=pipeline.name,
            master=spark.master,
            conf=spark.conf,
            scratch=pipeline.state,
            worker_modules=worker_modules(pipeline.source.type, (sink.type for sink in pipeline.sinks)),
        )

    def session(self, note: Callable[[str], None] = lambda _: None) -> SparkSession:
        """Wait for it; JvmEnded, or whatever Spark raises, when it does not start. `note` hears what for."""
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for key, value in self._settings.items():
            builder = builder.config(key, value)
        if self._jvm is None:
            return builder.getOrCreate()
        self._jvm.wait()
        note("starting Spark: the JVM is there, its session")
        with self._jvm.offered():
            session = builder.getOrCreate()
        self._has_session = True
        session._jsparkSession.sessionState()  # made late, and only then does it refuse settings of SQL
        return session

    @property
    def ended(self) -> bool:
        """Whether the JVM that was started here is gone: nothing can run any more."""
        return self._jvm is not None and self._jvm.ended

    def end(self, *, patience_s: float = TIDY_S) -> None:
        """The JVM ends, in whatever state it is; a joined one is left to whoever started it. One that has a
        session gets the time to remove its temporary files."""
        from pyspark import SparkContext

        if self._jvm is not None:
            if self._has_session:
                self._jvm.end(patience_s=patience_s)
            else:
                self._jvm.kill()
            self._end_zygote()
            SparkContext._gateway = SparkContext._jvm = None  # the next session starts another

    def kill(self) -> None:
        """At once, for whoever leaves now."""
        if self._jvm is not None:
            self._jvm.kill()
        self._end_zygote()

    def _end_zygote(self) -> None:
        if self._zygote is not None:
            self._zygote.end()


def _workers_are_here(settings: Mapping[str, str]) -> bool:
    """Whether Spark's Python workers run on this machine, in this interpreter."""
    local = re.fullmatch(r"local(\[.*\])?", settings["spark.master"])
    own = os.environ["PYSPARK_PYTHON"] == sys.executable and "spark.pyspark.python" not in settings
    return bool(local) and own


def java_options() -> str:
    """Short jobs: start-up matters more than the last per cent of peak speed. Deep regular expressions inside
    Spark overflow the default stack when a job is stopped."""
    log4j2 = Path(str(files("truecut.spark") / "log4j2.properties"))
    return (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss16m -Djava.net.preferIPv4Stack=true "
        f"-Dlog4j2.configurationFile={log4j2.as_uri()}"
    )


def _settings(scratch: Path, options: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": options,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / WAREHOUSE),
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "truecut.spark.daemon",
        # A row is a packet, of bytes or of megabytes: what is handed to Python at once has to be bounded.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
        "spark.task.maxFailures": "4",
        "spark.speculation": "false",
    }


def check_java() -> str:
    """Spark needs Java; say so in one sentence instead of a stack trace. Returns what it says of itself."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise TruecutError(
            "TC5002",
            "Java was not found",
            fix="Install Java 17 or newer (Debian: openjdk-17-jre-headless), or set JAVA_HOME.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = answer.split('"')[1] if '"' in answer else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < JAVA_MIN:
        raise TruecutError(
            "TC5003",
            f"Java {version or 'of an unknown version'} is too old",
            fix=f"Install Java {JAVA_MIN} or newer, or set JAVA_HOME to it.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    return answer
