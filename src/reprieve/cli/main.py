"""The `reprieve` command. Commands are imported when they are used, so that help is quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem

import reprieve
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["VARIABLE", "cli", "main"]

#: By which a shell requests completions.
VARIABLE: Final = "_REPRIEVE_COMPLETE"

#: Name -> (module, attribute, one line for the overview).
COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "up": (
        "reprieve.cli.up",
        "up",
        "Start an embedded cluster with the operator, and show a demo.",
    ),
    "dashboard": (
        "reprieve.cli.dashboard",
        "dashboard",
        "Open the web page: holders, pending work, preemptions and their causes.",
    ),
    "web": (
        "reprieve.cli.web",
        "web",
        "Serve the web page in a cluster, with a login and each viewer's own rights.",
    ),
    "run": ("reprieve.cli.run", "run", "Run the operator against a cluster."),
    "explain": (
        "reprieve.cli.explain",
        "explain",
        "Explain why work waits or was preempted, and what helps.",
    ),
    "plan": (
        "reprieve.cli.plan",
        "plan",
        "Plan a submission: whether it starts, its victims, or why it waits.",
    ),
    "get": (
        "reprieve.cli.get",
        "get",
        "List holders of GPUs, pending work, preemptions or loops.",
    ),
    "snapshot": (
        "reprieve.cli.snapshot",
        "snapshot",
        "Store a snapshot for explain --from and plan --from.",
    ),
    "simulate": (
        "reprieve.cli.simulate",
        "simulate",
        "Replay a trace of jobs under several policies, and report what each costs.",
    ),
    "traces": (
        "reprieve.cli.traces",
        "traces",
        "List traces for simulate, and verify files by their sha256.",
    ),
    "shadow": (
        "reprieve.cli.shadow",
        "shadow",
        "Decide recorded preemptions again under another policy.",
    ),
    "ledger": (
        "reprieve.cli.ledger",
        "ledger",
        "Print the GPU-hours lost by preemption, per preemptor and victim.",
    ),
    "crds": ("reprieve.cli.crds", "crds", "Print the CustomResourceDefinitions as YAML."),
    "webhooks": (
        "reprieve.cli.webhooks",
        "webhooks",
        "Print the webhook configurations, empty, as YAML.",
    ),
    "uninstall": (
        "reprieve.cli.uninstall",
        "uninstall",
        "Stop the operator and leave nothing behind that hangs or fails closed.",
    ),
    "completion": (
        "reprieve.cli.completion",
        "completion",
        "Print the completion of a shell: bash, zsh or fish.",
    ),
}

#: What the extra `local` brings.
_LOCAL: Final = frozenset({"kubelocal", "rich"})


class LazyGroup(click.Group):
    """A group whose commands are imported on use; the overview needs none of them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _LOCAL:
                raise
            raise UsageError(
                f"reprieve {name}: {missing} is not installed; accepted: the command of an "
                "installation with the embedded cluster, pip install 'reprieve[local]'"
            ) from None
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [
            CompletionItem(name, help=line)
            for name, (_, _, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(reprieve.__version__, prog_name="reprieve")
def cli() -> None:
    """Make room on Kubernetes GPU clusters: choose victims so that pending work can run."""


def main(name: str = "reprieve") -> None:
    """Run the command line; what the user did wrong ends with exit code 2 and one line.

    `name`: as what it is called, in what it prints.
    """
    try:
        cli.main(prog_name=name, complete_var=VARIABLE, standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except UsageError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except ReprieveError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
