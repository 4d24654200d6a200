"""The namespace of the operator: by an option, a variable, or what a command finds.

A chart installs the operator wherever its release is, which the default of `reprieve run` need not
be. A command that reads or stops the operator therefore searches where nothing is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

import click

from reprieve.settings.start_up import DEFAULT_NAMESPACE

__all__ = ["OPERATOR_VARIABLE", "operator_namespace", "operator_option"]

#: The variable that names the operator's namespace, as `reprieve run` reads it.
OPERATOR_VARIABLE: Final = "GPU_PREEMPTION_OPERATOR_NAMESPACE"

_Command = TypeVar("_Command", bound=Callable[..., object])


def operator_namespace() -> str:
    """Return the namespace that the variable names, else the default of `reprieve run`."""
    return os.environ.get(OPERATOR_VARIABLE, "").strip() or DEFAULT_NAMESPACE


def operator_option(otherwise: str) -> Callable[[_Command], _Command]:
    """Return the option; `otherwise` states what is used if neither names a namespace."""
    return click.option(
        "--operator-namespace",
        envvar=OPERATOR_VARIABLE,
        metavar="NAME",
        help=f"Namespace of the operator; ${OPERATOR_VARIABLE}, else {otherwise}.",
    )
