"""`reprieve crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`."""

from __future__ import annotations

import click
import yaml

from reprieve.api.crds import all_crds

__all__ = ["crds"]


@click.command()
def crds() -> None:
    """Print the CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`."""
    click.echo(yaml.safe_dump_all(all_crds(), sort_keys=False), nl=False)
