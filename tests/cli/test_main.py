"""The command group: help without waiting, failures as sentences and exit codes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.commands import truecut
from tests.patience import PATIENCE_S
from truecut import __version__
from truecut.cli import main as group
from truecut.errors import ExitCode, TruecutError

HEAVY = {"duckdb", "pyspark", "pyarrow", "pydantic", "yaml", "rich", "psycopg"}
SECRET = "geheim"


def test_help_answers_at_once_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """`truecut --help` needs less than a second of CPU: heavy imports wait until they are needed."""
    code = (
        "import sys\nfrom truecut.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as exit:\n    assert exit.code == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert HEAVY & set(result.stderr.split()) == set()
    assert min(seconds) < 1
    listed = result.stdout.partition("Commands:")[2]
    assert all(f"\n  {name} " in listed and text in listed for name, text in group.COMMANDS.items())
    assert not any(f"\n  {name} " in listed for name in group.NOT_YET)


@pytest.mark.parametrize("name", ["init", "validate", "schema"])
def test_commands_describe_themselves(tmp_path: Path, name: str) -> None:
    """Each command has help of its own."""
    result = truecut(name, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: truecut {name}")


@pytest.mark.parametrize("name", sorted(group.NOT_YET))
def test_commands_that_come_later_say_so(tmp_path: Path, name: str) -> None:
    """Wrong input, whatever follows the name."""
    result = truecut(name, "--help", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"TC1060 The command {name} is not available yet\n")


def test_wrong_usage_is_wrong_input(tmp_path: Path) -> None:
    """An unknown command or option, or a missing argument: exit 2, with a hint."""
    unknown = truecut("valdate", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "No such command 'valdate'; did you mean \"validate\"?" in unknown.stderr
    unitless = truecut("status", "p.yaml", "--max-lag", "5", cwd=tmp_path)
    assert (unitless.returncode, 'did you mean "5s" or "5ms"?' in unitless.stderr) == (2, True)
    assert truecut("validate", cwd=tmp_path).returncode == 2
    assert truecut("validate", "--nope", cwd=tmp_path).returncode == 2
    assert truecut("--log-level", "loud", "schema", cwd=tmp_path).returncode == 2


def test_version(tmp_path: Path) -> None:
    """The version comes from one place."""
    assert truecut("--version", cwd=tmp_path).stdout == f"truecut, version {__version__}\n"


def called(body: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `truecut schema` with another body."""
    code = (
        "import sys, types, click, logging\n"
        "from truecut.errors import *\n"
        "module = types.ModuleType('truecut.cli.schema')\n"
        f"@click.command()\ndef command():\n    {body}\n"
        "module.command = command\n"
        "sys.modules['truecut.cli.schema'] = module\n"
        "from truecut.cli.main import main\nmain()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("exit_code", [ExitCode.FAILED, ExitCode.UNFIT_ENVIRONMENT])
def test_errors_are_sentences_with_their_exit_code(tmp_path: Path, exit_code: ExitCode) -> None:
    """What a command raises decides the exit code; no traceback."""
    body = f"raise TruecutError('TC9999', 'It broke', fix='Mend it.', exit_code=ExitCode({int(exit_code)}))"
    result = called(body, "schema", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (exit_code, "")
    assert result.stderr == "TC9999 It broke\n  fix: Mend it.\n"


def test_a_bug_is_one_line_without_values(tmp_path: Path) -> None:
    """The text of an unexpected exception may hold a row or a password: its kind and place are told."""
    body = f"password = '{SECRET}'; raise KeyError('{SECRET}')"
    result = called(body, "schema", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("unexpected error KeyError at ")
    assert "this is a bug" in result.stderr
    debug = called(body, "schema", "--log-level", "debug", cwd=tmp_path)
    assert debug.returncode == 1
    assert "in command" in debug.stderr
    assert f"KeyError: '{SECRET}'" not in debug.stderr


@pytest.mark.parametrize(("raised", "code"), [("KeyboardInterrupt", 130), ("SystemExit(143)", 143)])
def test_interrupts_keep_their_exit_code(tmp_path: Path, raised: str, code: int) -> None:
    """A promise that was interrupted is not ok."""
    assert called(f"raise {raised}", "schema", cwd=tmp_path).returncode == code


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """`truecut schema | head -1` prints one line and no complaint."""
    command = f'{sys.executable} -c "from truecut.cli.main import main; main()" schema | head -c 1'
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("{", "")


def test_logs_go_to_stderr_in_the_form_asked_for(tmp_path: Path) -> None:
    """Text or JSON lines, from the level asked for, wherever the options stand; libraries only warn."""
    body = (
        "log = logging.getLogger('truecut.x'); log.debug('low'); log.info('hello %s', 1); "
        "logging.getLogger('py4j').info('noise')"
    )
    text = called(body, "schema", cwd=tmp_path)
    assert text.stdout == ""
    assert [line.partition(" ")[2] for line in text.stderr.splitlines()] == ["info truecut.x: hello 1"]
    lines = called(
        body, "schema", "--log-format=json", "--log-level", "debug", cwd=tmp_path
    ).stderr.splitlines()
    records = [json.loads(line) for line in lines]
    assert [(r["level"], r["logger"], r["message"]) for r in records] == [
        ("debug", "truecut.x", "low"),
        ("info", "truecut.x", "hello 1"),
    ]
    assert called(body, "--log-level", "error", "schema", cwd=tmp_path).stderr == ""


def test_exceptions_are_logged_without_their_text(tmp_path: Path) -> None:
    """Logs keep the promise of messages: no row values, no secrets."""
    body = f"logging.getLogger('truecut').error('failed', exc_info=ValueError('{SECRET}'))"
    for form in ("text", "json"):
        stderr = called(body, "--log-format", form, "schema", cwd=tmp_path).stderr
        assert "failed (ValueError)" in stderr
        assert SECRET not in stderr


def test_options_first_leaves_everything_else_alone() -> None:
    """Only the global options move, and nothing after `--` does."""
    options_first = group._options_first
    assert options_first(["run", "f", "--log-level", "debug", "--x"]) == [
        "--log-level",
        "debug",
        "run",
        "f",
        "--x",
    ]
    assert options_first(["run", "--", "--log-level", "debug"]) == ["run", "--", "--log-level", "debug"]
    assert options_first(["run", "--log-level"]) == ["--log-level", "run"]


def test_every_command_that_is_listed_is_a_command() -> None:
    """The table of short help and the modules agree."""
    context = click.Context(group.cli)
    commands = {name: group.cli.get_command(context, name) for name in group.COMMANDS}
    assert all(isinstance(command, click.Command) for command in commands.values())
    with pytest.raises(TruecutError, match="not available yet"):
        group.cli.get_command(context, "dlq")


def test_a_thread_that_was_left_behind_does_not_abort_the_process(tmp_path: Path) -> None:
    """A thread in DuckDB outlives the command: the exit code is the command's (here by SystemExit, as after a
    signal), its output is whole, and what was registered for the end of the process is called."""
    code = """
import atexit, threading, time, duckdb
from truecut.cli.main import main
inside = threading.Event()
def slow(number: int) -> int:
    inside.set()
    time.sleep(0.001)
    return number
def hang() -> None:
    with duckdb.connect() as connection:
        connection.create_function("slow", slow, ["BIGINT"], "BIGINT")
        connection.execute("SELECT sum(slow(i)) FROM range(10_000_000) r(i)")
def later() -> None:
    atexit.register(print, "the end")
    threading.Thread(target=hang, daemon=True).start()
    inside.wait()
import truecut.cli.schema
plain = truecut.cli.schema.command.callback
def schema() -> None:
    later()
    plain()
    raise SystemExit(143)
truecut.cli.schema.command.callback = schema
main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code, "schema"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (143, "")
    document, _, end = result.stdout.rpartition("}")
    assert json.loads(document + "}")["$schema"]
    assert end.split() == ["the", "end"]
