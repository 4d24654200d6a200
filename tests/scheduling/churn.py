"""Gangs that come, evict, are bound and leave, over victims that come again, in virtual time."""

from __future__ import annotations

from kubeworld.units.durations import SECOND
from tests.scheduling.memory import Memory
from tests.scheduling.site import NAMESPACE, group, pod

__all__ = ["churn"]


async def churn(cluster: Memory, first: int, rounds: int, size: int = 2) -> None:
    """Have so many gangs come one after the other; `first`: the number of the first."""
    for number in range(first, first + rounds):
        name = f"high-{number}"
        members = [pod(f"{name}-{i}", 2, group=name, priority="high") for i in range(size)]
        low = [pod(f"low-{number}-{i}", 2, priority="low") for i in range(size)]
        cluster.create(group(name, min_count=size, priority="high"), *members)
        bound = {f"{name}-{i}" for i in range(size)}
        await cluster.until(cluster.victims)
        cluster.end_all()
        await cluster.until(lambda bound=bound: bound <= cluster.placed().keys())  # type: ignore[misc]
        cluster.end(*bound)
        cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, name)
        cluster.create(*low)
        await cluster.pass_time(10 * SECOND)
