"""A change of devices that lets idle work be evicted is answered within 5 s, before the next poll.

As in `test_wakers_between_polls`: the victim is idle and holds a device by a claim, and a demand
waits beside it for what no eviction gives it, until ResourceSlices, DeviceClasses or claims change.

At random: one to three obstacles of several kinds are removed in any order, with changes between
them that help nobody. After each one a new operator decides about everything anew, and finds
nothing that was not done. The last one lets the demand in, so that each play has an eviction.
"""

from __future__ import annotations

import asyncio
import random
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
from tests.tiers import first_of

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


class Play:
    """A demand, what keeps idle work from being evicted for it, and changes that help nobody."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.devices = [chance.choice((1, 2)), chance.choice((1, 1, 2))]
        self.wanted_by = chance.choice(("template", "claim", "extended"))
        self.count = 1 if self.wanted_by == "extended" else chance.choice((1, max(self.devices)))
        self.obstacles = self._chosen()

    def _chosen(self) -> list[str]:
        possible = ["cordoned", "no class", "unpublished", "incomplete pools"]
        if self.wanted_by == "claim":
            possible.append("no claim")
        if self.wanted_by == "extended":
            possible.append("not extended")
        else:
            possible.append("too few")
        return self.chance.sample(possible, self.chance.choice((1, 2, 3)))

    async def begin(self) -> None:
        """Create all but what stands in the way."""
        if "too few" in self.obstacles:
            self.count = max(self.devices) + 1
        await self.site.create(
            device_class(_DRIVER),
            *(self.slice(number, filling=True) for number in range(len(self.devices))),
            template("one", _DRIVER),
            template("wanted", _DRIVER, self.count),
        )

    def slice(self, number: int, *, filling: bool = False) -> Object:
        found = published(f"node-{number}", _DRIVER, self.devices[number])
        if "incomplete pools" in self.obstacles and not filling:
            found["spec"]["pool"]["resourceSliceCount"] = 2
        return found

    async def _publish(self) -> None:
        for number in range(len(self.devices)):
            spec = self.slice(number)["spec"]
            await self.site.patch(SLICES, f"node-{number}-{_DRIVER}", {"spec": spec}, namespace="")

    def victims(self) -> list[Object]:
        return [
            claiming(job(f"victim-{number}", enabled="true"), by_template="one")
            for number in range(sum(self.devices))
        ]

    def demand(self) -> Object:
        if self.wanted_by == "extended":
            return _by_extended_name("demand")
        by = {"by_template": "wanted"} if self.wanted_by == "template" else {"by_name": "later"}
        return claiming(job("demand", enabled="true"), **by)

    async def hinder(self) -> None:
        """Set up the obstacles, while all victims run."""
        for each in self.obstacles:
            match each:
                case "cordoned":
                    await self._cordon(True)
                case "unpublished":
                    for number in range(len(self.devices)):
                        await self.site.delete(SLICES, f"node-{number}-{_DRIVER}", namespace="")
                case "incomplete pools" if "unpublished" not in self.obstacles:
                    await self._publish()
                case "no class":
                    await self.site.delete(_CLASSES, _DRIVER, namespace="")
        if self.wanted_by == "claim" and "no claim" not in self.obstacles:
            await self._create_claim()
        extended = self.wanted_by == "extended" and "not extended" not in self.obstacles
        if extended and "no class" not in self.obstacles:
            await _extend_the_class(self.site)

    async def remove(self, obstacle: str) -> None:
        match obstacle:
            case "cordoned":
                await self._cordon(False)
            case "no class":
                extended = self.wanted_by == "extended" and "not extended" not in self.obstacles
                await self.site.create(device_class(_DRIVER, _EXTENDED if extended else ""))
            case "unpublished":
                for number in range(len(self.devices)):
                    await self.site.create(self.slice(number))
            case "incomplete pools" if "unpublished" not in self.obstacles:
                self.obstacles.remove(obstacle)
                await self._publish()
                return
            case "no claim":
                await self._create_claim()
            case "not extended" if "no class" not in self.obstacles:
                await _extend_the_class(self.site)
            case "too few":
                number = self.devices.index(max(self.devices))
                self.devices[number] += 1
                if "unpublished" not in self.obstacles:
                    await self._publish()
        self.obstacles.remove(obstacle)

    async def distract(self) -> str:
        """Change what decides nothing."""
        labels = {"metadata": {"labels": {"turn": str(self.chance.random())}}}
        resource, name = self.chance.choice(
            (("nodes", "node-0"), (SLICES, f"node-1-{_DRIVER}"), (_CLASSES, _DRIVER))
        )
        if await self.site.get(resource, name, namespace=""):
            await self.site.patch(resource, name, labels, namespace="")
        return f"label {resource}"

    async def _cordon(self, value: bool) -> None:
        for number in range(len(self.devices)):
            said = {"spec": {"unschedulable": value}}
            await self.site.patch("nodes", f"node-{number}", said, namespace="")

    async def _create_claim(self) -> None:
        await self.site.create(claim("later", _DRIVER, self.count))


@pytest.mark.parametrize("seed", first_of(range(40), most=6))
async def test_changes_of_devices_in_any_order_leave_nothing_to_do(
    seed: int, tmp_path: Path
) -> None:
    nodes = [NodeSpec(f"node-{number}", {}) for number in range(2)]
    async with open_site(tmp_path, nodes) as site, dcgm(site, {"demand": 90.0}) as url:
        play = Play(site, random.Random(seed))
        await play.begin()
        async with scheduling(site):
            await site.create(*play.victims())
            await asyncio.sleep(5)
            await play.hinder()
            environment = {**_RARELY, "GPU_PREEMPTION_METRICS_ENDPOINT": url}
            operator = await site.run(environment, config=_CONFIG)
            for number in range(sum(play.devices)):
                await site.until_phase(f"Job/victim-{number}", "Idle")
            await site.create(play.demand())
            await asyncio.sleep(20)
            assert site.evictions() == [], play.obstacles
            steps = play.chance.sample(play.obstacles, len(play.obstacles))
            done: list[str] = []
            for step in steps:
                if play.chance.random() < 0.5:
                    done.append(await play.distract())
                    await asyncio.sleep(WITHIN_S)
                    assert site.evictions() == [], done
                await play.remove(step)
                done.append(step)
                await asyncio.sleep(WITHIN_S)
                woken = len(site.evictions())
                await operator.stop()
                operator = await site.run(environment, config=_CONFIG)
                await asyncio.sleep(WITHIN_S)
                assert len(site.evictions()) == woken, (play.wanted_by, play.devices, done)
            assert woken, (play.wanted_by, play.devices, play.count, done)
