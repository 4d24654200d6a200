"""The API server of the quota plane's load test, with everything in it but the Workloads.

`python -m bench.quota_server SHAPE KUBECONFIG` writes a kubeconfig, prints its port and serves.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.quota_shapes import BASELINE, LARGE, QUICK, Object
from reprieve.api.crds import all_crds, kueue_crds
from reprieve.controllers.collector import relax_collector
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from reprieve.local.cluster import EmbeddedCluster
from reprieve.units.clock import SystemClock

__all__ = ["OPERATOR_NAMESPACE", "serve"]

OPERATOR_NAMESPACE = "reprieve-system"
_KINDS = {
    "Namespace": NAMESPACES,
    "ResourceFlavor": Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor"),
    "ClusterQueue": Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue"),
    "LocalQueue": Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"),
}


async def _fill(client: Client, objects: list[Object]) -> None:
    for crd in [*all_crds(), *kueue_crds()]:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}}
    for obj in (own, *objects):
        await client.create(_KINDS[obj["kind"]], obj, dict)


async def serve(shape: str, kubeconfig: Path) -> None:
    """Serve until the process ends."""
    relax_collector()
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(kubeconfig)
        client = connect(await load_connection(str(kubeconfig)), SystemClock())
        found = next(each for each in (BASELINE, LARGE, QUICK) if each.name == shape)
        await _fill(client, found.objects())
        await client.close()
        print(cluster.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
