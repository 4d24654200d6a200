"""How the operator of a cluster is set, read from its Deployment and ConfigMaps.

A caller who may read them gets the planes and settings that decide there, and need not repeat them;
one who may not specifies them by the flags of `reprieve run`. An operator that runs as a process
has its settings in a ConfigMap (`published_settings`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from reprieve.cli.options.operator_option import OPERATOR_VARIABLE
from reprieve.cli.run import operator_options, run
from reprieve.cli.sessions.published_settings import PublishedSettings, published_settings
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.own_objects import operator_container, operator_deployments
from reprieve.kube.resource import Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.deciders import Deciders

__all__ = ["running_deciders"]

_CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
_FILES: Final = ("config_file", "scheduler_config", "quota_config")


async def running_deciders(client: Client) -> Deciders | None:
    """Return the planes of the operator that is installed, as it is set; None if not to be read."""
    try:
        for deployment in await operator_deployments(client):
            container = operator_container(deployment)
            if container is not None:
                return await _deciders(client, deployment, container)
        published = await published_settings(client)
        return None if published is None else _of_published(published)
    except (ApiError, UsageError, click.UsageError, msgspec.ValidationError, msgspec.DecodeError):
        # Flags and what is installed decide then.
        return None


def _of_published(published: PublishedSettings) -> Deciders:
    """Return the planes of an operator that runs as a process."""
    given = run.make_context("run", list(published.arguments)).params
    given |= dict.fromkeys(_FILES)
    environment = {OPERATOR_VARIABLE: published.namespace, **published.environment}
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        if published.config:
            given["config_file"] = Path(folder) / "config"
            given["config_file"].write_text(published.config, encoding="utf-8")
        return Deciders.of(operator_options(environment, **given))


async def _deciders(
    client: Client, deployment: Mapping[str, Any], container: Mapping[str, Any]
) -> Deciders | None:
    namespace = deployment["metadata"]["namespace"]
    given = run.make_context("run", list(container["args"][1:])).params
    environment = {
        each["name"]: each["value"] for each in container.get("env") or () if each.get("value")
    }
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        for name in _FILES:
            if given[name] is not None:
                text = await _mounted(client, deployment, container, given[name])
                if text is None:
                    return None
                copied = Path(folder) / name
                copied.write_text(text, encoding="utf-8")
                given[name] = copied
        return Deciders.of(operator_options({OPERATOR_VARIABLE: namespace, **environment}, **given))


async def _mounted(
    client: Client,
    deployment: Mapping[str, Any],
    container: Mapping[str, Any],
    path: Path,
) -> str | None:
    """Return the text of a file that comes from a ConfigMap; None where it does not."""
    mounts: Sequence[Mapping[str, Any]] = container.get("volumeMounts") or ()
    volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
    names = [each["name"] for each in mounts if Path(each["mountPath"]) == path.parent]
    for volume in volumes:
        source = volume.get("configMap")
        if volume["name"] in names and source:
            namespace = deployment["metadata"]["namespace"]
            found = await client.get(_CONFIG_MAPS, namespace, source["name"], dict)
            text = (found.get("data") or {}).get(path.name)
            return None if text is None else str(text)
    return None
