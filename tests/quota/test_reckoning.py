"""The proof's arithmetic beside the figures that the search uses, and the naive second opinion."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.holdings.reckoning import Usage
from reprieve.engine.quota.holdings.shares import share
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import FlavorResource, Quota, ResourceGroup
from tests.oracle import quota as oracle
from tests.quota.cases import Size, plain, scene

SIZE = Size(queues=6, cohorts=5, admitted=20)


def test_every_quota_and_share_is_that_of_the_second_opinion() -> None:
    random, seen = Random(81), Counter[str]()
    for number in range(300):
        case = scene(random, size=SIZE)
        holdings = Holdings(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        snapshot = holdings.snapshot()
        world, tree, reckoning = oracle.World(plain(case)), snapshot.tree, snapshot.reckoning
        usage = Usage(reckoning, snapshot.usage)
        nodes = [("queue", name, node) for name, node in tree.queues.items()]
        nodes += [("cohort", name, node) for name, node in tree.cohorts.items()]
        for column, pair in enumerate(list(tree.flavor_resources)):
            quotas, both = reckoning.quotas(column), (pair.flavor, pair.resource)
            for kind, name, node in nodes:
                there = (kind, name)
                assert quotas.subtree[node] == world.subtree(there, both), (number, there)
                assert quotas.kept[node] == world.local(there, both), (number, there)
                assert quotas.potential[node] == world.potential(there, both), (number, there)
                left = usage.available(node, column)
                assert left == world.available(there, both), (number, there)
                seen["kept"] += quotas.kept[node] > 0
                seen["overdrawn"] += left < 0
        for kind, name, node in nodes:
            _, ratio, weighted = world.share((kind, name))
            infinite = bool(ratio) and weighted == float("inf")
            assert usage.share(node) == ((1, ratio) if infinite else (0, weighted)), (number, name)
            seen["share"] += bool(ratio)
            seen["infinite"] += infinite
    assert min(seen[each] for each in ("kept", "overdrawn", "share")) >= 100, seen
    assert seen["infinite"] >= 10, seen


def test_usage_after_any_changes_is_that_of_what_is_left() -> None:
    random, changed = Random(82), 0
    for number in range(200):
        case = scene(random, size=SIZE)
        holdings = Holdings(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        snapshot = holdings.snapshot()
        usage = Usage(snapshot.reckoning, snapshot.usage)
        gone = [each for each in holdings.holders.values() if random.random() < 0.5]
        by_column: dict[int, dict[int, int]] = {}
        for holder in gone:
            for column, amount in holder.held:
                of = by_column.setdefault(column, {})
                of[holder.queue] = of.get(holder.queue, 0) - amount
        for column, amounts in by_column.items():
            usage.change(column, amounts)
        left = Holdings(case.configuration)
        for workload in case.admitted:
            if workload.key not in {holder.key for holder in gone}:
                left.hold(workload)
        for column, pair in enumerate(snapshot.tree.flavor_resources):
            other = left.tree.column(FlavorResource(*pair))
            expected = left.snapshot().usage[other]
            assert list(usage.of(column)) == expected, (number, pair)
        changed += bool(gone)
    assert changed >= 150


def test_unlimited_quotas_and_limits_are_those_of_the_search() -> None:
    random, unlimited = Random(83), 0

    def odd(groups: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
        return tuple(
            replace(
                group,
                flavors=tuple(
                    replace(each, resources={r: some(q) for r, q in each.resources.items()})
                    for each in group.flavors
                ),
            )
            for group in groups
        )

    def some(quota: Quota) -> Quota:
        chance = random.random()
        if chance < 0.12:
            return replace(quota, nominal=UNLIMITED)
        if chance < 0.2:
            return replace(quota, lending_limit=UNLIMITED)
        return replace(quota, borrowing_limit=UNLIMITED) if chance < 0.28 else quota

    for number in range(150):
        case = scene(random, size=SIZE)
        made = case.configuration
        queues = {n: replace(q, groups=odd(q.groups)) for n, q in made.cluster_queues.items()}
        cohorts = {n: replace(c, groups=odd(c.groups)) for n, c in made.cohorts.items()}
        holdings = Holdings(replace(made, cluster_queues=queues, cohorts=cohorts))
        for workload in case.admitted:
            holdings.hold(workload)
        snapshot = holdings.snapshot()
        tree, reckoning = snapshot.tree, snapshot.reckoning
        usage = Usage(reckoning, snapshot.usage)
        for column in range(len(tree.flavor_resources)):
            quotas = reckoning.quotas(column)
            figures = quotas.subtree, quotas.kept, quotas.potential
            assert figures == (tree.subtree[column], tree.local[column], tree.potential[column])
            unlimited += max(quotas.subtree) >= UNLIMITED
        for node in range(len(tree.names)):
            assert usage.share(node) == share(tree, snapshot.usage, node).key, number
    assert unlimited >= 100
