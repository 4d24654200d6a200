"""`reprieve shadow --policy FILE`: recorded preemptions decided again under a candidate policy.

Records are read with the caller's rights, from a cluster or a file; nothing is written. Exit code
0: answered. 1: there are records, and none of them can be decided again. 2: the query cannot
be answered; one line states why.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import msgspec
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.answers.layout import Style, safe
from reprieve.answers.preemptions.record_sources import (
    records_of_file,
    records_of_reader,
    samples_of_log,
)
from reprieve.answers.sources import ClusterSource, Reading
from reprieve.api.core import Namespace
from reprieve.api.reprieve import Preemption
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.operator_option import operator_namespace
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.texts.shadow_text import shadow_text
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import NAMESPACES
from reprieve.planes.common.plugins import installed, load, load_scorers
from reprieve.shadow.budgets import delayed
from reprieve.shadow.candidate import AS_RECORDED, Candidate, read_candidate
from reprieve.shadow.comparison import compared
from reprieve.shadow.document import Document, document
from reprieve.simulation.harm_budgets import namespace_labels
from reprieve.units.errors import UsageError

__all__ = ["shadow"]


@click.command()
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The candidate: sections of a --config file, or the keys of a policy of a study. Without, "
    "decisions are made again as they were recorded.",
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    help="Read records from a file of kubectl get preemptions,preemptionparts -A -o json (or "
    "yaml); - is standard input.",
)
@click.option(
    "--decision-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the samples of this decision log (refused decisions) in place of records.",
)
@namespace_option("Records of this namespace alone; else all that you may read.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Of the answer.",
)
@click.option("--all", "everything", is_flag=True, help="Show every decision that differs.")
@kubeconfig_option
@context_option
def shadow(
    policy: Path | None,
    filename: str | None,
    decision_log: Path | None,
    namespace: str | None,
    output: str,
    everything: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Decide recorded preemptions again under another policy.

    Each recorded decision is made again by the engine on its own input, one at a time; what would
    have come of it afterwards is not known. Nothing is written.
    """
    candidate = Candidate(AS_RECORDED) if policy is None else read_candidate(policy)
    if filename is not None and decision_log is not None:
        raise UsageError("-f and --decision-log: accepted: one of them")
    labels: Callable[[str], Mapping[str, str] | None] = namespace_labels
    if filename is not None or decision_log is not None:
        if decision_log is not None:
            records, unread = samples_of_log(decision_log)
        else:
            assert filename is not None
            records, unread = records_of_file(filename)
        if namespace is not None:
            records = [each for each in records if each.metadata.namespace == namespace]
    else:
        wanted = any(each.selector.namespaces for each in candidate.harm_budgets)
        records, unread, known = asyncio.run(_of_cluster(namespace, kubeconfig, context, wanted))
        labels = known.get
    plugins = _Plugins()
    late = delayed(
        records, candidate.harm_budgets, lambda each: labels(each) or namespace_labels(each)
    )
    compares = (compared(each, candidate, plugins) for each in records)
    found = document(candidate, compares, unread, late)
    _print(found, output, everything=everything)
    if found.total.decisions and not found.total.decided:
        sys.exit(1)


async def _of_cluster(
    namespace: str | None, kubeconfig: str | None, context: str | None, labels: bool
) -> tuple[list[Preemption], list[str], dict[str, Mapping[str, str]]]:
    """Return records, what is none, and where `labels` are wanted those of all namespaces."""
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    client = reading_client(connection, clock)
    operator = operator_namespace()
    try:
        reading = Reading(ClusterSource(client, clock))
        records, unread = await records_of_reader(reading, operator, namespace)
        spaces = (await client.list(NAMESPACES, Namespace)).items if labels else ()
        known: dict[str, Mapping[str, str]] = {
            each.metadata.name: each.metadata.labels or {} for each in spaces
        }
        return records, unread, known
    except ApiError as failure:
        raise UsageError(safe(str(failure))) from None
    finally:
        await client.close()


class _Plugins:
    """The plugins of installed packages, looked for once and when a record needs them."""

    def __init__(self) -> None:
        self._offered = installed()

    def __call__(
        self, policy: Policy
    ) -> tuple[Mapping[str, PostFilter], Mapping[str, PlacementScorer]]:
        """Return those that the profiles of a policy enable."""
        return load(self._offered, policy), load_scorers(self._offered, policy)


def _print(found: Document, form: str, *, everything: bool) -> None:
    if form == "text":
        for line in shadow_text(found, Style.of_terminal().width, everything=everything):
            click.echo(line)
    elif form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        plain = msgspec.to_builtins(found)
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
