"""Claims for devices and volumes: made from templates, bound, returned, deleted with their pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubelocal.machines.objects import Object
from kubelocal.tests.machines.cluster import pod, sim
from kubelocal.tests.machines.test_embedded import Embedded

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
GROUPS = "podgroups.scheduling.k8s.io"
VOLUME_CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
PROTECTION = "resource.kubernetes.io/delete-protection"
GPU = {
    "name": "gpu",
    "resourceClaimTemplateName": "one-gpu",
}


@pytest.fixture
async def embedded() -> AsyncIterator[Embedded]:
    embedded = Embedded()
    async with embedded.cluster:
        await embedded.machines.start()
        await embedded.wait()
        yield embedded
        await embedded.machines.stop()


def obj(api_version: str, kind: str, name: str, **more: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", **more.pop("metadata", {})},
        **more,
    }


def claim_template(name: str = "one-gpu") -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return obj(
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        name,
        spec={"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [request]}}},
    )


def storage_class(name: str, **more: Any) -> Object:
    made = obj("storage.k8s.io/v1", "StorageClass", name, provisioner="csi.example.com", **more)
    del made["metadata"]["namespace"]
    return made


def volume(name: str, size: str, **spec: Any) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "hostPath": {"path": "/x"},
        **spec,
    }
    made = obj("v1", "PersistentVolume", name, spec=spec)
    del made["metadata"]["namespace"]
    return made


def volume_claim(name: str, size: str = "1Gi", **spec: Any) -> Object:
    requests = {"resources": {"requests": {"storage": size}}}
    spec = {"accessModes": ["ReadWriteOnce"], **requests, **spec}
    return obj("v1", "PersistentVolumeClaim", name, spec=spec)


async def state(embedded: Embedded, resource: str, name: str) -> Object:
    found = await embedded.objects.get(resource, "default", name)
    assert found is not None
    return found


async def test_a_claim_is_made_from_its_template_and_goes_with_the_pod(embedded: Embedded) -> None:
    await embedded.create(pod("worker", resourceClaims=[GPU]))
    await embedded.wait(1)
    assert list(embedded.machines.informer.all(CLAIMS)) == []
    await embedded.objects.create(TEMPLATES, claim_template())
    await embedded.wait(1)
    (claim,) = embedded.machines.informer.all(CLAIMS)
    assert claim["metadata"]["labels"] == {"a": "b"}
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    request = claim["spec"]["devices"]["requests"][0]["exactly"]
    assert request == {
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    worker = await state(embedded, "pods", "worker")
    name = claim["metadata"]["name"]
    assert worker["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
    await embedded.objects.delete("pods", "default", "worker", grace_seconds=0)
    await embedded.wait(5)
    assert list(embedded.machines.informer.all(CLAIMS)) == []


async def test_a_pod_that_has_ended_leaves_its_claims(embedded: Embedded) -> None:
    shared = obj("resource.k8s.io/v1", "ResourceClaim", "shared", **_spec_of(claim_template()))
    await embedded.objects.create(CLAIMS, shared)
    asked = [{"name": "gpu", "resourceClaimName": "shared"}]
    users = []
    for name, seconds in (("short", "5s"), ("long", "60s")):
        spec: dict[str, Any] = {"annotations": sim(run_time=seconds), "restartPolicy": "Never"}
        users.append(await embedded.create(pod(name, resourceClaims=asked, **spec)))
    claim = await state(embedded, CLAIMS, "shared")
    claim["status"] = {
        "allocation": {"devices": {}},
        "reservedFor": [
            {"resource": "pods", "name": u["metadata"]["name"], "uid": u["metadata"]["uid"]}
            for u in users
        ],
    }
    await embedded.objects.update(CLAIMS, claim, subresource="status")
    await embedded.wait(10)
    status = (await state(embedded, CLAIMS, "shared"))["status"]
    assert [user["name"] for user in status["reservedFor"]] == ["long"]
    assert status["allocation"] == {"devices": {}}
    await embedded.wait(60)
    assert (await state(embedded, CLAIMS, "shared"))["status"] == {}


async def test_a_protected_claim_goes_once_nobody_uses_it(embedded: Embedded) -> None:
    await embedded.objects.create(TEMPLATES, claim_template())
    user = await embedded.create(pod("worker", resourceClaims=[GPU]))
    await embedded.wait(1)
    (claim,) = embedded.machines.informer.all(CLAIMS)
    name = claim["metadata"]["name"]
    # As a scheduler does before it binds the pod.
    await embedded.objects.update(
        CLAIMS, {**claim, "metadata": {**claim["metadata"], "finalizers": [PROTECTION, "own/one"]}}
    )
    claim = await state(embedded, CLAIMS, name)
    reserved = {"resource": "pods", "name": "worker", "uid": user["metadata"]["uid"]}
    claim["status"] = {"allocation": {"devices": {}}, "reservedFor": [reserved]}
    await embedded.objects.update(CLAIMS, claim, subresource="status")
    await embedded.objects.delete(CLAIMS, "default", name)
    await embedded.wait(5)
    kept = await state(embedded, CLAIMS, name)
    assert kept["metadata"]["finalizers"] == [PROTECTION, "own/one"]
    await embedded.objects.delete("pods", "default", "worker", grace_seconds=0)
    await embedded.wait(5)
    left = await state(embedded, CLAIMS, name)
    assert (left["metadata"]["finalizers"], left["status"]) == (["own/one"], {})


async def test_a_namespace_with_claims_in_use_goes(embedded: Embedded) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await embedded.objects.create("namespaces", space)
    template, user = claim_template(), pod("worker", resourceClaims=[GPU])
    for one in (template, user):
        one["metadata"]["namespace"] = "team"
    await embedded.objects.create(TEMPLATES, template)
    user = await embedded.objects.create("pods", user)
    await embedded.wait(1)
    (claim,) = embedded.machines.informer.all(CLAIMS)
    metadata = {**claim["metadata"], "finalizers": [PROTECTION]}
    claim = await embedded.objects.update(CLAIMS, {**claim, "metadata": metadata})
    reserved = {"resource": "pods", "name": "worker", "uid": user["metadata"]["uid"]}
    claim["status"] = {"allocation": {"devices": {}}, "reservedFor": [reserved]}
    await embedded.objects.update(CLAIMS, claim, subresource="status")
    await embedded.objects.delete("namespaces", "", "team")
    await embedded.wait(60)
    assert await embedded.objects.get("namespaces", "", "team") is None


def _spec_of(template: Object) -> Object:
    return {"spec": template["spec"]["spec"]}


async def test_pods_of_a_group_share_the_claim_of_the_group(embedded: Embedded) -> None:
    await embedded.objects.create(TEMPLATES, claim_template())
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [GPU]}
    await embedded.objects.create(
        GROUPS, obj("scheduling.k8s.io/v1beta1", "PodGroup", "g", spec=spec)
    )
    for name in ("a", "b"):
        await embedded.create(
            pod(name, resourceClaims=[GPU], schedulingGroup={"podGroupName": "g"})
        )
    await embedded.wait(2)
    (claim,) = embedded.machines.informer.all(CLAIMS)
    expected = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    for resource, name in ((GROUPS, "g"), ("pods", "a"), ("pods", "b")):
        found = await state(embedded, resource, name)
        assert found["status"]["resourceClaimStatuses"] == expected


async def test_a_driver_offers_what_the_node_is_told_to_have(embedded: Embedded) -> None:
    async def told(devices: str) -> list[tuple[str, int, int]]:
        node = await state(embedded, "nodes", "gpu-0")
        node["metadata"]["annotations"] = sim(devices=devices)
        await embedded.objects.update("nodes", node)
        await embedded.wait(1)
        return [
            (one["spec"]["driver"], one["spec"]["pool"]["generation"], len(one["spec"]["devices"]))
            for one in embedded.machines.informer.all(SLICES)
        ]

    assert await told("gpu.example.com=4") == [("gpu.example.com", 1, 4)]
    assert await told("gpu.example.com=2, nic.example.com=1") == [
        ("gpu.example.com", 2, 2),
        ("nic.example.com", 1, 1),
    ]
    assert await told("gpu.example.com=many") == await told("gpu.example.com=2,nic.example.com=1")
    await embedded.objects.delete("nodes", "", "gpu-0")
    await embedded.wait(1)
    assert list(embedded.machines.informer.all(SLICES)) == []


async def test_a_claim_gets_the_smallest_volume_that_will_do(embedded: Embedded) -> None:
    for name, size in (("big", "10Gi"), ("small", "1Gi"), ("middle", "5Gi")):
        await embedded.objects.create(VOLUMES, volume(name, size))
    await embedded.objects.create(VOLUME_CLAIMS, volume_claim("data", "2Gi"))
    await embedded.wait(1)
    claim = await state(embedded, VOLUME_CLAIMS, "data")
    assert claim["spec"]["volumeName"] == "middle"
    assert claim["status"]["phase"] == "Bound"
    assert claim["status"]["capacity"] == {"storage": "5Gi"}
    assert claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    phases = {
        one["metadata"]["name"]: one["status"]["phase"]
        for one in embedded.machines.informer.all(VOLUMES)
    }
    assert phases == {"big": "Available", "small": "Available", "middle": "Bound"}
    await embedded.objects.delete(VOLUME_CLAIMS, "default", "data")
    await embedded.wait(1)
    assert (await state(embedded, VOLUMES, "middle"))["status"]["phase"] == "Released"


async def test_waiting_claims_are_bound_once_a_node_is_selected(embedded: Embedded) -> None:
    kind = "storageclasses.storage.k8s.io"
    marked = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    topology = [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["gpu-0"]}]}]
    later = storage_class(
        "later",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=topology,
        metadata=marked,
    )
    await embedded.objects.create(kind, later)
    await embedded.objects.create(kind, storage_class("now"))
    made = await embedded.objects.create(VOLUME_CLAIMS, volume_claim("a"))
    assert made["spec"]["storageClassName"] == "later"
    await embedded.objects.create(VOLUME_CLAIMS, volume_claim("b", storageClassName="now"))
    await embedded.wait(1)
    assert (await state(embedded, VOLUME_CLAIMS, "b"))["status"]["phase"] == "Bound"
    waiting = await state(embedded, VOLUME_CLAIMS, "a")
    assert waiting["status"]["phase"] == "Pending"
    waiting["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "gpu-0"}
    await embedded.objects.update(VOLUME_CLAIMS, waiting)
    await embedded.wait(1)
    bound = await state(embedded, VOLUME_CLAIMS, "a")
    assert bound["status"]["phase"] == "Bound"
    made = await state(embedded, VOLUMES, bound["spec"]["volumeName"])
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["gpu-0"]
    await embedded.objects.delete(VOLUME_CLAIMS, "default", "a")
    await embedded.wait(1)
    assert [one["spec"]["storageClassName"] for one in embedded.machines.informer.all(VOLUMES)] == [
        "now"
    ]


async def test_a_volume_that_the_scheduler_reserved_is_bound(embedded: Embedded) -> None:
    kind = "storageclasses.storage.k8s.io"
    local = storage_class("local", volumeBindingMode="WaitForFirstConsumer")
    await embedded.objects.create(kind, {**local, "provisioner": "kubernetes.io/no-provisioner"})
    await embedded.objects.create(VOLUME_CLAIMS, volume_claim("a", storageClassName="local"))
    await embedded.objects.create(VOLUMES, volume("disk", "2Gi", storageClassName="local"))
    await embedded.wait(1)
    assert (await state(embedded, VOLUME_CLAIMS, "a"))["status"]["phase"] == "Pending"
    disk = await state(embedded, VOLUMES, "disk")
    disk["spec"]["claimRef"] = {"namespace": "default", "name": "a"}
    await embedded.objects.update(VOLUMES, disk)
    await embedded.wait(1)
    assert (await state(embedded, VOLUME_CLAIMS, "a"))["spec"]["volumeName"] == "disk"
    assert (await state(embedded, VOLUMES, "disk"))["status"]["phase"] == "Bound"


async def test_ephemeral_volumes_have_claims_of_their_pods(embedded: Embedded) -> None:
    template = {"spec": volume_claim("x")["spec"], "metadata": {"labels": {"a": "b"}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    await embedded.create(pod("worker", volumes=[scratch]))
    await embedded.wait(1)
    claim = await state(embedded, VOLUME_CLAIMS, "worker-scratch")
    assert claim["metadata"]["labels"] == {"a": "b"}
    await embedded.objects.delete("pods", "default", "worker", grace_seconds=0)
    await embedded.wait(5)
    assert list(embedded.machines.informer.all(VOLUME_CLAIMS)) == []
