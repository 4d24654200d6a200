"""Endless preemption beside a second scheduler, as kubernetes 130429 reports it, on the embedded
cluster: it settles within the bound, counted from the deletions that the API server was asked for.

The other scheduler puts a pod of low priority on the node as soon as its predecessor has to go,
and so before the room is there that it was to make. Its pods are one lineage, each of them a
new object.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.scheduling.site import NAMESPACE, Object, Site, node, pod, site

_LIMIT = 2
_TURNS = 5
_QUIET_S = 8.0


def owned(name: str, priority: str, **spec: str) -> Object:
    """Return a pod that is one of a lineage, as its label says."""
    made = pod(name, 4, priority=priority, **spec)
    labels = {"reprieve.dev/lineage": priority}
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


async def rival(cluster: Site, number: int) -> None:
    """Another scheduler's pod is on the node from its creation on."""
    name = f"low-{number}"
    await cluster.create(owned(name, "low", scheduler="other", nodeName="node-0"))
    await cluster.run()


async def played(cluster: Site, *arguments: str) -> int:
    """Let both go on for some turns, or until ours leaves the other one's pods alone."""
    await cluster.classes()
    await rival(cluster, 0)
    await cluster.operator(*arguments)
    await cluster.create(owned("high", "high"))
    await cluster.until_victims(1)
    for turn in range(1, _TURNS + 1):
        end = asyncio.get_running_loop().time() + _QUIET_S
        while not await cluster.victims():
            if asyncio.get_running_loop().time() > end:
                return sum(cluster.deleted.values())
            await asyncio.sleep(0.05)
        await rival(cluster, turn)
        await cluster.end()
    return sum(cluster.deleted.values())


@pytest.mark.slow
async def test_beside_a_second_scheduler_it_settles_and_whoever_waits_is_told_until_when(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "reprieve.yaml"
    settings.write_text("governor:\n  enforce: all\n", encoding="utf-8")
    async with site([node("node-0", 4)], tmp_path) as cluster:
        assert await played(cluster, "--config", str(settings)) == _LIMIT
        (high,) = [each for name, each in (await cluster.pods(NAMESPACE)).items() if name == "high"]
        assert "are not preempted before" in str(high["status"]["conditions"])
        assert set(cluster.deleted.values()) == {1}


@pytest.mark.slow
async def test_beside_a_second_scheduler_without_the_governor_it_goes_on(tmp_path: Path) -> None:
    settings = tmp_path / "reprieve.yaml"
    settings.write_text("governor:\n  loopLimit: 0\n", encoding="utf-8")
    async with site([node("node-0", 4)], tmp_path) as cluster:
        assert await played(cluster, "--config", str(settings)) == _TURNS
