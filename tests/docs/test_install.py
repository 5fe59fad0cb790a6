"""What users install: a wheel in an empty environment, and the files that start it elsewhere."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

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
    """`truecut` in an environment that has the wheel, the packages that it asks for, and nothing else."""
    return _fresh(tmp_path_factory.mktemp("venv"), str(wheel)) / "truecut"


def _fresh(folder: Path, *what: str) -> Path:
    """The commands of an empty environment that these were installed into, with what they ask for.

    Of the packages of the lock, by its hashes: as this environment was made, so that uv has kept them; if it
    has not, they are fetched again.
    """
    venv.create(folder, with_pip=False)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(folder / "bin/python")]
    uv += ["--constraint", str(ROOT / "requirements.lock"), *what]
    kept = subprocess.run([*uv, "--offline"], capture_output=True, text=True, check=False)
    if kept.returncode != 0:
        fetched = subprocess.run(uv, capture_output=True, text=True, check=False)
        assert fetched.returncode == 0, kept.stderr + fetched.stderr
    return folder / "bin"


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


def test_everything_that_is_imported_is_installed_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Each module, in the environment that has nothing but what the wheel asks for."""
    code = (
        "import importlib, pkgutil, sys, truecut\n"
        "for one in pkgutil.walk_packages(truecut.__path__, 'truecut.'):\n"
        "    if not one.name.startswith(('truecut.testing', 'truecut.__main__')):\n"
        "        importlib.import_module(one.name)\n"
        "print(len([name for name in sys.modules if name.startswith('truecut.')]))"
    )
    python = installed.with_name("python")
    told = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) > 200


PARTS = {  # what is imported where, beside what everything may import
    "truecut": {
        "truecut/testing/": "testing",
        "truecut/runtime/certificate_files.py": "verify",
        "truecut/runtime/witness.py": "verify",
    },
    "truecut_verify": {
        "truecut_verify/lake.py": "duckdb",
        "truecut_verify/postgres.py": "postgres",
        "truecut_verify/witness.py": "postgres",
    },
}


@pytest.mark.parametrize(
    ("package", "project"), [("truecut", ROOT), ("truecut_verify", ROOT / "src/truecut_verify")]
)
def test_everything_that_is_imported_is_declared(package: str, project: Path) -> None:
    """By the distribution itself: what comes with another's package may stay away with its next version."""
    told = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    asked = {"": told["dependencies"], **told["optional-dependencies"]}
    known = {extra: {_canonical(Requirement(line).name) for line in lines} for extra, lines in asked.items()}
    known["verify"] = {
        "truecut-verify"
    }  # asked for where certificates are examined, and told where it is missing
    undeclared = set()
    for file in (ROOT / "src" / package).rglob("*.py"):
        name = str(file.relative_to(ROOT / "src"))
        extras = {extra for part, extra in PARTS[package].items() if name.startswith(part)} | {""}
        for module in _imported(file) - {package}:
            owners = set(map(_canonical, packages_distributions().get(module, [module])))
            if not owners & set().union(*(known[extra] for extra in extras)):
                undeclared.add((name, module))
    assert undeclared == set()


def _imported(file: Path) -> set[str]:
    """The outermost modules that it takes from elsewhere."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module))
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_has_what_is_declared_and_names_no_registry() -> None:
    """Of every package the version and the hashes; where they lie is everybody's own matter."""
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = told["dependencies"] + told["optional-dependencies"]["dev"]
    assert {_canonical(Requirement(line).name) for line in asked} <= locked
    assert not re.search(r"://|--(extra-)?index-url|--find-links", lock)


@pytest.mark.soak
def test_the_demo_runs_from_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    """Spark and its workers, too. Of lakes alone: the other one's PostgreSQL is an extra, which is told."""
    answer = _run(installed, "demo", "--rows", "2000", "--seconds", "2", cwd=tmp_path)
    assert (answer.returncode, answer.stderr.count("\n")) == (0, 1)
    assert "pip install 'truecut[demo]'" in answer.stderr
    assert "equal, row by row" in answer.stdout


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
