"""A full embedded cluster without machines, as a process of its own, filled in process.

`python -m bench.large_gang_cluster NODES PODS_PER_NODE NAMESPACE KUBECONFIG` writes a kubeconfig,
prints the server's port and serves. Every node is full of bound pods of low priority.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from bench.large_gang_objects import low_pod, node, objects_first
from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NODES, PODS
from reprieve.operator.collector import freeze_records

__all__: list[str] = []


async def serve(nodes: int, per_node: int, namespace: str, kubeconfig: Path) -> None:
    """Fill and serve until cancelled."""
    cluster = EmbeddedCluster()
    await cluster.start()
    cluster.write_kubeconfig(kubeconfig)
    client = connect(await load_connection(str(kubeconfig)), SystemClock())
    for resource, obj in objects_first(namespace):
        await client.create(resource, obj, dict)
    for number in range(nodes):
        await client.create(NODES, node(number, per_node), dict)
    # One as the API stores it is the pattern of all others.
    first = await client.create(PODS, low_pod(namespace, 0, per_node), dict)
    for number in range(1, nodes * per_node):
        pod = copy.deepcopy(first)
        wanted = low_pod(namespace, number, per_node)
        pod["metadata"] |= {**wanted["metadata"], "uid": str(uuid.uuid4())}
        pod["spec"]["nodeName"] = wanted["spec"]["nodeName"]
        cluster.store.put("pods", pod)
        if number % 500 == 0:
            await asyncio.sleep(0)
    await client.close()
    freeze_records()
    print(urlsplit(cluster.url).port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])))
