"""The search for the cheapest units: what it finds is the optimum, and its bound is none above."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from reprieve.engine.scheduling.nodes.covered import Budgets, Evenness, Instance
from reprieve.engine.scheduling.nodes.covering import Effort, cover


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


def limited(seed: int) -> Instance:
    """The same with budgets, and limits of how many pods a node or one of two zones has."""
    random, instance = Random(f"limited {seed}"), drawn(seed)
    nodes = range(len(instance.free))
    numbers = range(random.choice((0, 1, 2)))
    used = [
        {u: tuple(random.choice((0, 0, 1, 2)) for _ in numbers) for u in there}
        for there in instance.frees
    ]
    even = []
    for zones in random.choice(((), (False,), (True,), (False, True))):
        domain = [random.choice((0, 1)) if zones else node for node in nodes]
        domain = [-1 if random.random() < 0.1 else number for number in domain]
        matched = [{u: 1 for u in there if random.random() < 0.4} for there in instance.frees]
        held = dict.fromkeys((0, 1) if zones else nodes, 0)
        for number, units in zip(domain, matched, strict=True):
            if number >= 0:
                held[number] += len(units)
        held = {number: pods + random.choice((0, 0, 1)) for number, pods in held.items()}
        low = random.choice((0, 0, 1))
        even.append(Evenness(domain, held, matched, low, low + random.choice((1, 2))))
    allowed = tuple(random.choice((0, 1, 2)) for _ in numbers)
    return replace(instance, budgets=Budgets(allowed, used, 100) if allowed else None, even=even)


def paid(instance: Instance, gone: set[int]) -> int:
    cost = sum(instance.cost[unit] for unit in gone)
    budgets = instance.budgets
    for number, allowed in enumerate(() if budgets is None else budgets.allowed):
        assert budgets is not None
        pods = sum(each[number] for there in budgets.used for u, each in there.items() if u in gone)
        cost += budgets.cost * max(0, pods - allowed)
    return cost


def is_even(even: Evenness, gone: set[int], at: tuple[int, ...]) -> bool:
    for domain, held in even.held.items():
        placed = sum(even.domain[node] == domain for node in at)
        left = sum(
            pods
            for number, units in zip(even.domain, even.matched, strict=True)
            if number == domain
            for unit, pods in units.items()
            if unit in gone
        )
        pods = held + placed - left
        if pods < even.least or (placed and pods > even.most):
            return False
    return True


def least_limited(instance: Instance) -> int | None:
    members = [row for row, count in enumerate(instance.counts) for _ in range(count)]
    places = list(product(range(len(instance.free)), repeat=len(members)))
    best = None
    for chosen in product((False, True), repeat=len(instance.cost)):
        gone = {unit for unit, out in enumerate(chosen) if out}
        cost = paid(instance, gone)
        if best is not None and cost >= best:
            continue
        for at in places:
            if all(is_even(even, gone, at) for even in instance.even) and fits(
                instance, gone, at, members
            ):
                best = cost
                break
    return best


@pytest.mark.parametrize(
    ("first", "count"), [(0, 60), pytest.param(60, 1_000, marks=pytest.mark.thorough)]
)
def test_budgets_and_numbers_of_pods_in_domains_are_counted_exactly(first: int, count: int) -> None:
    kinds: dict[str, int] = {}
    for seed in range(first, first + count):
        instance = limited(seed)
        best, effort = least_limited(instance), Effort()
        found = cover(instance, effort)
        answer = None if found is None else (found.cost, found.bound)
        assert answer == (None if best is None else (best, best)), seed
        assert not effort.cut, seed
        kind = "none" if best is None else "free" if best == 0 else "paid"
        kinds[kind] = kinds.get(kind, 0) + 1
    assert min(kinds.values()) >= 5 and len(kinds) == 3, kinds


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
        whole, short = cover(instance), cover(instance, Effort(cells))
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
