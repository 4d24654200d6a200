"""The objects of the quota plane's load test but the Workloads, and an API server that has them.

`python -m bench.quota_server SHAPE KUBECONFIG` writes a kubeconfig, prints its port and serves.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.quota_shapes import BASELINE, LARGE, ONE_NAMESPACE, QUICK, Object
from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds, kueue_crds
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.operator.collector import relax_collector

__all__ = ["OPERATOR_NAMESPACE", "create_all", "remove_all", "serve"]

OPERATOR_NAMESPACE = "reprieve-system"
_ATTEMPTS = 50
_AT_ONCE = 16
_LET_GO = {"metadata": {"finalizers": None}}
_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
_KINDS = {
    "Namespace": NAMESPACES,
    "ResourceFlavor": Resource(
        "kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False
    ),
    "ClusterQueue": Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", False),
    "LocalQueue": Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"),
}


async def create_all(client: Client, objects: list[Object]) -> None:
    """Create definitions, the operator's namespace and these; what is there already stays."""
    for crd in [*all_crds(), *kueue_crds()]:
        with suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}}
    for obj in (own, *objects):
        with suppress(AlreadyExists):
            await _create(client, obj)


async def _create(client: Client, obj: Object) -> None:
    """Create an object, of a kind that may only be served a moment later."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            await client.create(_KINDS[obj["kind"]], obj, dict)
        except NotFound:
            if not left:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def remove_all(client: Client, objects: list[Object]) -> None:
    """Remove what was created, but for definitions and namespaces, and the records."""
    for resource in (_WORKLOADS, PREEMPTIONS, PREEMPTION_PARTS):
        kept: Any = (await client.list(resource, dict)).items
        names = iter([(each["metadata"]["namespace"], each["metadata"]["name"]) for each in kept])

        async def remove(resource: Resource, names: Iterator[tuple[str, str]]) -> None:
            for namespace, name in names:
                with suppress(NotFound):
                    await client.delete(resource, namespace, name)

        await asyncio.gather(*(remove(resource, names) for _ in range(_AT_ONCE)))
    for obj in reversed(objects):
        resource, metadata = _KINDS[obj["kind"]], obj["metadata"]
        if resource is not NAMESPACES:
            with suppress(NotFound):
                where = metadata.get("namespace", ""), metadata["name"]
                await client.patch(resource, *where, _LET_GO, dict)
                await client.delete(resource, *where)


async def serve(shape: str, kubeconfig: Path) -> None:
    """Serve until the process ends."""
    relax_collector()
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(kubeconfig)
        client = connect(await load_connection(str(kubeconfig)), SystemClock())
        found = next(each for each in (BASELINE, LARGE, ONE_NAMESPACE, QUICK) if each.name == shape)
        await create_all(client, found.objects())
        await client.close()
        print(cluster.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
