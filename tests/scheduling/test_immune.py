"""Whatever the owner of running pods does to his objects, a gang of higher priority is placed.

The owner patches, deletes and creates his own pods and PodGroup, or holds them by finalizers,
without end and at several rates. Kubelets end what is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from reprieve.kube.bodies import PatchType
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from tests.background import in_background
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Site, group, node, pod, site
from tests.tiers import first_of

Act = Callable[[Site, int], Awaitable[object]]
_COUNT: Final = 4


async def patch_the_pods(cluster: Site, turn: int) -> None:
    await _each_pod(cluster, {"metadata": {"annotations": {"turn": str(turn)}}})


async def hold_the_pods(cluster: Site, turn: int) -> None:
    finalizers = ["team.example/stays"]
    await _each_pod(cluster, {"metadata": {"finalizers": finalizers, "labels": {"t": str(turn)}}})


async def patch_the_group(cluster: Site, turn: int) -> None:
    change = {"metadata": {"annotations": {"turn": str(turn)}}}
    await cluster.client.patch(POD_GROUPS, NAMESPACE, "low", change, dict)


async def delete_and_create_the_group(cluster: Site, turn: int) -> None:
    with contextlib.suppress(ApiError):
        await cluster.client.delete(POD_GROUPS, NAMESPACE, "low")
    await cluster.create(group("low", min_count=_COUNT, priority="low"))


async def hold_the_group(cluster: Site, turn: int) -> None:
    finalizers = {"metadata": {"finalizers": ["team.example/stays"], "labels": {"t": str(turn)}}}
    await cluster.client.patch(POD_GROUPS, NAMESPACE, "low", finalizers, dict)
    await cluster.client.delete(POD_GROUPS, NAMESPACE, "low")


async def delete_and_create_the_pods(cluster: Site, turn: int) -> None:
    name = f"low-{turn % _COUNT}"
    with contextlib.suppress(ApiError):
        await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
    await cluster.create(pod(name, 2, group="low", priority="low"))


async def add_pods(cluster: Site, turn: int) -> None:
    await cluster.create(pod(f"low-more-{turn}", 2, group="low", priority="low"))


ACTS: Final[Mapping[str, Act]] = {
    each.__name__: each
    for each in (
        patch_the_pods,
        hold_the_pods,
        patch_the_group,
        delete_and_create_the_group,
        hold_the_group,
        delete_and_create_the_pods,
        add_pods,
    )
}
RATES: Final = (10, 1, 40)
_STORIES: Final = [f"{act} {mode} {n}" for mode in ("single", "all") for n in RATES for act in ACTS]


@pytest.mark.parametrize("story", first_of(_STORIES, most=7))
async def test_a_gang_of_higher_priority_is_placed_whatever_owners_do(
    tmp_path: Path, story: str
) -> None:
    act, mode, rate = story.split()
    async with site([node("n0"), node("n1")], tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled(mode=mode, count=_COUNT)
        owner = _without_end(cluster, ACTS[act], int(rate))
        async with in_background(owner, _kubelets(cluster)):
            await asyncio.sleep(2)
            names = await cluster.gang(2)
            async with asyncio.timeout(30):
                await cluster.until_placed(names)
            await asyncio.sleep(5)
            assert names <= (await cluster.placed()).keys() - await cluster.victims()
            plans = [each for each in await cluster.intents() if "high" in str(each["spec"])]
            assert len(plans) <= 2, [each["status"] for each in plans]


async def _each_pod(cluster: Site, change: dict[str, object]) -> None:
    for name in await cluster.pods():
        if name.startswith("low-"):
            with contextlib.suppress(ApiError):
                await cluster.client.patch(PODS, NAMESPACE, name, change, dict)


async def _without_end(cluster: Site, act: Act, rate: int) -> None:
    for turn in range(1_000_000):
        with contextlib.suppress(ApiError):
            await act(cluster, turn)
        await asyncio.sleep(1 / rate)


async def _kubelets(cluster: Site) -> None:
    """Run what is bound, and end what is deleted, also where a finalizer keeps its object."""
    while True:
        for name, found in (await cluster.pods()).items():
            leaving = found["metadata"].get("deletionTimestamp")
            phase = "Failed" if leaving else "Running"
            with contextlib.suppress(ApiError):
                if found["spec"].get("nodeName") and found["status"].get("phase") != phase:
                    status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z"}
                    await cluster.client.patch(
                        *(PODS, NAMESPACE, name, {"status": status}, dict),
                        patch_type=PatchType.STRATEGIC,
                        subresource="status",
                    )
                if leaving:
                    await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
        await asyncio.sleep(0.2)
