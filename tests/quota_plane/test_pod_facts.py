"""LimitRanges and the overhead of runtime classes count, and so do their changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from tests.quota_plane.site import NAMESPACE, Object, Site, job, site
from tests.quota_plane.test_jobs import base

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Object = {
    "metadata": {
        "name": "runtimeclasses.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
    },
    "spec": {
        "group": "node.k8s.io",
        "scope": "Cluster",
        "names": {"plural": "runtimeclasses", "kind": "RuntimeClass", "singular": "runtimeclass"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": ANYTHING},
            }
        ],
    },
}


def limit_range(**item: Any) -> Object:
    limits = [{"type": "Container", **item}]
    metadata = {"name": "bounds", "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": {"limits": limits}}


def runtime_class(cpu: str) -> Object:
    return {
        "metadata": {"name": "sandboxed"},
        "handler": "sandboxed",
        "overhead": {"podFixed": {"cpu": cpu}},
    }


def without_requests(name: str) -> Object:
    made = job(name, pods=2)
    del made["spec"]["template"]["spec"]["containers"][0]["resources"]
    return made


async def usage(cluster: Site, name: str) -> str:
    """Return what the Workload of a job holds, empty while it waits."""
    found = (await cluster.workloads()).get(name) or {}
    admission = (found.get("status") or {}).get("admission") or {}
    held = [each["resourceUsage"]["cpu"] for each in admission.get("podSetAssignments") or ()]
    return ",".join(held)


async def reason(cluster: Site, name: str) -> str:
    return (await cluster.conditions(name)).get("QuotaReserved", ("", "", ""))[2]


async def test_a_limit_range_gives_requests_and_refuses_others(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4)) as cluster:
        client = cluster.client
        bounds = limit_range(defaultRequest={"cpu": "1500m"}, max={"cpu": "2"})
        await client.create(LIMIT_RANGES, bounds, dict)
        await cluster.create(without_requests("filled"))

        async def filled() -> bool:
            return await usage(cluster, "filled") == "3"

        await cluster.until("the default counts", filled, 60)
        tall = job("tall", pods=1, cpu="3")
        tall["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "3"}
        await cluster.create(tall)

        async def refused() -> bool:
            return await reason(cluster, "tall") == (
                "resources didn't satisfy LimitRange constraints: "
                "spec.podSets[0].template.spec.containers[0]: "
                'Invalid value: ["cpu"]: requests must not be above the limitRange max'
            )

        await cluster.until("what is above the bound is refused", refused, 60)
        await cluster.create(job("wide", pods=1, cpu="2"))

        async def waits() -> bool:
            return "1 more needed" in await reason(cluster, "wide")

        await cluster.until("there is no room", waits, 60)
        # Without the LimitRange the next one is given nothing, and the tall one is considered.
        await client.delete(LIMIT_RANGES, NAMESPACE, "bounds")

        async def considered() -> bool:
            return "2 more needed" in await reason(cluster, "tall")

        await cluster.until("the tall one is considered", considered, 60)
        assert await usage(cluster, "filled") == "3"


async def test_a_limit_counts_before_the_default_request_of_a_limit_range(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4)) as cluster:
        await cluster.client.create(LIMIT_RANGES, limit_range(defaultRequest={"cpu": "1"}), dict)
        limited = job("limited", pods=4)
        container = limited["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"limits": {"cpu": "3"}}
        await cluster.create(limited)

        async def refused() -> bool:
            return "request (12) > maximum capacity (4)" in await reason(cluster, "limited")

        await cluster.until("four pods of three are twelve", refused, 60)
        assert await usage(cluster, "limited") == ""


async def test_the_overhead_of_a_runtime_class_counts_for_each_pod(tmp_path: Path) -> None:
    async with site(tmp_path, start=False) as cluster:
        client = cluster.client
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION, dict)
        await client.create(RUNTIME_CLASSES, runtime_class("1500m"), dict)
        await cluster.create(*base(4))
        await cluster.start()
        boxed = job("boxed", pods=2)
        boxed["spec"]["template"]["spec"]["runtimeClassName"] = "sandboxed"
        await cluster.create(boxed)

        async def waits() -> bool:
            return "request (5) > maximum capacity (4)" in await reason(cluster, "boxed")

        await cluster.until("five cpus are too many", waits, 60)
        await client.replace(
            RUNTIME_CLASSES,
            {**await client.get(RUNTIME_CLASSES, "", "sandboxed", dict), **change("500m")},
            dict,
        )

        async def admitted() -> bool:
            return await usage(cluster, "boxed") == "3"

        await cluster.until("three are not", admitted, 60)


def change(cpu: str) -> Object:
    return {"overhead": runtime_class(cpu)["overhead"]}
