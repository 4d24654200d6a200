"""The search for the cheapest units: what it finds is the optimum, and its bound is none above."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from reprieve.engine.scheduling.nodes.covering import Instance, cover


def drawn(seed: int) -> Instance:
    """Up to four nodes of two resources, eight units of which some have pods on several."""
    random = Random(f"cover {seed}")
    nodes = random.randint(1, 4)
    units = random.randint(0, 8)
    frees: list[dict[int, tuple[int, ...]]] = [{} for _ in range(nodes)]
    for unit in range(units):
        for node in random.sample(range(nodes), random.choice((1, 1, min(2, nodes)))):
            frees[node][unit] = (random.randint(0, 4), random.randint(0, 3))
    needs = [(random.randint(1, 4), random.randint(0, 2)) for _ in range(random.randint(1, 2))]
    return Instance(
        free=[(random.randint(-1, 3), random.randint(-1, 3)) for _ in range(nodes)],
        needs=needs,
        counts=tuple(random.randint(1, 2) for _ in needs),
        allowed=[[random.random() < 0.9 for _ in needs] for _ in range(nodes)],
        frees=frees,
        cost=[random.randint(0, 9) for _ in range(units)],
    )


def fits(instance: Instance, gone: set[int], at: tuple[int, ...], members: list[int]) -> bool:
    for node, free in enumerate(instance.free):
        here = [member for member, place in zip(members, at, strict=True) if place == node]
        if not all(instance.allowed[node][member] for member in here):
            return False
        for resource, amount in enumerate(free):
            asked = [instance.needs[member][resource] for member in here]
            freed = (f[resource] for u, f in instance.frees[node].items() if u in gone)
            if any(asked) and amount + sum(freed) < sum(asked):
                return False
    return True


def least(instance: Instance) -> int | None:
    """The optimum, by trying everything."""
    members = [row for row, count in enumerate(instance.counts) for _ in range(count)]
    places = list(product(range(len(instance.free)), repeat=len(members)))
    best = None
    for chosen in product((False, True), repeat=len(instance.cost)):
        gone = {unit for unit, out in enumerate(chosen) if out}
        cost = sum(instance.cost[unit] for unit in gone)
        if (best is None or cost < best) and any(fits(instance, gone, p, members) for p in places):
            best = cost
    return best


def has_room_for(instance: Instance, gone: set[int], node: int, here: list[int]) -> bool:
    """Tell whether these members and as many others as the node has to have fit there."""
    ranges = [range(here.count(row), count + 1) for row, count in enumerate(instance.counts)]
    for pattern in product(*ranges):
        members = [row for row, count in enumerate(pattern) for _ in range(count)]
        enough = len(members) >= instance.least[node]
        if enough and fits(instance, gone, (node,) * len(members), members):
            return True
    return False


def test_nodes_that_have_to_have_members_have_room_for_them() -> None:
    seen: dict[bool, int] = {}
    for seed in range(30):
        random, instance = Random(seed), drawn(seed)
        least = [random.choice((0, 0, 1)) for _ in instance.free]
        instance = replace(instance, least=least)
        members = [row for row, count in enumerate(instance.counts) for _ in range(count)]
        best = None
        for chosen in product((False, True), repeat=len(instance.cost)):
            gone = {unit for unit, out in enumerate(chosen) if out}
            cost = sum(instance.cost[unit] for unit in gone)
            if best is not None and cost >= best:
                continue
            for at in product(range(len(instance.free)), repeat=len(members)):
                here = [
                    [row for row, place in zip(members, at, strict=True) if place == node]
                    for node in range(len(instance.free))
                ]
                if all(has_room_for(instance, gone, n, each) for n, each in enumerate(here)):
                    best = cost
                    break
        found = cover(instance)
        assert (None if found is None else found.cost) == best, seed
        seen[best is None] = seen.get(best is None, 0) + 1
    assert min(seen.values()) > 5, seen


def test_the_cheapest_units_are_found() -> None:
    kinds: dict[str, int] = {}
    for seed in range(60):
        instance = drawn(seed)
        best, found = least(instance), cover(instance)
        if best is None:
            assert found is None, seed
            kinds["none"] = kinds.get("none", 0) + 1
            continue
        assert found is not None and (found.cost, found.bound) == (best, best), seed
        kind = "free" if best == 0 else "paid"
        kinds[kind] = kinds.get(kind, 0) + 1
    assert min(kinds.values()) >= 5 and len(kinds) == 3, kinds


@pytest.mark.parametrize("cells", [1, 200, 600])
def test_a_search_that_ends_early_has_an_answer_and_a_bound_below_it(cells: int) -> None:
    early = 0
    for seed in range(40):
        instance = drawn(seed)
        whole, short = cover(instance), cover(instance, cells)
        if whole is None or short is None:
            assert short is whole is None, seed
            continue
        assert short.bound <= whole.cost <= short.cost, seed
        early += short.bound < short.cost
    assert early > 0 or cells > 200


def test_members_of_too_many_kinds_are_not_searched() -> None:
    kinds = 13
    instance = Instance([(99,)], [(1,)] * kinds, (1,) * kinds, [[True] * kinds], [{}], ())
    assert cover(instance) is None
