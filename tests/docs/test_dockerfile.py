"""The Dockerfile's own lines, run without Docker: what it copies, and each RUN of its first stage.

The packages of the lock are stand-ins with the names, versions and requirements of the real ones, so that
nothing is fetched; setuptools, which builds the project, is the real one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, distribution
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
_LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; ([^\\\n]+))? \\$", re.MULTILINE)


@dataclass(frozen=True)
class Context:
    """What `docker build` would see after its COPY lines, and where its absolute paths lie here."""

    folder: Path
    index: Path  # instead of the packages' registry

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """As the image's shell would."""
        for path in ("/opt/truecut", "/wheels"):
            line = line.replace(path, f"{self.folder.parent}{path}")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        if "--no-index" not in line:  # that line says itself where its packages are
            environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


def _instructions(kind: str) -> list[str]:
    """Those of the stage that builds."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    stage = text.split("\nFROM ")[1]
    return re.findall(rf"^{kind} (.+)$", stage, re.MULTILINE)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for each package of the lock that this interpreter would get."""
    folder = tmp_path_factory.mktemp("index")
    for name, version in _locked():
        if name == "setuptools":
            _real(folder, name, version)
        else:
            _stand_in(folder, name, version, distribution(name).metadata)
    return folder


@pytest.fixture
def context(index: Path, tmp_path: Path) -> Context:
    """What the Dockerfile copies, and nothing else; the lock has the stand-ins' hashes."""
    folder = tmp_path / "src"
    folder.mkdir()
    for line in _instructions("COPY"):
        *names, target = shlex.split(line)
        for name in names:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
                shutil.copytree(ROOT / name, folder / target, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / target)
    _write_lock(folder / "requirements.lock", index)
    return Context(folder, index)


def _locked() -> Iterator[tuple[str, str]]:
    for name, version, marker in _LOCKED.findall((ROOT / "requirements.lock").read_text()):
        if not marker or Marker(marker).evaluate():
            yield canonicalize_name(name), version


def _write_lock(path: Path, index: Path, *, spoilt: str = "") -> None:
    """As the real one, with the stand-ins' hashes; of one package it may be another's."""
    lines = []
    for name, version in _locked():
        (wheel,) = index.glob(f"{name.replace('-', '_')}-{version}-*.whl")
        digest = hashlib.sha256(wheel.read_bytes() + (b"!" if name == spoilt else b"")).hexdigest()
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")
    path.write_text("".join(lines))


def _stand_in(folder: Path, name: str, version: str, metadata: PackageMetadata) -> None:
    """Its name, its version and what it asks for; no code."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    for key in ("Requires-Dist", "Provides-Extra"):
        lines += [f"{key}: {value}" for value in metadata.get_all(key) or ()]
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def _real(folder: Path, name: str, version: str) -> None:
    """As it is installed here."""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                wheel.write(str(file.locate()), str(file))


def _installed(python: Path) -> dict[str, str]:
    code = "from importlib.metadata import *\nfor one in distributions(): print(one.name, one.version)"
    listed = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    return {canonicalize_name(name): version for name, version in pairs}


def test_the_image_gets_the_program_and_the_locked_packages_it_asks_for(context: Context) -> None:
    """Every RUN of the stage succeeds on what its COPY lines brought; developers' tools stay behind. Where a
    package is not the one that was locked, the build ends."""
    lock, refused = context.folder / "requirements.lock", ""
    for line in _instructions("RUN"):
        if "--require-hashes" in line:
            _write_lock(lock, context.index, spoilt="rich")
            refused = context.run(line).stderr
            _write_lock(lock, context.index)
        ran = context.run(line)
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused
    assert "rich" in refused
    scripts = context.folder.parent / "opt/truecut/bin"
    assert {"truecut", "truecut-verify"} <= {path.name for path in scripts.iterdir()}
    held = _installed(scripts / "python")
    asked = [Requirement(line) for line in distribution("truecut").requires or ()]
    ours = {canonicalize_name(one.name) for one in asked if one.marker is None} | {
        "truecut",
        "truecut-verify",
    }
    assert ours <= held.keys()
    assert not held.keys() & {"mypy", "pytest", "ruff", "uv", "hypothesis"}
    locked = {name: version for name, version in _locked() if name in held and name != "setuptools"}
    assert {name: held[name] for name in locked} == locked
