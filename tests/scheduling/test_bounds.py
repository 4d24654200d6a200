"""What a scheduling plane holds is bounded by what there is, however much came and went.

Gangs come, evict, are bound and leave, in virtual time; entries of all containers that the plane
holds are counted after as many gangs again. What is kept for a day or a number is given small
numbers here, since no test has a day: the ledger, the records.
"""

from __future__ import annotations

from typing import Final
from unittest.mock import patch

from reprieve.engine.disruptions.governor import Governor
from reprieve.execution import pod_victims, returns
from reprieve.execution.book import Retention
from reprieve.planes.common import displacements
from reprieve.planes.scheduling import preemptions
from reprieve.units.durations import SECOND
from tests.entries import entries
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, group, pod

_NODES: Final = 4
_ROUNDS: Final = 40
_MOST: Final = 20


async def _churn(cluster: Memory, first: int, rounds: int) -> None:
    """Have gangs come one after the other, each over two victims that come again."""
    for number in range(first, first + rounds):
        name = f"high-{number}"
        members = [pod(f"{name}-{i}", 2, group=name, priority="high") for i in range(2)]
        low = [pod(f"low-{number}-{i}", 2, priority="low") for i in range(2)]
        cluster.create(group(name, min_count=2, priority="high"), *members)
        bound = {f"{name}-{i}" for i in range(2)}
        await cluster.until(cluster.victims)
        cluster.end_all()
        await cluster.until(lambda bound=bound: bound <= cluster.placed().keys())  # type: ignore[misc]
        cluster.end(*bound)
        cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, name)
        cluster.create(*low)
        await cluster.pass_time(10 * SECOND)


async def test_after_more_gangs_a_plane_holds_no_more_than_before() -> None:
    with (
        patch.object(preemptions, "_RETENTION", Retention(cap=_MOST, every=5 * SECOND)),
        patch.object(displacements, "_MOST_KNOWN", _MOST),
        patch.object(returns, "_MOST_RUNS", _MOST),
        patch.object(pod_victims, "_MOST_EVICTED", _MOST),
    ):
        async with memory() as cluster:
            cluster.nodes([4] * _NODES)
            plane = cluster.start(tells=True, governor=Governor(most=_MOST))
            assert plane.context.disruptions is not None
            vars(plane.context.disruptions)["_displaced"].most = _MOST
            cluster.create(*(pod(f"low-{i}", 2, priority="low") for i in range(2 * _NODES)))
            await cluster.pass_time(5 * SECOND)
            await _churn(cluster, 0, _ROUNDS)
            before = entries(plane)
            await _churn(cluster, _ROUNDS, 2 * _ROUNDS)
            after = entries(plane)
            assert sum(cluster.api.deleted.values()) == 6 * _ROUNDS, "gangs had too few victims"
            assert len(cluster.intents()) <= _MOST + 1
    assert len(before) > 100 and sum(before.values()) > 1_000, "little of the plane was counted"
    # What the governor remembers is bounded by its ledger: `tests/disruptions/test_bounds.py`.
    grown = {
        name: (before[name], after[name])
        for name in after
        if after[name] > before[name] and ".governor._history." not in name
    }
    assert not grown, grown
