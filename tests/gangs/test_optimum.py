"""The bounded search against the exact answer of a mixed integer program."""

from __future__ import annotations

import pytest

from bench.gang_milp import can_be_placed
from reprieve.engine.scheduling.gangs.job import JobPolicy, JobReason
from tests.gangs.worlds import attempt, tight
from tests.oracle.gangs import World, faults, may_go


@pytest.mark.parametrize("instances", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_the_search_finds_nearly_every_placement_that_there_is(instances: int) -> None:
    possible = found = impossible = 0
    seed = 0
    while possible < instances:
        given = tight(seed)
        seed += 1
        assert len(given.nodes) <= 12
        preemption, outcome = attempt(given, JobPolicy())
        succeeded = preemption.reason is JobReason.SUCCESS
        assert faults(given, outcome) == [], seed
        if _can_be_placed(given):
            possible += 1
            found += succeeded
        else:
            assert not succeeded, seed
            impossible += 1
    assert found >= 0.99 * instances
    assert impossible >= instances // 10
    assert len({len(tight(each).members) for each in range(seed)}) >= 8


def _can_be_placed(given: World) -> bool:
    rooms = []
    for node in given.nodes:
        stays = [pod for pod in given.pods if pod.node == node.name and not may_go(given, pod)]
        rooms.append(
            [
                node.offers[name] - sum(pod.asks.get(name, 0) for pod in stays)
                for name in ("cpu", "memory")
            ]
        )
    needs = [[pod.asks.get(name, 0) for name in ("cpu", "memory")] for pod in given.members]
    return can_be_placed(needs, rooms)
