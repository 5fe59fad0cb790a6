"""`truecut completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_TRUECUT_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    bash: truecut completion bash > ~/.local/share/bash-completion/completions/truecut

    zsh: truecut completion zsh > a file named _truecut in a folder of $fpath

    fish: truecut completion fish > ~/.config/fish/completions/truecut.fish
    """
    from truecut.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    complete = found(cli, {}, "truecut", VARIABLE)
    click.echo(complete.source_template % complete.source_vars())
