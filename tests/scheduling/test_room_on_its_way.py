"""Room that was made for a preemptor which has gone is for who waits next, no second victim."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import SECOND
from tests.scheduling.memory import memory
from tests.scheduling.site import NAMESPACE, group, pod


@pytest.mark.parametrize("grouped", [False, True], ids=["pod", "gang"])
async def test_who_comes_after_a_preemptor_that_has_gone_takes_the_room_that_was_made(
    grouped: bool,
) -> None:
    def demand(name: str) -> None:
        if grouped:
            cluster.create(group(name, min_count=1, priority="high"))
        cluster.create(pod(name, 4, priority="high", **({"group": name} if grouped else {})))

    async with memory() as cluster:
        cluster.nodes([4, 4])
        for name, node in (("first", "node-0"), ("second", "node-1")):
            cluster.running(pod(name, 4, priority="low"), node)
        demand("train")
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 1)
        (victim,) = cluster.victims()
        cluster.api.remove("pods", NAMESPACE, "train")
        if grouped:
            cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, "train")
        await cluster.pass_time(2 * SECOND)
        demand("next")
        await cluster.pass_time(15 * SECOND)
        assert cluster.victims() == {victim}
        cluster.end(victim)
        await cluster.until(lambda: "next" in cluster.placed())
        assert cluster.victims() <= {victim}
