"""Volumes and devices are written before the pod is bound, and two pods never get the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.execution.reserve import DEVICE_CLAIMS, VOLUME_CLAIMS, VOLUMES
from reprieve.kube.resource import Resource
from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site

_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
_DEVICE_CLASSES = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
_DRIVER = "gpu.example.com"


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


async def test_devices_are_allocated_before_the_pod_is_bound_and_never_twice(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 8)], tmp_path, kubelet=True) as cluster:
        await cluster.operator()
        await cluster.client.create(
            _DEVICE_CLASSES,
            {
                "metadata": {"name": "gpu"},
                "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
            },
            dict,
        )
        await cluster.client.create(
            _SLICES,
            {
                "metadata": {"name": "node-0-gpus"},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": "node-0",
                    "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{i}"} for i in range(2)],
                },
            },
            dict,
        )
        for i in range(3):
            await cluster.client.create(
                DEVICE_CLAIMS,
                {
                    "metadata": {"name": f"claim-{i}", "namespace": NAMESPACE},
                    "spec": {
                        "devices": {
                            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
                        }
                    },
                },
                dict,
            )
            claims = [{"name": "gpu", "resourceClaimName": f"claim-{i}"}]
            uses = [
                {
                    "name": "c",
                    "image": "registry.example/app:1",
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ]
            await cluster.create(pod(f"p-{i}", resourceClaims=claims, containers=uses))

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
