"""Two that took turns: changed priorities, weights and quotas count anew, the higher is not held.

The random clusters are those of `cases`, under which priorities are swapped again and again, as a
user does who cannot make up his mind.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.targets.protection import Causes
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND, Size, scene
from tests.quota.simulation import Cluster
from tests.quota.test_loops import configuration, jobs, queue

LOWER = Preemption(Policy.LOWER_PRIORITY)
CLUSTERS = 200


def relabelled(cluster: Cluster, priorities: dict[str, int]) -> None:
    """Give workloads, by key, other priorities, whether they hold quota or wait."""
    for key, priority in priorities.items():
        holder = cluster.holdings.holders.get(key)
        if holder is not None:
            cluster.holdings.hold(replace(holder.workload, priority=priority))
            continue
        for waiting in list(cluster.queues.pending()):
            if waiting.key == key:
                cluster.queues.push(replace(waiting, priority=priority))
    cluster.queues.flush(list(cluster.configuration.cluster_queues))


def two_jobs(ledger: Displacements) -> Cluster:
    """Return a cluster with room for one of two jobs, of which the first has it."""
    cluster = Cluster(configuration(queue("team", 4, LOWER)), ledger=ledger)
    one, other = jobs(Random(1), "team", 2, gpus=4)
    cluster.submit(replace(one, priority=50), replace(other, priority=10))
    cluster.settle()
    assert cluster.admitted() == {"team-0"}
    return cluster


def test_priorities_that_are_swapped_count_each_time() -> None:
    cluster = two_jobs(Displacements())
    for turn in range(8):
        high, low = ("team-1", "team-0") if turn % 2 == 0 else ("team-0", "team-1")
        relabelled(cluster, {f"ns/{high}": 10_000, f"ns/{low}": 50})
        cluster.settle()
        assert cluster.admitted() == {high}, turn
    assert sum(cluster.preempted.values()) == 8


def changed(quota: int, weight: float) -> Configuration:
    found = configuration(queue("a", 2), queue("b", 2))
    quotas = FlavorQuotas("gpus", {"nvidia.com/gpu": Quota(quota)})
    groups = (ResourceGroup(("nvidia.com/gpu",), (quotas,)),)
    row: ClusterQueue = replace(found.cluster_queues["a"], groups=groups, weight=weight)
    return replace(found, cluster_queues={**found.cluster_queues, "a": row})


@pytest.mark.parametrize(
    ("quota", "weight", "held"), [(2, 1.0, True), (3, 1.0, False), (2, 2.0, False)]
)
def test_a_pair_starts_anew_with_another_weight_or_quota(
    quota: int, weight: float, held: bool
) -> None:
    def cause(found: Configuration) -> str:
        holdings, queues = Holdings(found), Queues(found)
        one, other = jobs(Random(1), "a", 1)[0], jobs(Random(2), "b", 1)[0]
        queues.push(one)
        tree = holdings.tree
        causes = Causes(holdings.snapshot())
        assert causes.between(one, tree.queues["a"], other, tree.queues["b"]) == causes.between(
            other, tree.queues["b"], one, tree.queues["a"]
        )
        return causes.between(one, tree.queues["a"], other, tree.queues["b"])

    ledger, before = Displacements(), cause(changed(2, 1.0))
    x, y = Workload("ns", "x", uid="x"), Workload("ns", "y", uid="y")
    for second in range(4):
        one, other = (x, y) if second % 2 == 0 else (y, x)
        ledger.record(one, other, Nanos(NOW + second * SECOND), before)
    now = Nanos(NOW + 4 * SECOND)
    assert (ledger.held_until(x, y, now, cause(changed(quota, weight))) is not None) is held


def test_of_two_unequal_ones_the_lower_is_held_and_the_higher_has_the_last_turn() -> None:
    ledger, high, low = Displacements(), Workload("ns", "h", uid="h"), Workload("ns", "l", uid="l")

    def at(second: int) -> Nanos:
        return Nanos(NOW + second * SECOND)

    ledger.record(high, low, at(0), "c", above=1)
    ledger.admitted(high, at(0))
    assert ledger.held_until(low, high, at(0), "c", above=-1) is None
    ledger.record(low, high, at(1), "c", above=-1)
    assert ledger.held_until(high, low, at(1), "c", above=1) is None
    assert ledger.held_until(low, high, at(1), "c", above=-1) is not None
    # In vain as often as is allowed: others get what it makes room for.
    ledger.record(high, low, at(2), "c", above=1)
    ledger.record(high, low, at(3), "c", above=1)
    assert ledger.held_until(high, low, at(3), "c", above=1) is not None


def test_over_random_clusters_no_priority_waits_for_a_lower_one_that_it_took_turns_with() -> None:
    """Priorities are swapped between who holds quota and who waits, then all settles."""
    random, swapped, taken = Random(23), 0, 0
    for number in range(CLUSTERS):
        case = scene(random, fair=False, size=Size(admitted=3, pending=8))
        cluster = Cluster(case.configuration, (1,), Displacements())
        cluster.submit(*case.pending, case.incoming)
        cluster.settle()
        for _ in range(5):
            held = sorted(cluster.holdings.holders)
            waiting = sorted(w.key for w in cluster.queues.pending())
            if not held or not waiting:
                break
            one, other = random.choice(held), random.choice(waiting)
            relabelled(cluster, {one: 50, other: 10_000})
            before = sum(cluster.preempted.values())
            cluster.settle()
            swapped += 1
            taken += sum(cluster.preempted.values()) > before
            entry = last_word(cluster, other)
            if entry is not None and entry.spared is not None:
                lower = {
                    key
                    for key in entry.spared.paired
                    if key in cluster.holdings.holders
                    and cluster.holdings.holders[key].workload.priority < 10_000
                }
                assert not lower, number
        assert max(cluster.preempted.values(), default=0) <= 12, number
    assert swapped >= CLUSTERS and taken >= 40, (swapped, taken)


def last_word(cluster: Cluster, key: str) -> Entry | None:
    entries = (entry for result in reversed(cluster.results) for entry in result.entries)
    return next((entry for entry in entries if entry.workload.key == key), None)
