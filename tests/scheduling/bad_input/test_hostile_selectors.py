"""A claim whose selector would take for ever to match in other languages: it stops nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reprieve.kube.resource import DEVICE_CLAIMS, Resource
from tests.ports import free_port
from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site

_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
_DRIVER = "gpu.example.com"
_UUID = f'device.attributes["{_DRIVER}"].uuid'


async def _devices(cluster: Site) -> None:
    body: Object = {"metadata": {"name": "gpu"}, "spec": {}}
    await cluster.client.create(_CLASSES, body, dict)
    attributes = {"uuid": {"string": "GPU-" + "a" * 60}}
    spec = {
        "driver": _DRIVER,
        "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{i}", "attributes": attributes} for i in range(4)],
    }
    await cluster.client.create(_SLICES, {"metadata": {"name": "node-0"}, "spec": spec}, dict)


async def _asks(cluster: Site, name: str, expression: str) -> None:
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": "gpu", "selectors": selectors}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    metadata = {"name": name, "namespace": NAMESPACE}
    await cluster.client.create(DEVICE_CLAIMS, {"metadata": metadata, "spec": spec}, dict)
    await cluster.create(pod(name, 1, resourceClaims=[{"name": "gpu", "resourceClaimName": name}]))


async def _said(cluster: Site, name: str) -> str:
    conditions: list[Any] = (await cluster.pods())[name]["status"].get("conditions") or []
    return "".join(each.get("message", "") for each in conditions)


@pytest.mark.real_time
async def test_a_process_answers_and_places_others_while_such_claims_wait(tmp_path: Path) -> None:
    port = free_port()
    long = "a" * 4000
    refused = {
        "backtracks": (f'{_UUID}.matches("{"(.|.)" * 36}!")', "cannot allocate all claims"),
        "repeats": (f'{_UUID}.matches("(a{{1000}}){{1000}}")', "error parsing regexp"),
        "costs": (
            f"cel.bind(t, '{long}', {' && '.join(['t.contains(t)'] * 10)})",
            "CEL runtime error: operation cancelled: actual cost limit exceeded",
        ),
    }
    missed = 0
    answered = 0

    async def probing() -> None:
        nonlocal missed, answered
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                        answered += answer.status == 200
                except TimeoutError:
                    missed += 1
                await asyncio.sleep(0.1)

    async with site([node("node-0", 8)], tmp_path) as cluster:
        await _devices(cluster)
        await cluster.operator("--metrics-port", str(port))
        await cluster.create(pod("first", 1))
        await cluster.until_placed({"first"})
        probe = asyncio.create_task(probing())
        for name, (expression, _) in refused.items():
            await _asks(cluster, name, expression)
        for name, (_, text) in refused.items():

            async def told(name: str = name, text: str = text) -> bool:
                return text in await _said(cluster, name)

            await cluster.until(f"{name} is told {text}", told)
        await _asks(cluster, "good", f'{_UUID}.matches("^GPU-(a|b)+$")')
        await cluster.until_placed({"good"})
        assert (await cluster.placed()).keys() == {"first", "good"}
        while_waiting = answered

        async def answers_still() -> bool:
            return answered > while_waiting + 5

        await cluster.until("it answers while the claims wait", answers_still)
        texts = {
            event["message"]
            for event in await cluster.events()
            if event["reason"] == "FailedScheduling"
        }
        probe.cancel()
    assert not missed
    assert any("actual cost limit exceeded" in text for text in texts), texts
