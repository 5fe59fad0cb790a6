"""Java programs from Maven that tests and benchmarks start: their jars, fetched once, by the Ivy that Spark
brings, into a folder of the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path


def jars(organisation: str, module: str, version: str, *, name: str) -> Path:
    """The folder with the program's jars; fetched if it is not there, and then complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "truecut" / name / version
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _retrieve(aside, organisation, module, version)
        if not folder.exists():  # another process may have been quicker
            (aside / "jars").rename(folder)
    finally:
        shutil.rmtree(aside)
    return folder


def java() -> str:
    """The command."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _retrieve(aside: Path, organisation: str, module: str, version: str) -> None:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    (ivy,) = (Path(spark.origin).parent / "jars").glob("ivy-*.jar")
    wanted = ["-dependency", organisation, module, version, "-confs", "default"]
    target = ["-cache", str(aside / "ivy"), "-retrieve", f"{aside}/jars/[artifact]-[revision].[ext]"]
    done = subprocess.run(
        [java(), "-jar", str(ivy), *wanted, *target], capture_output=True, text=True, check=False
    )
    if done.returncode or not (aside / "jars" / f"{module}-{version}.jar").exists():
        raise RuntimeError(f"{module} {version} cannot be fetched from Maven:\n{done.stdout[-2000:]}")
