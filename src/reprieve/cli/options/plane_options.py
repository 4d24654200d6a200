"""Options that state how planes decide, for the commands that run, play or question them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["file_option", "gates_option", "profile_options"]

F = TypeVar("F", bound=Callable[..., Any])


def profile_options(of: str = "the", more: str = "") -> Callable[[F], F]:
    """Return the options of all planes that choose how victims are chosen."""

    def add(command: F) -> F:
        for plane in ("quota", "idle", "scheduling"):  # the last one stands first
            command = click.option(
                f"--{plane}-profile",
                type=click.Choice(["", "compatible", "best"]),
                default="",
                metavar="compatible|best",
                help=f"How {of} {plane} plane chooses victims{more}.",
            )(command)
        return command

    return add


def gates_option(text: str) -> Callable[[F], F]:
    """Return the option that names feature gates."""
    return click.option("--feature-gates", default="", metavar="A=true,B=false", help=text)


def file_option(name: str, text: str, *field: str) -> Callable[[F], F]:
    """Return an option that names a file to read."""
    return click.option(name, *field, type=click.Path(path_type=Path), metavar="FILE", help=text)
