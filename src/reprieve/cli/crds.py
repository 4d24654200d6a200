"""`reprieve crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`."""

from __future__ import annotations

import click
import yaml

from reprieve.api.crds import all_crds, gang_crds, kueue_crds

__all__ = ["crds"]


@click.command()
@click.option(
    "--pod-groups",
    is_flag=True,
    help="Also PodGroup of scheduling.sigs.k8s.io and scheduling.x-k8s.io, where the cluster "
    "has none.",
)
@click.option(
    "--kueue",
    is_flag=True,
    help="Also those of kueue.x-k8s.io, for the quota plane, where the cluster has none.",
)
def crds(pod_groups: bool, kueue: bool) -> None:
    """Print the CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`."""
    found = [
        *all_crds(),
        *(gang_crds() if pod_groups else ()),
        *(kueue_crds() if kueue else ()),
    ]
    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)
