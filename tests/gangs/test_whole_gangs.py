"""For whom `victimGangs: All` holds: gangs and pods that preempt as jobs of one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduling.memory import memory
from tests.scheduling.site import pod

NAME = "batch"
NOTES = {
    "gang.scheduling.koordinator.sh/name": "low",
    "gang.scheduling.koordinator.sh/min-available": "2",
}


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [([], {"low-0"}), ([{"name": "Coscheduling", "args": {}}], {"low-0", "low-1"})],
    ids=["as a pod", "as a job of one"],
)
async def test_plain_pods_take_gangs_whole_where_their_profile_makes_them_jobs(
    arguments: list[dict[str, Any]], gone: set[str]
) -> None:
    profiles = [{"schedulerName": NAME, "pluginConfig": arguments}]
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    }
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for number in range(2):
            member = pod(f"low-{number}", 4, priority="low", scheduler=NAME)
            member["metadata"]["annotations"] = NOTES
            cluster.running(member, f"node-{number}")
        cluster.create(pod("high", 4, priority="high", scheduler=NAME))
        cluster.start(section={"configuration": configuration, "gangs": {"victimGangs": "All"}})
        await cluster.until(lambda: len(cluster.victims()) >= len(gone))
        assert cluster.victims() == gone
