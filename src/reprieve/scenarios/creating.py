"""Creates an object on a stage, or changes the one that is there."""

from __future__ import annotations

from typing import Any

from kubelocal.machines.objects import AlreadyThere, Changed, Gone
from reprieve.scenarios.real import KubeObjects

__all__ = ["create_or_update"]


async def create_or_update(objects: KubeObjects, manifest: dict[str, Any]) -> None:
    """Create an object; one of that name gets the fields of the manifest."""
    resource = objects.resource_of(manifest["apiVersion"], manifest["kind"])
    assert resource is not None, f"{manifest['kind']} of {manifest['apiVersion']} is not served"
    metadata = manifest["metadata"]
    try:
        await objects.create(resource, manifest)
    except AlreadyThere:
        there = await objects.get(resource, metadata.get("namespace", ""), metadata["name"])
        if there is None:
            return
        changed = {key: value for key, value in manifest.items() if key != "metadata"}
        try:
            await objects.update(resource, {**there, **changed})
        except (Changed, Gone):
            return  # another writer was first: it is written again when it matters
