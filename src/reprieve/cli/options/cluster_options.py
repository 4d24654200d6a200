"""The options that name the cluster of commands, with completion of what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from reprieve.cli.options.live_names import contexts, namespaces

__all__ = ["context_option", "kubeconfig_option", "namespace_option"]

F = TypeVar("F", bound=Callable[..., Any])

kubeconfig_option: Final = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(),
    help="Else $KUBECONFIG, in-cluster, ~/.kube/config.",
)
context_option: Final = click.option(
    "--context", metavar="NAME", shell_complete=contexts, help="Context of the kubeconfig."
)


def namespace_option(text: str) -> Callable[[F], F]:
    """Return `--namespace`, with what it means to the command."""
    return click.option(
        "-n", "--namespace", metavar="NAMESPACE", shell_complete=namespaces, help=text
    )
