"""Volumes and devices are written before the pod is bound, and two pods never get the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.execution.writes.reserve import VOLUME_CLAIMS, VOLUMES
from reprieve.kube.resource import DEVICE_CLAIMS, NODES, Resource
from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site

_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
_DEVICE_CLASSES = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
_DRIVER = "gpu.example.com"
_RESOURCE = "example.com/gpu"


async def _storage_class(cluster: Site, provisioner: str) -> None:
    await cluster.client.create(
        _CLASSES,
        {
            "metadata": {"name": "late"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        dict,
    )


async def _claim(cluster: Site, name: str) -> None:
    await cluster.client.create(
        VOLUME_CLAIMS,
        {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "storageClassName": "late",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        dict,
    )


def _with_volume(name: str, claim: str) -> Object:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return pod(name, 1, volumes=volumes)


async def test_a_claim_is_provisioned_for_the_node_of_its_pod(tmp_path: Path) -> None:
    async with site([node("node-0")], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _storage_class(cluster, "disks.example.com")
        await _claim(cluster, "data")
        await cluster.create(_with_volume("p", "data"))
        await cluster.until_placed({"p"})
        claim: Any = await cluster.client.get(VOLUME_CLAIMS, NAMESPACE, "data", dict)
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node-0"
        assert claim["spec"]["volumeName"]


async def test_local_volumes_take_their_pods_to_different_nodes(tmp_path: Path) -> None:
    nodes = [node("node-0"), node("node-1")]
    async with site(nodes, tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _storage_class(cluster, "kubernetes.io/no-provisioner")
        for each in ("node-0", "node-1"):
            on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [each]}
            await cluster.client.create(
                VOLUMES,
                {
                    "metadata": {"name": f"disk-{each}"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "late",
                        "local": {"path": "/disk"},
                        "nodeAffinity": {
                            "required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}
                        },
                    },
                },
                dict,
            )
        for each in ("a", "b"):
            await _claim(cluster, each)
        await cluster.create(_with_volume("a", "a"), _with_volume("b", "b"))
        await cluster.until_placed({"a", "b"})
        placed = await cluster.placed()
        for each in ("a", "b"):
            claim: Any = await cluster.client.get(VOLUME_CLAIMS, NAMESPACE, each, dict)
            assert claim["spec"]["volumeName"] == f"disk-{placed[each]}"
        assert set(placed.values()) == {"node-0", "node-1"}


async def _device_class(cluster: Site, **more: str) -> None:
    selectors = [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]
    body = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors, **more}}
    await cluster.client.create(_DEVICE_CLASSES, body, dict)


async def _devices(cluster: Site, name: str, count: int) -> None:
    spec = {
        "driver": _DRIVER,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{i}"} for i in range(count)],
    }
    body = {"metadata": {"name": f"{name}-gpus"}, "spec": spec}
    await cluster.client.create(_SLICES, body, dict)


async def _device_claim(cluster: Site, name: str) -> Any:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }
    return await cluster.client.create(DEVICE_CLAIMS, body, dict)


def _with_device(name: str, claim: str, cpu: str = "0") -> Object:
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": cpu}},
    }
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return pod(name, 1, resourceClaims=claims, containers=[container])


async def test_devices_are_allocated_before_the_pod_is_bound_and_never_twice(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 8)], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _device_class(cluster)
        await _devices(cluster, "node-0", 2)
        for i in range(3):
            await _device_claim(cluster, f"claim-{i}")
            await cluster.create(_with_device(f"p-{i}", f"claim-{i}"))

        async def two_placed() -> bool:
            return len(await cluster.placed()) == 2

        await cluster.until("two pods placed", two_placed)
        taken = []
        for name in await cluster.placed():
            claim: Any = await cluster.client.get(
                DEVICE_CLAIMS, NAMESPACE, f"claim-{name[-1]}", dict
            )
            status = claim["status"]
            taken += [each["device"] for each in status["allocation"]["devices"]["results"]]
            assert [user["name"] for user in status["reservedFor"]] == [name]
        assert sorted(taken) == ["gpu-0", "gpu-1"]

        async def refused() -> bool:
            (left,) = {f"p-{i}" for i in range(3)} - (await cluster.placed()).keys()
            conditions = (await cluster.pods())[left]["status"].get("conditions", ())
            return any("cannot allocate all claims" in each["message"] for each in conditions)

        await cluster.until("the third is refused", refused)
        (waiting,) = {f"p-{i}" for i in range(3)} - (await cluster.placed()).keys()
        first = sorted(await cluster.placed())[0]
        await cluster.end(first)
        await cluster.until_placed({waiting})


async def test_an_unused_claim_is_deallocated_when_its_devices_are_where_the_pod_cannot_go(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 1), node("node-1", 4)], tmp_path, kubelet=True) as cluster:
        await _device_class(cluster)
        for each in ("node-0", "node-1"):
            await _devices(cluster, each, 1)
        claim = await _device_claim(cluster, "claim")
        result = {"request": "gpu", "driver": _DRIVER, "pool": "node-0", "device": "gpu-0"}
        here = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
        allocation = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        }
        left_over = {**claim, "status": {"allocation": allocation}}
        await cluster.client.update_status(DEVICE_CLAIMS, left_over, dict)
        await cluster.create(_with_device("p", "claim", cpu="2"))
        await cluster.operator()
        await cluster.until_placed({"p"})
        assert await cluster.placed() == {"p": "node-1"}
        now: Any = await cluster.client.get(DEVICE_CLAIMS, NAMESPACE, "claim", dict)
        (device,) = now["status"]["allocation"]["devices"]["results"]
        assert (device["pool"], device["device"]) == ("node-1", "gpu-0")
        assert [user["name"] for user in now["status"]["reservedFor"]] == ["p"]


def _asking(name: str, cpu: str) -> Object:
    """Return a pod that asks for a device as an extended resource."""
    resources = {"requests": {"cpu": cpu}, "limits": {_RESOURCE: "1"}}
    container = {"name": "c", "image": "registry.example/app:1", "resources": resources}
    return pod(name, 1, containers=[container])


async def _until_refused(cluster: Site, name: str, text: str) -> None:
    async def refused() -> bool:
        conditions = (await cluster.pods())[name]["status"].get("conditions", ())
        return any(text in each["message"] for each in conditions)

    await cluster.until(f"{name} is refused", refused)


async def test_who_asks_for_devices_as_a_resource_is_placed_once_a_class_stands_for_it(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 8)], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _devices(cluster, "node-0", 1)
        await cluster.create(_asking("p", "1"))
        await _until_refused(cluster, "p", f"Insufficient {_RESOURCE}")
        await _device_class(cluster, extendedResourceName=_RESOURCE)
        await cluster.until_placed({"p"})


async def test_who_asks_for_devices_as_a_resource_is_placed_on_a_node_that_comes(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 1)], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _device_class(cluster, extendedResourceName=_RESOURCE)
        for each in ("node-0", "node-1"):
            await _devices(cluster, each, 1)
        await cluster.create(_asking("p", "2"))
        await _until_refused(cluster, "p", "Insufficient cpu")
        room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": "node-1"}
        comes = {"metadata": {"name": "node-1", "labels": labels}, "status": {"allocatable": room}}
        await cluster.client.create(NODES, comes, dict)
        await cluster.until_placed({"p"})
        assert await cluster.placed() == {"p": "node-1"}


async def test_who_asks_for_devices_as_a_resource_gets_those_of_a_pod_that_ends(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 8)], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await _device_class(cluster, extendedResourceName=_RESOURCE)
        await _devices(cluster, "node-0", 1)
        await cluster.create(_asking("first", "1"))
        await cluster.until_placed({"first"})
        await cluster.create(_asking("second", "1"))
        await _until_refused(cluster, "second", "cannot allocate all claims")
        await cluster.end("first")
        await cluster.until_placed({"second"})
