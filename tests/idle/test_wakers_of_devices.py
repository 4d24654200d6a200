"""A change of devices that lets idle work be evicted is answered within 5 s, before the next poll.

As in `test_wakers_between_polls`: the victim is idle and holds a device by a claim, and a demand
waits beside it for what no eviction gives it, until ResourceSlices, DeviceClasses or claims change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.idle.device_scheduler import (
    SLICES,
    claim,
    claiming,
    dcgm,
    device_class,
    published,
    scheduling,
    template,
)
from tests.idle.site import Object, Site, job, open_site, with_limits

WITHIN_S: Final = 5
_DRIVER: Final = "gpu.nvidia.com"
_EXTENDED: Final = "nvidia.com/gpu"
_CLASSES: Final = "deviceclasses.resource.k8s.io"
_CONFIG: Final = "gpuPreemption: {vendors: [nvidia]}\n"
_RARELY: Final = {"GPU_PREEMPTION_POLLING_INTERVAL": "60s"}


async def _publish_another(site: Site) -> None:
    spec = published("node-0", _DRIVER, 2)["spec"]
    await site.patch(SLICES, f"node-0-{_DRIVER}", {"spec": spec}, namespace="")


async def _extend_the_class(site: Site) -> None:
    change = {"spec": {"extendedResourceName": _EXTENDED}}
    await site.patch(_CLASSES, _DRIVER, change, namespace="")


async def _create_the_claim(site: Site) -> None:
    await site.create(claim("later", _DRIVER))


def _by_extended_name(name: str) -> Object:
    return job(name, with_limits({_EXTENDED: "1"}), enabled="true")


@dataclass(frozen=True)
class Obstacle:
    """What waits, and the change after which an eviction helps."""

    demand: Object
    change: Callable[[Site], Awaitable[object]]


_OBSTACLES: Final = {
    "a slice": Obstacle(
        claiming(job("demand", enabled="true"), by_template="two"), _publish_another
    ),
    "a class": Obstacle(_by_extended_name("demand"), _extend_the_class),
    "a claim": Obstacle(
        claiming(job("demand", enabled="true"), by_name="later"), _create_the_claim
    ),
}


@pytest.mark.parametrize("name", _OBSTACLES)
async def test_a_change_of_devices_is_answered_before_the_next_poll(
    name: str, tmp_path: Path
) -> None:
    obstacle = _OBSTACLES[name]
    busy: dict[str, float] = {"demand": 90.0}
    nodes = [NodeSpec("node-0", {})]
    async with open_site(tmp_path, nodes) as site, dcgm(site, busy) as url:
        await site.create(
            device_class(_DRIVER),
            published("node-0", _DRIVER, 1),
            template("one", _DRIVER),
            template("two", _DRIVER, 2),
        )
        async with scheduling(site):
            await site.create(claiming(job("victim", enabled="true"), by_template="one"))
            await asyncio.sleep(5)
            environment = {**_RARELY, "GPU_PREEMPTION_METRICS_ENDPOINT": url}
            await site.run(environment, config=_CONFIG)
            await site.until_phase("Job/victim", "Idle")
            await site.create(obstacle.demand)
            await asyncio.sleep(20)
            assert await site.phase("Job/victim") == "Idle"
            assert await site.records() == []

            await obstacle.change(site)
            await asyncio.sleep(WITHIN_S)
            records = await site.records()
            assert [r["spec"]["preemptor"]["name"][:10] for r in records] == ["job-demand"], (
                await site.told()
            )
