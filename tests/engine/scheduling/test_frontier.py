"""Cheap units for equal members on many nodes: they make room, and the bound is none above them."""

from __future__ import annotations

from random import Random

import numpy as np

from reprieve.engine.scheduling.least_cost.frontier import Slots, cheapest_nodes, wide
from reprieve.engine.scheduling.nodes.covered import Instance
from reprieve.engine.scheduling.nodes.covering import cover


def drawn(seed: int) -> tuple[Slots, Instance]:
    random = Random(f"wide {seed}")
    nodes, count = random.randint(3, 10), random.randint(1, 6)
    need = (random.choice((1, 2, 4, 8)), random.choice((1, 2)))
    free = [(random.randint(0, 3), random.randint(0, 4)) for _ in range(nodes)]
    parts: list[tuple[int, int, tuple[int, int]]] = []
    cost = [random.randint(1, 20) for _ in range(random.randint(5, 30))]
    for unit in range(len(cost)):
        for node in random.sample(range(nodes), min(nodes, random.choice((1, 1, 1, 2, 3)))):
            parts.append((unit, node, (random.choice((1, 2, 4)), random.randint(0, 2))))
    frees: list[dict[int, tuple[int, ...]]] = [{} for _ in range(nodes)]
    for unit, node, amounts in parts:
        frees[node][unit] = amounts
    columns = [np.array([part[column] for part in parts], np.int64) for column in range(3)]
    room = Slots(
        need=np.array(need),
        count=count,
        free=np.array(free),
        passes=np.ones(nodes, np.bool_),
        unit=columns[0],
        node=columns[1],
        frees=columns[2],
        cost=np.array(cost),
        priority=np.zeros(len(cost), np.int64),
    )
    return room, Instance(free, [need], (count,), [[True]] * nodes, frees, cost)


def test_the_bound_is_none_above_the_optimum_and_the_units_make_room() -> None:
    ratios: list[float] = []
    for seed in range(80):
        room, instance = drawn(seed)
        found, best = wide(room), cover(instance)
        assert (found is None) == (best is None), seed
        if found is None or best is None:
            continue
        assert found.bound <= best.cost <= found.cost, seed
        there = found.leaving[room.unit]
        freed = room.free.copy()
        np.add.at(freed, room.node[there], room.frees[there])
        wanted = np.bincount(found.nodes, minlength=len(freed))
        assert int(wanted.sum()) == room.count, seed
        assert (freed >= wanted[:, None] * room.need)[wanted > 0].all(), seed
        ratios.append(found.cost / max(1, best.cost))
    assert len(ratios) >= 50
    assert sum(ratio <= 1 for ratio in ratios) >= len(ratios) // 2, sorted(ratios)


def test_no_higher_priority_is_taken_than_one_that_is_needed() -> None:
    room = Slots(
        need=np.array([4]),
        count=2,
        free=np.zeros((3, 1), np.int64),
        passes=np.ones(3, np.bool_),
        unit=np.array([0, 1, 2]),
        node=np.array([0, 1, 2]),
        frees=np.full((3, 1), 4),
        cost=np.array([1, 9, 9]),
        priority=np.array([7, 3, 5]),
    )
    found = wide(room)
    assert found is not None
    assert (found.priority, found.leaving.tolist()) == (5, [False, True, True])
    assert cheapest_nodes(room, 2).tolist() == [1, 2]
