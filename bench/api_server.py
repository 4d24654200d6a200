"""An API server with many pods and their Jobs, as far as the initial list and reads of roots go.

`python -m bench.api_server PODS` prints its port. Pods are of usual size (5 to 6 kB, half of it
managedFields) and come in pages; ten pods belong to a Job, which is listed and read by name.
`GET /run/N` gives all objects other uids and names, so that nothing that a client kept from an
earlier run is of use. Watches are accepted and stay silent.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from typing import Any

from aiohttp import web

from bench.made_on_request import (
    asked_page,
    managed_fields,
    run_server,
    running_status,
    silent_watch,
    template_text,
)

__all__ = ["NAMESPACES", "PODS_PER_JOB", "job_uid", "namespace_of", "pod_text", "pod_uid"]

PODS_PER_JOB = 10
NAMESPACES = 50


def pod_uid(run: int, index: int) -> str:
    return f"{run:08x}-0000-4000-8000-{index:012x}"


def job_uid(run: int, number: int) -> str:
    return f"{run:08x}-0000-4000-9000-{number:012x}"


def namespace_of(number: int) -> str:
    return f"team-{number % NAMESPACES:02}"


def pod_text(run: int, index: int) -> str:
    """Return a pod as JSON."""
    number = index // PODS_PER_JOB
    return _template() % {
        "INDEX": index,
        "POD_UID": pod_uid(run, index),
        "JOB_UID": job_uid(run, number),
        "JOB": f"training-{run}-{number}",
        "NAMESPACE": namespace_of(number),
        "NODE": f"node-{index % 1250:05}",
        "VERSION": 1000 + index,
    }


@functools.cache
def _template() -> str:
    words = ("INDEX", "POD_UID", "JOB_UID", "JOB", "NAMESPACE", "NODE", "VERSION")
    return template_text(_pod(), words)


class ApiServer:
    """Pods are made when their page is asked for."""

    def __init__(self, pods: int) -> None:
        self._pods = pods
        self._run = 0

    async def run(self, request: web.Request) -> web.Response:
        self._run = int(request.match_info["run"])
        return web.Response(text=str(len(self._page(0, 1))))

    async def pods(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await silent_watch(request)
        start, end, following = asked_page(request, self._pods)
        metadata = json.dumps({"resourceVersion": "1000000", "continue": following})
        items = self._page(start, end)
        body = f'{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}'
        return web.Response(text=body, content_type="application/json")

    async def job(self, request: web.Request) -> web.Response:
        _, run, number = request.match_info["name"].split("-")
        if int(run) != self._run:
            raise web.HTTPNotFound
        job = self._job(int(number))
        return web.json_response({"apiVersion": "batch/v1", "kind": "Job", **job})

    async def jobs(self, request: web.Request) -> web.Response:
        start, end, following = asked_page(request, self._pods // PODS_PER_JOB)
        return web.json_response(
            {
                "apiVersion": "batch/v1",
                "kind": "JobList",
                "metadata": {"resourceVersion": "1000000", "continue": following},
                "items": [self._job(number) for number in range(start, end)],
            }
        )

    def _job(self, number: int) -> dict[str, Any]:
        return {
            "metadata": {
                "name": f"training-{self._run}-{number}",
                "namespace": namespace_of(number),
                "uid": job_uid(self._run, number),
                "resourceVersion": "7",
                "annotations": {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"},
            },
            "spec": {"parallelism": PODS_PER_JOB, "template": {"spec": _pod()["spec"]}},
        }

    async def batch(self, _: web.Request) -> web.Response:
        resources = [{"name": "jobs", "kind": "Job", "namespaced": True, "singularName": "job"}]
        return web.json_response({"groupVersion": "batch/v1", "resources": resources})

    def _page(self, start: int, end: int) -> str:
        return ",".join(pod_text(self._run, index) for index in range(start, end))


def _pod() -> dict[str, Any]:
    """Return a running pod of a Job with what the API server and the kubelet add to it."""
    name = "@JOB@-@INDEX@"
    container = {
        "name": "training",
        "image": "registry.example/team/training:2026.03",
        "command": ["python", "-m", "training"],
        "env": [{"name": f"TRAINING_OPTION_{n}", "value": f"value-{n}"} for n in range(12)],
        "resources": {
            "requests": {"amd.com/gpu": "1", "cpu": "8", "memory": "64Gi"},
            "limits": {"amd.com/gpu": "1", "memory": "64Gi"},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io", "readOnly": True},
        ],
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
    }
    times = {"lastProbeTime": None, "lastTransitionTime": "2026-03-04T09:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": "@JOB@-",
            "namespace": "@NAMESPACE@",
            "uid": "@POD_UID@",
            "resourceVersion": "@VERSION@",
            "creationTimestamp": "2026-03-04T08:59:00Z",
            "labels": {
                "app": "training",
                "batch.kubernetes.io/job-name": "@JOB@",
                "batch.kubernetes.io/controller-uid": "@JOB_UID@",
                "batch.kubernetes.io/job-completion-index": "@INDEX@",
            },
            "annotations": {"team.example/contact": "training@example.com"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "@JOB@",
                    "uid": "@JOB_UID@",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": managed_fields(),
        },
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-@INDEX@"}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}},
            ],
            "nodeName": "@NODE@",
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ],
        },
        "status": running_status(
            "training", "registry.example/team/training:2026.03", "10.2.3.4", times
        ),
    }


async def serve(pods: int) -> None:
    server = ApiServer(pods)
    application = web.Application()
    routes = application.router
    routes.add_get("/run/{run}", server.run)
    routes.add_get("/api/v1/pods", server.pods)
    routes.add_get("/apis/batch/v1", server.batch)
    routes.add_get("/apis/batch/v1/jobs", server.jobs)
    routes.add_get("/apis/batch/v1/namespaces/{namespace}/jobs/{name}", server.job)
    await run_server(application)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
