"""Devices of claims count in quota, as what their classes are mapped to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve.api.devices import ResourceClaimTemplate
from reprieve.api.kueue import PodSet
from reprieve.engine.quota.assigning.request_rules import RequestRules
from reprieve.intake.quota_devices import Uncountable, claimed_devices
from reprieve.kube.resource import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    DEVICE_TEMPLATES,
    PODS,
)
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import NAMESPACE, Object, Site, job, site
from tests.quota_plane.test_jobs import base

GPU = "example.com/gpu"
CLASSES = {"gpu.example.com": GPU, "large.example.com": GPU, "nic.example.com": "example.com/nic"}


def exactly(device_class: str, **facts: Any) -> Object:
    return {"name": "r", "exactly": {"deviceClassName": device_class, **facts}}


def template(*requests: Object, name: str = "t") -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": {"spec": {"devices": {"requests": list(requests)}}}}


def counted(*requests: Object, entries: list[Object] | None = None) -> dict[str, int]:
    entries = entries or [{"name": "g", "resourceClaimTemplateName": "t"}]
    pod_set = msgspec.convert(
        {"name": "main", "count": 3, "template": {"spec": {"resourceClaims": entries}}}, PodSet
    )
    templates = {"t": msgspec.convert(template(*requests), ResourceClaimTemplate)}
    return claimed_devices(pod_set, templates, CLASSES)


def test_each_request_of_each_template_counts_as_its_class_is_mapped() -> None:
    twice = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b")]
    requests = (
        exactly("gpu.example.com", count=2),
        exactly("large.example.com"),
        exactly("nic.example.com", allocationMode="ExactCount", count=1),
        exactly("gpu.example.com", adminAccess=True, allocationMode="All"),
    )
    assert counted(*requests) == {GPU: 3, "example.com/nic": 1}
    assert counted(*requests, entries=twice) == {GPU: 6, "example.com/nic": 2}
    assert counted(exactly("gpu.example.com", count=2**63 - 1), exactly("large.example.com")) == {
        GPU: 2**63 - 1
    }


FIRST = "resourceClaims[0].devices.requests[0]"


@pytest.mark.parametrize(
    ("request_", "entry", "text"),
    [
        (
            exactly("gpu.example.com", allocationMode="All"),
            {},
            (
                f'{FIRST}.exactly.allocationMode: Invalid value: "All": ResourceClaimTemplate t: '
                "AllocationMode 'All' is not supported"
            ),
        ),
        (
            exactly("gpu.example.com", allocationMode="Some"),
            {},
            (
                f'{FIRST}.exactly.allocationMode: Invalid value: "Some": ResourceClaimTemplate t: '
                "unsupported allocation mode: Some"
            ),
        ),
        (
            {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com"}]},
            {},
            (
                f"{FIRST}: Invalid value: null: ResourceClaimTemplate t: FirstAvailable device "
                "selection is not supported"
            ),
        ),
        (
            {"name": "r"},
            {},
            (
                f"{FIRST}: Invalid value: null: ResourceClaimTemplate t: Exactly must be set if "
                "FirstAvailable is nil"
            ),
        ),
        (
            exactly("other.example.com"),
            {},
            (
                "resourceClaims[0].resourceClaimTemplateName.deviceClassName: Not found: "
                '"other.example.com"'
            ),
        ),
        (
            exactly("gpu.example.com"),
            {"resourceClaimTemplateName": "u"},
            (
                "resourceClaims[0]: Internal error: failed to get claim spec for "
                "ResourceClaimTemplate u in podset main: "
                'ResourceClaimTemplate.resource.k8s.io "u" not found'
            ),
        ),
        (
            exactly("gpu.example.com"),
            {"resourceClaimTemplateName": None, "resourceClaimName": "c"},
            "DynamicResourceAllocation feature does not support use of resource claims",
        ),
    ],
    ids=["all", "a mode", "alternatives", "nothing", "unmapped", "no template", "a named claim"],
)
def test_what_cannot_be_counted_is_told_in_the_words_of_the_reference(
    request_: Object, entry: Object, text: str
) -> None:
    given = {"name": "g", "resourceClaimTemplateName": "t", **entry}
    with pytest.raises(Uncountable) as refused:
        counted(request_, entries=[given])
    assert str(refused.value) == text
    assert refused.value.whole is text.startswith("Dynamic")


DEVICE_CLASS: Object = {
    "metadata": {"name": "gpu.example.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
}
SLICE: Object = {
    "metadata": {"name": "node-0"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(8)],
    },
}


def claiming(name: str, by: Object, pods: int = 1) -> Object:
    made = job(name, pods=pods, cpu="0")
    made["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "g", **by}]
    return made


async def reason(cluster: Site, name: str) -> str:
    return (await cluster.conditions(name)).get("QuotaReserved", ("", "", ""))[2]


async def test_devices_of_claims_are_held_in_quota_and_wait_for_it(tmp_path: Path) -> None:
    objects = base(1)
    (queue,) = (each for each in objects if each["kind"] == "ClusterQueue")
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": "4"})
    options = replace(QuotaOptions(), rules=RequestRules(device_classes=CLASSES))
    async with site(tmp_path, *objects, options=options) as cluster:
        client = cluster.client
        by_template = {"resourceClaimTemplateName": "t"}
        await cluster.create(claiming("early", by_template, pods=3))

        async def lacks_template() -> bool:
            return (await reason(cluster, "early")).startswith(
                "spec.podSets[0].template.spec.resourceClaims[0]: Internal error"
            )

        await cluster.until("it is told that the template is missing", lacks_template, 60)
        await client.create(DEVICE_CLASSES, DEVICE_CLASS, dict)
        await client.create(DEVICE_SLICES, SLICE, dict)
        await client.create(DEVICE_TEMPLATES, template(exactly("gpu.example.com")), dict)
        await cluster.until_admitted("early")
        (assigned,) = (await cluster.workloads())["early"]["status"]["admission"][
            "podSetAssignments"
        ]
        assert assigned["resourceUsage"][GPU] == "3"

        await cluster.create(claiming("wide", by_template, pods=2))

        async def waits() -> bool:
            return f"insufficient unused quota for {GPU}" in await reason(cluster, "wide")

        await cluster.until("there is no quota for two more", waits, 60)
        await cluster.create(claiming("named", {"resourceClaimName": "c"}))

        async def refused() -> bool:
            return await reason(cluster, "named") == (
                "DynamicResourceAllocation feature does not support use of resource claims"
            )

        await cluster.until("a named claim is refused", refused, 60)
        said = (await cluster.conditions("named"))["QuotaReserved"]
        assert said[:2] == ("False", "Misconfigured")


@pytest.mark.parametrize("shape", [{"count": 3}, {"allocationMode": "All"}], ids=["more", "all"])
async def test_a_template_that_is_replaced_gives_no_pod_more_devices(
    shape: Object, tmp_path: Path
) -> None:
    """Its name stays, and the pods that a controller makes have claims of the new one."""
    objects = base(1)
    (queue,) = (each for each in objects if each["kind"] == "ClusterQueue")
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": "2"})
    options = replace(QuotaOptions(), rules=RequestRules(device_classes=CLASSES))
    async with site(tmp_path, *objects, options=options) as cluster:
        client = cluster.client
        await client.create(DEVICE_CLASSES, DEVICE_CLASS, dict)
        await client.create(DEVICE_SLICES, SLICE, dict)
        await client.create(DEVICE_TEMPLATES, template(exactly("gpu.example.com")), dict)
        for name in ("greedy", "fair"):
            await cluster.create(claiming(name, {"resourceClaimTemplateName": "t"}))
        await cluster.until_admitted("greedy", "fair")
        (fair,), (pod,) = await cluster.pods_of("fair"), await cluster.pods_of("greedy")
        await client.delete(DEVICE_TEMPLATES, NAMESPACE, "t")
        more = template(exactly("gpu.example.com", **shape))
        await client.create(DEVICE_TEMPLATES, more, dict)
        await asyncio.sleep(150)
        # Its claim is that of before, whatever the template is now.
        assert await cluster.admitted() == {"greedy", "fair"}
        await client.delete(PODS, NAMESPACE, pod["metadata"]["name"])

        async def is_queued() -> bool:
            return await cluster.admitted() == {"fair"} == await cluster.running()

        await cluster.until("the one with more devices is queued", is_queued, 200)
        await asyncio.sleep(200)
        assert await is_queued()
        (still,) = await cluster.pods_of("fair")
        assert still["metadata"]["uid"] == fair["metadata"]["uid"]
        claims = (await client.list(DEVICE_CLAIMS, dict, namespace=NAMESPACE)).items
        assert len(claims) == 1
