"""The command `truecut`: which commands there are, and what their failures mean to a shell.

Commands are modules of this package, imported when they are used: `truecut --help` must answer at once,
and Spark, DuckDB and pydantic take their time. Each module offers `command`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from truecut import __version__
from truecut.cli.entry import give_back
from truecut.errors import ExitCode, TruecutError

COMMANDS = {
    "demo": "Show everything on this machine, with nothing to set up.",
    "init": "Write a commented pipeline file to begin with.",
    "validate": "Check a pipeline file without connecting to anything.",
    "doctor": "Connect and check what the pipeline needs; say how to fix it.",
    "plan": "Show what `run` would do now.",
    "run": "Carry changes to every sink until stopped.",
    "capture": "Only capture the source's changes into the journal.",
    "verify": "Say whether every copy equals its source.",
    "status": "Show where source, sinks and tables stand.",
    "pause": "Hold delivery back.",
    "resume": "Let delivery go on.",
    "backfill": "Read a table again while changes go on.",
    "certificate": "What was certified: list, show, export, rotate.",
    "drop": "Forget a pipeline's state; data at sinks stays.",
    "schema": "Print the pipeline file's JSON Schema.",
    "journal": "The log on its own: append, read, inspect.",
    "completion": "Print a completion script for bash, zsh or fish.",
}
STOP_CLEANLY = frozenset({"run", "backfill", "capture", "verify", "journal"})  # they hear signals themselves
NOT_YET = frozenset({"dlq", "ui"})

_INTERRUPTED = 130
_GLOBAL_OPTIONS = ("--log-level", "--log-format")


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in NOT_YET:
            raise TruecutError(
                "TC1060",
                f"The command {cmd_name} is not available yet",
                fix="`truecut --help` lists the commands of this version.",
                exit_code=ExitCode.WRONG_INPUT,
            )
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in STOP_CLEANLY:
            give_back()
        command = import_module(f"truecut.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _options_first(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise click.UsageError(f"{error.message.rstrip('.')}{hint}", ctx) from None


def _options_first(args: list[str]) -> list[str]:
    """Options for all commands may also stand behind the command's name."""
    first: list[str] = []
    rest: list[str] = []
    pending = iter(args)
    for argument in pending:
        if argument == "--":
            rest.append(argument)
            break
        if argument in _GLOBAL_OPTIONS:
            first += [argument, *([value] if (value := next(pending, None)) is not None else [])]
        elif argument.startswith(tuple(f"{option}=" for option in _GLOBAL_OPTIONS)):
            first.append(argument)
        else:
            rest.append(argument)
    return [*first, *rest, *pending]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed while running, 2 wrong input, 3 environment not fit, "
    "4 verification failed, 5 verification unknown.",
)
@click.version_option(__version__, prog_name="truecut")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log, to stderr.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def cli(log_level: str, log_format: str) -> None:
    """Replicate live tables on Apache Spark, exactly, from one source to many sinks."""
    from truecut.cli.output import set_up_logging

    set_up_logging(level=log_level, form=log_format)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit: a message on stderr and the exit code of the interface, never a traceback."""
    arguments = list(sys.argv[1:] if args is None else args)
    exited: list[int] = []
    if args is None:  # the process is ours
        atexit.register(_leave, exited)  # the first to be registered is the last to be called
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _abandon_stdout()
        code = ExitCode.FAILED
    exited.append(code)
    sys.exit(code)


def _leave(exited: list[int]) -> None:
    """End the process here if threads are left behind, in a hanging call or by a signal: while Python goes
    down it ends each of them that comes back from DuckDB, and C++ makes an abort of that."""
    if not exited or not any(thread.daemon for thread in threading.enumerate()):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(exited[0])


def _run(arguments: list[str]) -> int:
    try:
        result = cli.main(arguments, prog_name="truecut", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except click.ClickException as error:
        error.show()
        return ExitCode.WRONG_INPUT if isinstance(error, click.UsageError) else error.exit_code
    except click.Abort:
        return _INTERRUPTED
    except SystemExit as ended:  # a command's own code: 1 of a health check, 128 and a signal's number
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except TruecutError as error:
        click.echo(str(error), err=True)
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the last place that can turn it into a sentence
        _report_bug(error, debug=_asks_for_debug(arguments))
        return ExitCode.FAILED


def _asks_for_debug(arguments: list[str]) -> bool:
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return "--log-level=debug" in arguments or ("--log-level", "debug") in pairs


def _report_bug(error: Exception, *, debug: bool) -> None:
    """Where it happened, but not the exception's text, which may hold a row's values or a password."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "truecut" in Path(frame.filename).parts] or frames
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    if debug:
        click.echo("".join(traceback.format_list(frames)), err=True, nl=False)
    hint = "" if debug else " with the output of --log-level debug"
    click.echo(
        f"unexpected error {type(error).__name__}{place}; this is a bug: please report it{hint}", err=True
    )


def _abandon_stdout() -> None:
    """Python flushes stdout once more at exit; let that go nowhere instead of failing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
