"""The examples of docs/spark.md, as they stand, as somebody's own job on a real cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def code(language: str) -> str:
    """All blocks of a language, one after another."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL))


def test_the_examples_run_on_a_cluster(tmp_path: Path, cluster_of_two: Cluster) -> None:
    """A plain session, executors in other processes and folders: a batch and a stream of a log."""
    home = tmp_path / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable}
    subprocess.run(["sh", "-ec", code("sh")], cwd=home, env=environment, check=True, timeout=PATIENCE_S)
    (home / "job.py").write_text(code("python"), encoding="utf-8")
    environment["PYSPARK_SUBMIT_ARGS"] = (
        f"--master {cluster_of_two.url} --conf spark.executor.memory=600m --conf spark.ui.enabled=false "
        "--conf spark.driver.host=127.0.0.1 pyspark-shell"
    )
    job = [sys.executable, "job.py"]
    run = subprocess.run(job, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    shown = re.findall(r"^\|([0-9A-F-]{25})\|message\|(.*?) *\|$", run.stdout, re.MULTILINE)
    assert shown == [(f"00000001-{n:016X}", f'"{text}"') for n, text in enumerate(("one", "two", "three"), 1)]
    written = [line for file in (home / "copy").glob("*.json") for line in file.read_text().splitlines()]
    found = sorted((row["position"], row["after"]) for row in map(json.loads, written))
    assert found == shown
