"""`reprieve completion SHELL`: what a shell needs to complete the command line, as a script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of a shell, such as for `source <(reprieve completion bash)`."""
    from reprieve.cli.main import VARIABLE, cli

    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    click.echo(made(cli, {}, "reprieve", VARIABLE).source())
