"""A cluster with many running pods and no machines: the embedded API server, filled in process.

`python -m bench.cluster PODS KUBECONFIG [NODES [USE]]` writes a kubeconfig, prints the port of a
metrics endpoint that shows every opted-in pod busy, and serves. Ten pods belong to a Job, every
fifth Job has opted in. With NODES there are Node objects, which the pods fill in turn; USE is the
most that a pod uses of its GPU beyond 40 percent, -1 for pods that use nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.api_server import PODS_PER_JOB, job_uid, namespace_of, pod_text
from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import Resource

__all__ = ["OPERATOR_NAMESPACE", "opted_in"]

OPERATOR_NAMESPACE = "kaiwo-system"
_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
EVERY = 5


def opted_in(pods: int) -> list[int]:
    """Return the numbers of the Jobs that opted in."""
    return list(range(0, pods // PODS_PER_JOB, EVERY))


def _node(number: int, gpus: int) -> dict[str, Any]:
    offered = {"amd.com/gpu": str(gpus), "cpu": "256", "memory": "2Ti", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:05}"},
        "spec": {},
        "status": {"capacity": offered, "allocatable": offered},
    }


async def _fill(cluster: EmbeddedCluster, client: Client, pods: int, nodes: int) -> None:
    for crd in all_crds():
        await client.create(_CRDS, crd, dict)
    names = {namespace_of(number) for number in range(pods // PODS_PER_JOB)}
    for name in sorted(names | {OPERATOR_NAMESPACE}):
        await client.create(_NAMESPACES, {"metadata": {"name": name}}, dict)
    chosen = set(opted_in(pods))
    for number in range(pods // PODS_PER_JOB):
        metadata: dict[str, Any] = {
            "name": f"training-0-{number}",
            "namespace": namespace_of(number),
            "uid": job_uid(0, number),
        }
        if number in chosen:
            metadata["annotations"] = {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
        cluster.store.put("jobs.batch", job)
    for number in range(nodes):
        cluster.store.put("nodes", _node(number, -(-pods // nodes)))
    for index in range(pods):
        pod = json.loads(pod_text(0, index))
        if nodes:
            pod["spec"]["nodeName"] = f"node-{index % nodes:05}"
        cluster.store.put("pods", pod)
        if index % 500 == 0:
            await asyncio.sleep(0)


def _exposition(pods: int, use: int) -> str:
    lines = ["# TYPE gpu_gfx_activity gauge\n"]
    for number in opted_in(pods):
        for index in range(number * PODS_PER_JOB, (number + 1) * PODS_PER_JOB):
            lines.append(
                f'gpu_gfx_activity{{gpu_id="0",namespace="{namespace_of(number)}",'
                f'pod="training-0-{number}-{index}"}} {40 + index % use if use > 0 else 0}\n'
            )
    return "".join(lines)


async def serve(pods: int, kubeconfig: Path, nodes: int = 0, use: int = 50) -> None:
    cluster = EmbeddedCluster()
    await cluster.start()
    cluster.write_kubeconfig(kubeconfig)
    client = connect(await load_connection(str(kubeconfig)), SystemClock())
    await _fill(cluster, client, pods, nodes)
    await client.close()
    body = _exposition(pods, use)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=body)

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])))
