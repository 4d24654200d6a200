"""`reprieve uninstall`: what has to precede the removal of the operator's rights and webhooks."""

from __future__ import annotations

import asyncio

import click

from kubeworld.units.clock import SystemClock
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option
from reprieve.cli.options.operator_option import operator_option
from reprieve.execution.writes.uninstalling import Uninstalling, operator_namespaces
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.units.errors import UsageError

__all__ = ["uninstall"]


@click.command()
@operator_option("the one in which its Deployment is")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@click.option(
    "--without-quota",
    is_flag=True,
    help="Leave Kueue's kinds as they are: this operator has no quota plane.",
)
@kubeconfig_option
@context_option
def uninstall(
    operator_namespace: str | None,
    dry_run: bool,
    without_quota: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Stop the operator and leave nothing behind that hangs or fails closed.

    Scales the operator's Deployment to zero, ends the conversion of Kueue's kinds, empties the
    webhook configurations, and removes Reprieve's finalizers from Workloads, ClusterQueues,
    ResourceFlavors, AdmissionChecks, Topologies and queued pods. Kueue's kinds are left as they are
    where an operator in another namespace serves them. Nothing is deleted, and nothing that waits
    is started. The chart runs it before `helm uninstall`; run it yourself where Helm does not
    remove the release, or where rbac.create is off.
    """
    asyncio.run(
        _uninstall(
            operator_namespace, kubeconfig, context, dry_run=dry_run, quota=not without_quota
        )
    )


async def _uninstall(
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    *,
    dry_run: bool,
    quota: bool,
) -> None:
    clock = SystemClock()
    client = connect(await load_connection(kubeconfig, context, clock), clock)
    try:
        namespace = namespace or await _found(client)
        await Uninstalling(client, clock, namespace, click.echo, dry_run=dry_run, quota=quota).run()
    finally:
        await client.close()


async def _found(client: Client) -> str:
    """Return the namespace in which the operator is installed, the default if it is in none.

    Raises:
        UsageError: it is in several.
    """
    found = await operator_namespaces(client)
    if len(found) > 1:
        raise UsageError(
            f"operators are installed in namespaces {', '.join(found)}; "
            "accepted: one of them by --operator-namespace"
        )
    if found:
        return found[0]
    click.echo(
        f"no Deployment of the operator; its lease is sought in {DEFAULT_NAMESPACE}", err=True
    )
    return DEFAULT_NAMESPACE
