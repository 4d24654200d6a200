"""What API servers have in common that make their objects when they are asked for them.

An object is a template, JSON in which `@WORD@` stands for what differs. Lists come in pages,
watches are accepted and stay silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

__all__ = [
    "asked_page",
    "managed_fields",
    "run_server",
    "running_status",
    "silent_watch",
    "template_text",
]


def template_text(template: dict[str, Any], words: Iterable[str]) -> str:
    """Return JSON to be filled in with `%`, by these words."""
    text = json.dumps(template, separators=(",", ":")).replace("%", "%%")
    for word in words:
        text = text.replace(f"@{word}@", f"%({word})s")
    return text


def managed_fields() -> list[dict[str, Any]]:
    """Return what an API server keeps about two writers, of usual size."""
    field: dict[str, dict[str, str]] = {"f:name": {}, "f:value": {}, ".": {}}
    leaves = {f"f:field{n}": field for n in range(24)}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-03-04T09:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": leaves, "f:spec": {"f:containers": {}}},
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]


async def silent_watch(request: web.Request) -> web.StreamResponse:
    """Accept a watch in which nothing happens."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await asyncio.Event().wait()
    return response


def asked_page(request: web.Request, count: int) -> tuple[int, int, str]:
    """Return where the page begins and ends that is asked for, and how to go on after it."""
    start = int(request.query.get("continue") or 0)
    end = min(count, start + int(request.query.get("limit") or count))
    return start, end, str(end) if end < count else ""


async def run_server(application: web.Application) -> None:
    """Print the port and serve until the process ends."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def running_status(
    container: str, image: str, pod_ip: str, times: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the status of a pod that runs with one container; `more` is of that container."""
    return {
        "phase": "Running",
        "startTime": "2026-03-04T09:00:00Z",
        "hostIP": "10.1.2.3",
        "podIP": pod_ip,
        "conditions": [
            {"type": kind, "status": "True", **times}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": container,
                "ready": True,
                "restartCount": 0,
                "image": image,
                "containerID": "containerd://0123456789abcdef0123456789abcdef",
                "state": {"running": {"startedAt": "2026-03-04T09:00:10Z"}},
                **more,
            }
        ],
    }
