"""Whoever waits for the room of others is served before the tenants of those are told.

A plan of many victims has many stories, and they are written by the same process as the bindings.
"""

from __future__ import annotations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod

_STORIES = "disruptions.reprieve.dev"


def _plan_of(cluster: Memory, victims: int) -> set[str]:
    cluster.nodes([4] * victims)
    for index in range(victims):
        cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
    cluster.start(tells=True)
    names = {f"high-{index}" for index in range(victims)}
    members = (pod(name, 4, group="high", priority="high") for name in sorted(names))
    cluster.create(group("high", min_count=victims, priority="high"), *members)
    return names


@pytest.mark.parametrize("victims", [3, 100])
async def test_bindings_come_before_stories(victims: int) -> None:
    async with memory() as cluster:
        names = _plan_of(cluster, victims)
        await cluster.until(lambda: len(cluster.victims()) == victims, MINUTE)
        cluster.end_all()
        await cluster.until(lambda: cluster.placed().keys() >= names, MINUTE)
        await cluster.until(lambda: len(cluster.api.objects[_STORIES]) == victims, MINUTE)
        order = [
            verb if verb == "bind" else where.kind
            for verb, where in cluster.api.writes
            if verb == "bind" or (verb, where.kind) == ("post", _STORIES)
        ]
        assert order == ["bind"] * victims + [_STORIES] * victims


async def test_the_tenants_are_told_ten_seconds_later_where_the_preemptor_does_not_come() -> None:
    async with memory() as cluster:
        _plan_of(cluster, 3)
        await cluster.until(lambda: len(cluster.victims()) == 3, MINUTE)
        # Another scheduler takes the room as it comes free.
        for index in range(3):
            cluster.running(pod(f"other-{index}", 4, priority="high"), f"node-{index}")
        cluster.end_all()
        await cluster.pass_time(5 * SECOND)
        assert not cluster.api.objects[_STORIES]
        await cluster.until(lambda: len(cluster.api.objects[_STORIES]) == 3, 20 * SECOND)
