"""What users install: a wheel in an empty environment, and the files that start it elsewhere."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.patience import PATIENCE_S
from truecut.cli.main import COMMANDS, cli
from truecut.config.load import load

ROOT = Path(__file__).parent.parent.parent
SECRETS = {
    "CONTROL_DSN": "postgresql://h/d",
    "SOURCE_CATALOG": "postgres:dbname=x",
    "TRUECUT_LISTEN_TOKEN": "t",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, as `python -m build --wheel` does it."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    out = copy / "dist"
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    out.mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`truecut` in an environment that has the wheel, the packages that it asks for, and no checkout."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
    subprocess.run([*uv, str(wheel)], check=True, capture_output=True)
    # Its dependencies are those of this environment, as paths: what is editable here is not seen there.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "truecut"


def _run(truecut: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(truecut), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_wheel_holds_the_whole_package(wheel: Path) -> None:
    """Every module and every file beside them."""
    kept = {".py", ".properties", ".typed"}
    source = ROOT / "src"
    files = (source / "truecut").rglob("*")
    wanted = {str(path.relative_to(source)) for path in files if path.suffix in kept}
    with zipfile.ZipFile(wheel) as content:
        held = set(content.namelist())
    assert wanted - held == set()
    assert not [name for name in held if name.startswith("truecut_verify")]  # a distribution of its own


def test_an_installed_wheel_works_from_any_folder(installed: Path, tmp_path: Path) -> None:
    """Commands run from the wheel, not from the checkout."""
    python = installed.with_name("python")
    code = "import truecut; print(truecut.__file__)"
    where = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert where.stdout.startswith(str(installed.parent.parent))
    assert _run(installed, "init", cwd=tmp_path).returncode == 0
    answer = _run(installed, "validate", "pipeline.yaml", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.soak
def test_the_demo_runs_from_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    """Spark and its workers, too. Without the wheel of PostgreSQL it is the demo of lakes, and says so."""
    answer = _run(installed, "demo", "--rows", "2000", "--seconds", "2", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "equal, row by row" in answer.stdout
    assert "pip install 'truecut[demo]'" in answer.stderr


def test_the_examples_of_deployment_are_right(tmp_path: Path) -> None:
    """The pipeline of the Deployment is one, and the commands that the files start are known."""
    documents = {d["kind"]: d for d in yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text())}
    for name, text in documents["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    assert set(documents["Secret"]["stringData"]) == set(SECRETS)
    assert len(load(tmp_path / "pipeline.yaml", environ=SECRETS).sinks) == 2
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    _assert_known(container["args"])
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy/truecut.service")
    for key in ("ExecStartPre", "ExecStart"):
        _assert_known(shlex.split(unit["Service"][key])[1:])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \["tini", "--", "truecut"\]$', dockerfile, re.MULTILINE)
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)


def _assert_known(arguments: list[str]) -> None:
    """Parsed as the command line would be; nothing is run."""
    rest = [a for a in arguments if a not in ("--log-format", "json")]
    command = cli.get_command(cli.make_context("truecut", ["--help"], resilient_parsing=True), rest[0])
    assert command is not None
    command.make_context(rest[0], rest[1:])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_completed(shell: str, tmp_path: Path) -> None:
    """The script is printed, and what it asks for is answered."""
    truecut = Path(sys.executable).with_name("truecut")
    script = _run(truecut, "completion", shell, cwd=tmp_path)
    assert script.returncode == 0
    assert f"_TRUECUT_COMPLETE={shell}_complete" in script.stdout
    words = {"COMP_WORDS": "truecut ", "COMP_CWORD": "" if shell == "fish" else "1"}
    environ = {"_TRUECUT_COMPLETE": f"{shell}_complete", **words}
    answer = subprocess.run([truecut], env=environ, capture_output=True, text=True, cwd=tmp_path)
    assert all(name in answer.stdout for name in COMMANDS)
