"""Gangs on a real API server, in its version of PodGroups: v1alpha2 in 1.36, v1beta1 in 1.37.

A group that goes as a whole holds the only node; a gang of higher priority takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import PODS, PREEMPTIONS, Resource
from reprieve.scenarios.model import NodeSpec
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import group_plane, on_plane
from tests.reliability.stand import PRIORITY_CLASSES

_NAMESPACE: Final = "default"
_NODES: Final = (NodeSpec("node-0", {"cpu": "4", "memory": "16Gi", "pods": "20"}),)
_SCHEDULER: Final = "reprieve-scheduler"
_CONDITIONS: Final = {"v1alpha2": "PodGroupScheduled", "v1beta1": "PodGroupInitiallyScheduled"}
_PATIENCE_S: Final = 120

Object = dict[str, Any]


def _gang(version: str, name: str, priority: str) -> list[tuple[Resource, Object]]:
    """Return a group that goes as a whole, and its two pods of 2 cpus."""
    groups = Resource("scheduling.k8s.io", version, "podgroups", "PodGroup")
    group = {
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "disruptionMode": "PodGroup" if version == "v1alpha2" else {"all": {}},
            "priorityClassName": priority,
        },
    }
    pods = [
        {
            "metadata": {"name": f"{name}-{number}", "namespace": _NAMESPACE},
            "spec": {
                "schedulerName": _SCHEDULER,
                "priorityClassName": priority,
                "terminationGracePeriodSeconds": 1,
                "schedulingGroup": {"podGroupName": name},
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/main:1",
                        "resources": {"requests": {"cpu": "2"}},
                    }
                ],
            },
        }
        for number in range(2)
    ]
    return [(groups, group), *((PODS, pod) for pod in pods)]


async def _until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"{what} never held")


async def _bound(client: Client) -> set[str]:
    page = await client.list(PODS, dict, namespace=_NAMESPACE)
    return {pod["metadata"]["name"] for pod in page.items if pod["spec"].get("nodeName")}


@pytest.mark.slow
async def test_a_gang_takes_the_node_of_a_group_that_goes_as_a_whole(
    with_alpha_pod_groups: Binaries, tmp_path: Path
) -> None:
    version = "v1beta1" if with_alpha_pod_groups.release >= (1, 37) else "v1alpha2"
    with group_plane(with_alpha_pod_groups, tmp_path) as plane:
        flags = ("--controllers", "scheduling", "--scheduler-name", _SCHEDULER)
        async with on_plane(plane, tmp_path, _NODES, *flags) as stage:
            connection = await load_connection(str(tmp_path / "kubeconfig"))
            client = connect(connection, SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            try:
                for name, value in (("low", 1_000), ("high", 100_000)):
                    priority = {"metadata": {"name": name}, "value": value}
                    await client.create(PRIORITY_CLASSES, priority, dict)
                for name in ("low", "high"):
                    for resource, obj in _gang(version, name, name):
                        await client.create(resource, obj, dict)
                    members = {f"{name}-0", f"{name}-1"}

                    async def placed(members: set[str] = members) -> bool:
                        return await _bound(client) == members

                    await _until(f"{name} is on the node, and nobody else", placed)
                groups = Resource("scheduling.k8s.io", version, "podgroups", "PodGroup")
                group: Object = await client.get(groups, _NAMESPACE, "high", dict)
                (record,) = (await client.list(PREEMPTIONS, dict)).items
            finally:
                await operator.stop()
                await client.close()
    conditions = {each["type"]: each["status"] for each in group["status"]["conditions"]}
    assert conditions[_CONDITIONS[version]] == "True", conditions
    assert {each["root"]["name"] for each in record["spec"]["victims"]} == {"low-0", "low-1"}
    assert record["spec"]["preemptor"]["name"] == "high"
