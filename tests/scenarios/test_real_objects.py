"""The machines' store interface over the client, against the embedded server's HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.machines.objects import AlreadyThere, Change, Changed, ChangeType, Gone, Refused
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.scenarios.real import KubeObjects

GADGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {
            "kind": "Gadget",
            "listKind": "GadgetList",
            "plural": "gadgets",
            "singular": "gadget",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
async def objects(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[KubeObjects]:
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    clock = SystemClock()
    client = connect(await load_connection(str(tmp_path / "kubeconfig")), clock)
    objects = KubeObjects(client, clock)
    await objects.refresh()
    yield objects
    await client.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


@contextlib.asynccontextmanager
async def following(objects: KubeObjects, *resources: str) -> AsyncIterator[list[str]]:
    """Collect `TYPE name` of the changes of these resources; none means all."""
    seen: list[str] = []

    async def follow() -> None:
        stream = cast("AsyncGenerator[Change]", objects.changes(resources or None))
        async with contextlib.aclosing(stream) as changes:
            async for change in changes:
                seen.append(_line(change))

    task = asyncio.create_task(follow())
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _line(change: Change) -> str:
    name = "" if change.type is ChangeType.SYNCED else change.object["metadata"]["name"]
    return f"{change.type} {name}".strip()


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async def wait() -> None:
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)

    await asyncio.wait_for(wait(), 60)


async def test_existing_objects_come_first_then_the_mark_then_each_change(
    objects: KubeObjects,
) -> None:
    await objects.create("configmaps", config_map("old"))
    async with following(objects, "configmaps") as seen:
        await until(lambda: "SYNCED" in seen)
        stored = await objects.create("configmaps", config_map("new"))
        await objects.update("configmaps", {**stored, "data": {"a": "b"}})
        await objects.delete("configmaps", "default", "new")
        await until(lambda: "DELETED new" in seen)

    assert seen == ["ADDED old", "SYNCED", "ADDED new", "MODIFIED new", "DELETED new"]


async def test_after_a_410_each_missed_change_is_seen_once(
    objects: KubeObjects, cluster: EmbeddedCluster
) -> None:
    for name in ("kept", "gone"):
        await objects.create("configmaps", config_map(name))
    async with following(objects, "configmaps") as seen:
        await until(lambda: "SYNCED" in seen)
        cluster.faults.configure(user="admin", seed=1, expire_watch=1.0, drop_watch=1.0)
        await objects.delete("configmaps", "default", "gone")
        await objects.create("configmaps", config_map("new"))
        await until(lambda: "expire_watch" in cluster.faults.counts)
        cluster.faults.clear()
        await until(lambda: "ADDED new" in seen and "DELETED gone" in seen)

    assert sorted(seen) == ["ADDED gone", "ADDED kept", "ADDED new", "DELETED gone", "SYNCED"]


async def test_a_kind_that_is_served_later_is_followed_from_then_on(objects: KubeObjects) -> None:
    async with following(objects) as seen:
        await until(lambda: "SYNCED" in seen)
        assert objects.resource_of("example.org/v1", "Gadget") is None
        await objects.create("customresourcedefinitions.apiextensions.k8s.io", GADGETS)
        await until(lambda: objects.resource_of("example.org/v1", "Gadget") is not None)
        gadget = {
            "apiVersion": "example.org/v1",
            "kind": "Gadget",
            "metadata": {"name": "one", "namespace": "default"},
        }
        await objects.create("gadgets.example.org", gadget)
        await until(lambda: "ADDED one" in seen)


async def test_refusals_have_the_names_that_the_machines_know(objects: KubeObjects) -> None:
    stored = await objects.create("configmaps", config_map("one"))
    newer = await objects.update("configmaps", {**stored, "data": {"a": "b"}})

    with pytest.raises(AlreadyThere):
        await objects.create("configmaps", config_map("one"))
    with pytest.raises(Changed):
        await objects.update("configmaps", stored)
    with pytest.raises(Changed):
        await objects.delete("configmaps", "default", "one", uid="another")
    with pytest.raises(Gone):
        await objects.update(
            "configmaps", {**newer, "metadata": {**newer["metadata"], "name": "x"}}
        )
    with pytest.raises(Refused):
        await objects.create("nothings.example.org", config_map("one"))
    assert await objects.get("configmaps", "default", "none") is None
    await objects.delete("configmaps", "default", "none")


async def test_the_machines_run_a_job_through_the_client(objects: KubeObjects) -> None:
    nodes = [NodeSpec.of("gpu-0", {"amd.com/gpu": 4})]
    machines = Machines(objects, SystemClock(), nodes, more=[with_scheduler])
    await machines.start()
    try:
        await objects.create(
            "jobs.batch",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "training", "namespace": "default"},
                "spec": {
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [
                                {
                                    "name": "main",
                                    "image": "main:1",
                                    "resources": {"limits": {"amd.com/gpu": "3"}},
                                }
                            ],
                        }
                    }
                },
            },
        )

        def used() -> list[str]:
            return [gpu.pod[:9] for gpu in machines.exporter.gpus()]

        await until(lambda: used() == ["training-", "training-", "training-", ""])
        await objects.delete("jobs.batch", "default", "training")
        await until(lambda: used() == ["", "", "", ""])
    finally:
        await machines.stop()
