"""A reported loop on a running cluster: equal shares, and evictions that end at different times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.engine.quota.model import Settings
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    site,
)

NAMES = ("a", "b", "c")
RULES: dict[str, Any] = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
}


def lasting(name: str, queue: str, ending: str, pods: int = 1) -> Object:
    """Return a Job whose pods take that long to end."""
    found = job(name, queue, pods=pods)
    found["spec"]["template"]["metadata"] = {
        "annotations": {
            "sim.reprieve.dev/start-latency": "10ms",
            "sim.reprieve.dev/termination-time": ending,
        }
    }
    return found


async def evictions(cluster: Site) -> dict[str, int]:
    """Return how often each job was evicted."""
    found = {}
    for name, each in (await cluster.workloads()).items():
        counts = ((each.get("status") or {}).get("schedulingStats") or {}).get("evictions") or ()
        found[name] = sum(count["count"] for count in counts)
    return found


async def test_of_equal_queues_no_more_is_taken_than_is_needed(tmp_path: Path) -> None:
    shared = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": "all"},
        "spec": {"resourceGroups": cluster_queue("x", 4)["spec"]["resourceGroups"]},
    }
    queues = [
        each
        for name, cpu in zip(NAMES, (2, 0, 0), strict=True)
        for each in (cluster_queue(name, cpu, "all", preemption=RULES), local_queue(name, name))
    ]
    borrowers = [
        lasting(f"{name}-{index}", name, ending)
        for name in ("b", "c")
        for index, ending in enumerate(("50ms", "400ms", "900ms"))
    ]
    options = QuotaOptions(settings=Settings(fair_sharing=()))
    objects = (flavor(), shared, *queues)
    async with site(tmp_path, *objects, nodes=[node("node-0", 32)], options=options) as cluster:
        await cluster.create(*borrowers)
        await cluster.until_admitted(*(each["metadata"]["name"] for each in borrowers))
        await cluster.create(lasting("large", "a", "50ms", pods=2))

        async def settled() -> bool:
            admitted = await cluster.admitted()
            phases = {(each.get("status") or {}).get("phase") for each in await cluster.intents()}
            return (
                "large" in admitted
                and admitted == await cluster.running()
                and len(admitted) == len(borrowers) - 1
                and phases == {"Completed"}
            )

        await cluster.until("one runs for two", settled, patience=60.0)
        found = await evictions(cluster)
        assert sorted(found.values()) == [0, 0, 0, 0, 0, 1, 1]
        waiting = {name for name, count in found.items() if count}
        assert {name.split("-")[0] for name in waiting} == {"b", "c"}, "one of each queue"
        for name in waiting:
            said = await cluster.conditions(name)
            assert said["Requeued"][:2] == ("True", "Preempted")
            assert said["QuotaReserved"][0] == "False"
