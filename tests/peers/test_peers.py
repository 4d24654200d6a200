"""Clients that know nothing of Reprieve work with the embedded cluster, each as its own process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import Client, definition, task
from reprieve.scenarios import with_parent

SCRIPTS = Path(__file__).parent / "scripts"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TASKS = "/apis/example.com/v1/namespaces/default/tasks"

# What every client is told of the same story.
STORY = {
    "listed": ["plan-0", "plan-1", "plan-2"],
    "applied": {"step": "applied"},
    "conflict": "409 Conflict",
    "forced": {"step": "taken"},
    "patched": {"step": "patched"},
    "phase": "Running",
}
CHANGES = [
    ["ADDED", "plan-3", "applied"],
    ["MODIFIED", "plan-3", "taken"],
    ["MODIFIED", "plan-0", "patched"],
    ["DELETED", "plan-1", "created"],
]
EXISTING = [["ADDED", f"plan-{number}", "created"] for number in range(3)]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as running:
        yield running


@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("with_lightkube.py", {"events": CHANGES}),
        ("with_kr8s.py", {"events": EXISTING + CHANGES}),
        (
            "with_official.py",
            {
                "events": CHANGES,
                "cached": {"plan-0": "patched", "plan-2": "created", "plan-3": "taken"},
            },
        ),
    ],
)
async def test_a_client_lists_watches_applies_and_patches(
    cluster: EmbeddedCluster, tmp_path: Path, script: str, more: dict[str, Any]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    told = await _output(sys.executable, str(SCRIPTS / script), str(kubeconfig))
    assert json.loads(told) == STORY | more
    async with Client(cluster) as client:
        _, found = await client.request("GET", CONFIG_MAPS, labelSelector="app=story")
        _, worker = await client.request("GET", "/api/v1/namespaces/default/pods/worker")
    assert {one["metadata"]["name"]: one["data"] for one in found["items"]} == {
        "plan-0": {"step": "patched"},
        "plan-2": {"step": "created"},
        "plan-3": {"step": "taken"},
    }
    assert worker["status"]["phase"] == "Running"


async def test_kopf_runs_an_operator_with_handlers_finalizers_and_status(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    async with Client(cluster) as client:
        await client.request(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _open_definition()
        )
        # One Task is there before the operator, one comes while it runs.
        await client.request("POST", TASKS, task("early", replicas=2))
        process = await asyncio.create_subprocess_exec(
            *with_parent.command("kopf", "run", "--standalone", "--namespace", "default"),
            str(SCRIPTS / "with_kopf.py"),
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        log = asyncio.create_task(process.stderr.read())
        try:
            early = await _eventually(client, f"{TASKS}/early", _shown(2))
            await client.request("POST", TASKS, task("late", replicas=1))
            await _eventually(client, f"{TASKS}/late", _shown(1))
            await client.request(
                "PATCH",
                f"{TASKS}/late",
                {"spec": {"replicas": 5}},
                "application/merge-patch+json",
            )
            late = await _eventually(client, f"{TASKS}/late", _shown(5))
            _, maps = await client.request("GET", CONFIG_MAPS)
            await client.request("DELETE", f"{TASKS}/early")
            await _eventually(client, f"{TASKS}/early", lambda code, _: code == 404)
            await _eventually(client, f"{CONFIG_MAPS}/early-shown", lambda code, _: code == 404)
        finally:
            if process.returncode is None:
                process.terminate()
            written = (await log).decode()
            code = await process.wait()
    assert code == 0, written
    assert "Traceback" not in written
    assert early["metadata"]["finalizers"] == late["metadata"]["finalizers"]
    assert late["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    shown = {one["metadata"]["name"]: one for one in maps["items"]}
    assert {name: shown[name]["data"] for name in ("early-shown", "late-shown")} == {
        "early-shown": {"replicas": "2"},
        "late-shown": {"replicas": "5"},
    }
    owner = shown["late-shown"]["metadata"]["ownerReferences"][0]
    assert (owner["name"], owner["uid"]) == ("late", late["metadata"]["uid"])


def _open_definition() -> dict[str, Any]:
    """kopf keeps what handlers return in a status that the definition must let through."""
    crd = definition()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    return crd


def _shown(replicas: int) -> Callable[[int, dict[str, Any]], bool]:
    """A handler has told the Task's status so many replicas."""

    def told(code: int, obj: dict[str, Any]) -> bool:
        return code == 200 and obj.get("status", {}).get("show", {}).get("replicas") == replicas

    return told


async def _eventually(
    client: Client, path: str, holds: Callable[[int, dict[str, Any]], bool]
) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            code, obj = await client.request("GET", path)
            if holds(code, obj):
                return obj
            await asyncio.sleep(0.1)


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        told, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    return told.decode()
