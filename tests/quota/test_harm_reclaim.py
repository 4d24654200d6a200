"""However budgets are set, a ClusterQueue gets its own nominal quota back in the stated time."""

from __future__ import annotations

from collections import Counter
from random import Random

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.engine.harm_budgets.budget import HarmBudget, Per, Scope
from tests.quota.simulation import Cluster
from tests.quota.test_harm_budgets import cluster, pass_time, work


def random_budgets(random: Random) -> list[HarmBudget]:
    """Return budgets that let go of own quota after some minutes."""
    return [
        HarmBudget(
            f"budget-{number}",
            random.choice((Scope.SUFFERED, Scope.CAUSED, Scope.CLUSTER)),
            per=random.choice((Per.TENANT, Per.QUEUE, Per.ALL)),
            window=24 * HOUR,
            displacements=random.choice((None, 0, 1, 2)),
            lost_device_seconds=random.choice((0, 600, 10**9)),
            nominal_reclaim_after=random.randint(1, 10) * MINUTE,
        )
        for number in range(random.randint(1, 4))
    ]


def waits_for(found: Cluster) -> int:
    """Return for how many minutes the work of the first queue waits for its own quota."""
    for minutes in range(60):
        if "ours/own" in found.holdings.holders:
            return minutes
        pass_time(found, MINUTE)
    raise AssertionError("it waits for ever")


def test_nominal_quota_is_refused_for_no_longer_than_the_longest_time_that_budgets_say() -> None:
    counts: Counter[str] = Counter()
    for seed in range(150):
        random = Random(seed)
        budgets = random_budgets(random)
        found = cluster(*budgets, quotas=(4, 4, 4))
        others = [
            work("one", f"borrows-{n}", random.choice((1, 2, 3)), 1, queue=random.choice((1, 2)))
            for n in range(12)
        ]
        found.submit(*others)
        found.settle()
        found.submit(work("ours", "own", random.randint(1, 4), 1))
        found.settle()
        waited = waits_for(found)
        counts["at once" if not waited else "waited"] += 1
        assert waited * MINUTE <= max(each.nominal_reclaim_after for each in budgets), seed
    assert min(counts.values()) > 10, counts
