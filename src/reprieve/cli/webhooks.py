"""`reprieve webhooks`: the webhook configurations, empty, ready for `kubectl apply -f -`."""

from __future__ import annotations

import click
import yaml

from reprieve.planes.quota.webhooks.registration import CONFIGURATIONS, Place, configurations

__all__ = ["webhooks"]


@click.command()
def webhooks() -> None:
    """Print the webhook configurations of the quota plane, empty, as YAML.

    An operator that may not create them writes into them what it serves; it needs the right to
    patch them alone.
    """
    found = configurations(CONFIGURATIONS, (), Place())
    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)
