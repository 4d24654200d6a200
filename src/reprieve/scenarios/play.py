"""One scenario being played: where it stands, what it remembers, and how a step ends early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kubelocal.machines.objects import AlreadyThere, Changed, Gone, Object
from kubeworld.writes.merging import merge_patch
from reprieve.scenarios.observer import GPUWORKLOADS
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage

__all__ = ["Play", "StepFailed", "StepSkipped"]

_ATTEMPTS: Final = 8


class StepFailed(Exception):
    """What a step asserts does not hold, or cannot be done; the message states what was seen."""


class StepSkipped(Exception):
    """The scenario needs something that is not there."""


@dataclass(slots=True)
class Play:
    """The state that the steps of one scenario share."""

    stage: Stage
    namespace: str
    operator: OperatorProcesses
    remembered: dict[str, Any] = field(default_factory=dict)
    # Kind -> apiVersion of the objects that this scenario applied.
    api_versions: dict[str, str] = field(default_factory=dict)

    def resource_of(self, kind: str) -> str:
        """Return the resource that stores a kind.

        Raises:
            StepFailed: the kind is not served here.
        """
        objects, api_version = self.stage.objects, self.api_versions.get(kind)
        resource = (
            objects.resource_of(api_version, kind) if api_version else objects.resource_named(kind)
        )
        if resource is None:
            raise StepFailed(f"the cluster does not serve the kind {kind}")
        return resource

    async def find(self, kind: str, name: str) -> Object | None:
        """Return a live object of the scenario's namespace."""
        return await self.stage.objects.get(self.resource_of(kind), self.namespace, name)

    async def root(self, root: str) -> Object:
        """Return the live root owner `Kind/name`.

        Raises:
            StepFailed: it does not exist.
        """
        kind, _, name = root.partition("/")
        item = await self.find(kind, name)
        if item is None:
            raise StepFailed(f"{root} does not exist")
        return item

    async def gpuworkload(self, root: str) -> Object:
        """Return the live GpuWorkload of a root.

        Raises:
            StepFailed: there is none.
        """
        seen = self.stage.observer.gpuworkload(self.namespace, root)
        if seen is not None:
            live = await self.stage.objects.get(
                GPUWORKLOADS, self.namespace, seen["metadata"]["name"]
            )
            if live is not None:
                return live
        raise StepFailed(f"no GpuWorkload refers to {root}")

    async def write(self, manifest: Object) -> Object:
        """Create the object, or merge the manifest into the one that exists."""
        objects = self.stage.objects
        resource = objects.resource_of(manifest["apiVersion"], manifest["kind"])
        if resource is None:
            raise StepFailed(
                f"the cluster does not serve {manifest['kind']} of {manifest['apiVersion']}"
            )
        metadata = manifest["metadata"]
        for _ in range(_ATTEMPTS):
            try:
                return await objects.create(resource, manifest)
            except AlreadyThere:
                pass
            present = await objects.get(resource, metadata.get("namespace", ""), metadata["name"])
            if present is None:
                continue
            try:
                return await objects.update(resource, merge_patch(present, manifest))
            except (Changed, Gone):
                continue
        raise StepFailed(f"{manifest['kind']}/{metadata['name']} kept changing under the write")
