"""What a scheduler does for pods with claims: devices, reservations, bindings, and its words.

It takes the pods with the scheduler name `devices`. A pod is bound to the first node where all of
its claims are allocated, or have free devices of the class's driver; else its condition has the
words of kube-scheduler. Claims of pods that have ended are given back by the embedded cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from tests.idle.site import NAMESPACE, Object, Site
from tests.scraper.servers import serving

SCHEDULER = "devices"
CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
_API = "resource.k8s.io/v1"
_LOOK_S = 0.2


def device_class(name: str, extended: str = "") -> Object:
    """Return a class of the devices whose driver has its name."""
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    spec: Object = {"selectors": [selector]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def published(node: str, driver: str, count: int) -> Object:
    """Return the slice of a node with so many devices."""
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }


def requests(device_class_name: str, count: int = 1) -> Object:
    """Return the spec of a claim."""
    exactly = {
        "deviceClassName": device_class_name,
        "allocationMode": "ExactCount",
        "count": count,
    }
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def template(name: str, device_class_name: str, count: int = 1) -> Object:
    """Return a template of claims."""
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": requests(device_class_name, count)},
    }


def claim(name: str, device_class_name: str, count: int = 1) -> Object:
    """Return a claim of no pod."""
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": requests(device_class_name, count),
    }


def claiming(obj: Object, *, by_template: str = "", by_name: str = "") -> Object:
    """Return a pod, or an owner of pods, whose pods claim devices and ask for no GPU beside."""
    spec = obj["spec"].get("template", obj)["spec"]
    entry = {"name": "gpus"}
    if by_template:
        entry["resourceClaimTemplateName"] = by_template
    else:
        entry["resourceClaimName"] = by_name
    spec["resourceClaims"] = [entry]
    spec["schedulerName"] = SCHEDULER
    for container in spec["containers"]:
        container["resources"] = {"claims": [{"name": "gpus"}]}
    return obj


async def dcgm_page(site: Site, busy: Mapping[str, float]) -> str:
    """Return what dcgm-exporter serves of devices of claims; `busy`: percent by pod or its prefix.

    Each pod that has a claim reserved is told the device's use, with the claim beside it.
    """
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    for each in await site.all(CLAIMS):
        users = [u["name"] for u in (each.get("status") or {}).get("reservedFor", ())]
        for result in _results(each):
            values = [v for u in users for name, v in busy.items() if u.startswith(name)]
            for pod in users:
                labels = {
                    "gpu": result["device"].removeprefix("gpu-"),
                    "UUID": f"GPU-{result['pool']}-{result['device']}",
                    "Hostname": result["pool"],
                    "container": "work",
                    "dra_claim_name": each["metadata"]["name"],
                    "dra_device_name": result["device"],
                    "dra_driver_name": result["driver"],
                    "namespace": NAMESPACE,
                    "pod": pod,
                }
                inner = ",".join(f'{name}="{text}"' for name, text in labels.items())
                lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{inner}}} {max(values, default=0)}")
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def dcgm(site: Site, busy: Mapping[str, float]) -> AsyncIterator[str]:
    """Serve the page; give its URL."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=await dcgm_page(site, busy))

    async with serving(answer) as url:
        yield f"{url}/metrics"


@asynccontextmanager
async def scheduling(site: Site) -> AsyncIterator[None]:
    """Schedule pods with claims as long as the context lasts."""
    task = asyncio.create_task(_run(site))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _run(site: Site) -> None:
    while True:
        for pod in await site.all("pods", NAMESPACE):
            spec, phase = pod["spec"], pod.get("status", {}).get("phase", "Pending")
            waits = not spec.get("nodeName") and phase == "Pending"
            if spec.get("schedulerName") == SCHEDULER and waits:
                await _try(site, pod)
        await asyncio.sleep(_LOOK_S)


async def _try(site: Site, pod: Object) -> None:
    wanted = await _claims_of(site, pod)
    if wanted is None:
        return
    taken = {_id(result) for each in await site.all(CLAIMS) for result in _results(each)}
    for published_slice in await site.all(SLICES):
        node = published_slice["spec"]["nodeName"]
        given = _allocations(wanted, published_slice, taken)
        if given is not None:
            for each, allocation in given:
                await _reserve(site, each, allocation, pod)
            await _bind(site, pod, node)
            return
    message = "0/1 nodes are available: 1 cannot allocate all claims."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    known = [dict(c) for c in pod.get("status", {}).get("conditions", ())]
    if not any(c.get("message") == message for c in known):
        await site.patch(
            "pods",
            pod["metadata"]["name"],
            {"status": {"conditions": [{**condition, "message": message}]}},
            subresource="status",
        )


async def _claims_of(site: Site, pod: Object) -> list[Object] | None:
    """Return the claims of a pod; None while one of them is not made yet."""
    made = {
        each["name"]: each["resourceClaimName"]
        for each in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    found = []
    for each in pod["spec"]["resourceClaims"]:
        name = each.get("resourceClaimName") or made.get(each["name"], "")
        there = await site.get(CLAIMS, name) if name else None
        if there is None:
            return None
        found.append(there)
    return found


def _allocations(
    wanted: list[Object], published_slice: Object, taken: set[tuple[str, str, str]]
) -> list[tuple[Object, Object | None]] | None:
    spec = published_slice["spec"]
    driver, pool, node = spec["driver"], spec["pool"]["name"], spec["nodeName"]
    free = [d["name"] for d in spec["devices"] if (driver, pool, d["name"]) not in taken]
    found: list[tuple[Object, Object | None]] = []
    for each in wanted:
        if _results(each):
            if any(result["pool"] != pool for result in _results(each)):
                return None
            found.append((each, None))
            continue
        (request,) = each["spec"]["devices"]["requests"]
        count = request["exactly"]["count"]
        if request["exactly"]["deviceClassName"] != driver or len(free) < count:
            return None
        results = [
            {"request": request["name"], "driver": driver, "pool": pool, "device": name}
            for name in free[:count]
        ]
        free = free[count:]
        on_node = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [on_node]}]}
        found.append((each, {"devices": {"results": results}, "nodeSelector": selector}))
    return found


async def _reserve(site: Site, each: Object, allocation: Object | None, pod: Object) -> None:
    status = each.get("status") or {}
    metadata = pod["metadata"]
    user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    status = {**status, "reservedFor": [*status.get("reservedFor", ()), user]}
    if allocation is not None:
        status["allocation"] = allocation
    name = each["metadata"]["name"]
    await site.patch(CLAIMS, name, {"status": status}, subresource="status")


async def _bind(site: Site, pod: Object, node: str) -> None:
    metadata = pod["metadata"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await site.cluster.api.bind(metadata["namespace"], metadata["name"], binding)


def _results(each: Object) -> list[Object]:
    devices = (each.get("status") or {}).get("allocation", {}).get("devices", {})
    return list(devices.get("results", ()))


def _id(result: Object) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]
