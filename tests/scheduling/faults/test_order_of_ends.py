"""Victims end one after the other, in any order: that never costs somebody outside the first plan.

Random clusters with a preemptor that takes part of them; while its victims end, seconds apart,
heartbeats come in and pods of lower priority, which evict nobody, wait for the same room.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from kubeworld.units.durations import MILLISECOND, SECOND
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import Object, group, pod

_ORDERS = 1_000
_CHUNKS = 20
_SAMPLE = 40


@dataclass(frozen=True)
class Story:
    """What a seed made of the first plan. `others`: who was not in it and could have been."""

    victims: int
    others: int
    kind: str


def _low_side(random: Random, cluster: Memory) -> None:
    """Fill all nodes with plain pods and members of groups in both modes."""
    nodes = random.randint(3, 5)
    cluster.nodes([8] * nodes)
    for number, mode in enumerate(("single", "all")):
        cluster.create(group(f"low-{number}", min_count=1, mode=mode, priority="low"))
    number = 0
    for index in range(nodes):
        left = 8
        while left:
            cpu = min(left, random.choice((1, 2, 3, 4)))
            owner = random.choice(("", "", "low-0", "low-1"))
            low = pod(f"low-{number}", cpu, group=owner, priority="low")
            cluster.running(low, f"node-{index}")
            left, number = left - cpu, number + 1


def _preemptor(random: Random) -> tuple[str, list[Object]]:
    kind = random.choice(("gang", "gang", "more than its minimum", "pod"))
    if kind == "pod":
        return kind, [pod("high-0", random.randint(3, 8), priority="high")]
    size, cpu = random.randint(2, 3), random.randint(2, 6)
    minimum = size if kind == "gang" else size - 1
    members = [pod(f"high-{i}", cpu, group="high", priority="high") for i in range(size)]
    return kind, [group("high", min_count=minimum, priority="high"), *members]


async def _play(seed: int) -> Story:
    random = Random(seed)
    async with memory() as cluster:
        _low_side(random, cluster)
        before = set(cluster.pods)
        cluster.start()
        await cluster.settle()
        kind, preemptor = _preemptor(random)
        wanted = {each["metadata"]["name"] for each in preemptor if each["kind"] == "Pod"}
        cluster.create(*preemptor)
        await cluster.until(lambda: cluster.planned() and cluster.planned() <= cluster.victims())
        planned = cluster.planned()
        cluster.create(
            pod("waits", 2, priority="middle", preemptionPolicy="Never"),
            pod("last", 1, priority="low"),
        )
        order = sorted(cluster.victims())
        random.shuffle(order)
        for name in order:
            await cluster.pass_time(random.randint(1, 70) * 100 * MILLISECOND)
            _heartbeat(random, cluster)
            cluster.end(name)
        await cluster.until(lambda: wanted <= cluster.placed().keys())
        await cluster.pass_time(2 * SECOND)
        assert cluster.api.deleted == Counter(planned), cluster.told()
        assert cluster.planned() == planned
        return Story(len(planned), len(before - planned), kind)


def _heartbeat(random: Random, cluster: Memory) -> None:
    """Some pod's status and some node's labels are written anew."""
    name = random.choice(sorted(cluster.pods))
    cluster.api.put("pods", cluster.pod(name))
    node = random.choice(list(cluster.api.objects["nodes"].values()))
    labels = {**node["metadata"]["labels"], "beat": str(random.randrange(1000))}
    cluster.api.put("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}})


async def _play_all(seeds: range) -> None:
    stories = [await _play(seed) for seed in seeds]
    kinds = Counter(story.kind for story in stories)
    several = sum(story.victims >= 2 and story.others >= 2 for story in stories)
    assert several >= len(stories) // 2, "few cases where order could matter"
    assert min(kinds[kind] for kind in ("gang", "more than its minimum", "pod")) >= 5, kinds


async def test_victims_that_end_in_any_order_cost_nobody_else() -> None:
    await _play_all(range(_SAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(_CHUNKS))
async def test_victims_that_end_in_a_thousand_orders_cost_nobody_else(chunk: int) -> None:
    size = _ORDERS // _CHUNKS
    await _play_all(range(_SAMPLE + chunk * size, _SAMPLE + (chunk + 1) * size))
