"""`reprieve ledger`: who paid for whose urgency, from the ledger of harm in the cluster."""

from __future__ import annotations

import asyncio
import datetime
import json
from dataclasses import asdict
from typing import Final

import click

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.operator_option import operator_option
from reprieve.cli.sessions.reading import reading_client
from reprieve.engine.harm_budgets.sums import Amount, Key
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import Forbidden
from reprieve.kube.resource import CONFIG_MAPS
from reprieve.records.harm_sums import HARM_LABEL, part_rows
from reprieve.records.harm_table import WINDOWS, as_csv, as_open_metrics, harm_rows
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.units.errors import UsageError

__all__ = ["ledger"]

_FORMS: Final = ("csv", "json", "openmetrics")


@click.command()
@click.option("--since", required=True, metavar="DATE", help="First day, such as 2026-11-01, UTC.")
@click.option(
    "--by",
    default="tenant,month",
    metavar="TENANT,WINDOW",
    help="tenant,month or tenant,day or tenant,hour.",
)
@namespace_option("Work of this namespace alone.")
@operator_option("all, as far as the caller may list them")
@click.option(
    "-o", "--output", "form", default="csv", metavar="FORM", help="csv, json, openmetrics."
)
@kubeconfig_option
@context_option
def ledger(
    since: str,
    by: str,
    namespace: str | None,
    operator_namespace: str | None,
    form: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Print who was displaced for whom, how often, and how many GPU-hours that cost.

    Reads ConfigMaps of the operator, which the caller has to be allowed to list.
    """
    if form not in _FORMS:
        raise UsageError(f"-o: {form!r}; accepted: {', '.join(_FORMS)}")
    window = by.removeprefix("tenant,")
    if window not in WINDOWS or window == by:
        raise UsageError(f"--by: {by!r}; accepted: tenant,month, tenant,day and tenant,hour")
    try:
        day = datetime.date.fromisoformat(since)
    except ValueError:
        raise UsageError(f"--since: {since!r}; accepted: a day such as 2026-11-01") from None
    began = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    sums = asyncio.run(_sums(operator_namespace, kubeconfig, context))
    rows = harm_rows(sums, Nanos(int(began.timestamp()) * SECOND), window, namespace)
    if form == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        click.echo(as_csv(rows) if form == "csv" else as_open_metrics(rows), nl=False)


async def _sums(
    namespace: str | None, kubeconfig: str | None, context: str | None
) -> list[tuple[Key, Amount]]:
    """Return the sums of a namespace, or of all that the caller may list."""
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    client = reading_client(connection, clock)
    selector = f"{HARM_LABEL}=sums"
    try:
        try:
            found = await client.list(
                CONFIG_MAPS, dict, namespace=namespace or "", label_selector=selector
            )
        except Forbidden:
            if namespace is not None:
                raise
            namespace = DEFAULT_NAMESPACE
            found = await client.list(
                CONFIG_MAPS, dict, namespace=namespace, label_selector=selector
            )
    finally:
        await client.close()
    if not found.items:
        where = f"namespace {namespace}" if namespace else "any namespace"
        click.echo(
            f"no sums in {where}: no plan that displaced work is over, or the operator is "
            "elsewhere (--operator-namespace)",
            err=True,
        )
    return [row for obj in found.items for row in part_rows(obj)[0].items()]
