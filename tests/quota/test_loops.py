"""Loops that users of quota systems have reported, made again: nobody is preempted over and over.

Every scenario must settle, with no workload preempted more than twice, whatever the order of uids
(which break ties) and however long the evicted jobs take to stop.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Strategy,
    Workload,
)
from tests.quota.cases import NOW, SECOND, Size, scene
from tests.quota.simulation import Cluster

RECLAIM = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
DELAYS = ((1,), (3, 1), (1, 4, 2))
FAIR = (
    (),
    (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (Strategy.LESS_THAN_INITIAL_SHARE,),
)


def queue(name: str, nominal: int, rules: Preemption = RECLAIM, **changes: Any) -> ClusterQueue:
    quotas = FlavorQuotas("gpus", {"nvidia.com/gpu": Quota(nominal)})
    groups = (ResourceGroup(("nvidia.com/gpu",), (quotas,)),)
    return ClusterQueue(name, "all", groups, rules, **changes)


def configuration(*queues: ClusterQueue, fair: Any = None, shared: int = 0) -> Configuration:
    quotas = FlavorQuotas("gpus", {"nvidia.com/gpu": Quota(shared)})
    return Configuration(
        {each.name: each for each in queues},
        {"all": Cohort("all", groups=(ResourceGroup(("nvidia.com/gpu",), (quotas,)),))},
        {"gpus": ResourceFlavor("gpus")},
        {f"ns/{each.name}": LocalQueue(f"ns/{each.name}", each.name) for each in queues},
        {"ns": {}},
        Settings(fair_sharing=fair),
    )


def jobs(random: Random, queue: str, count: int, gpus: int = 1, **changes: Any) -> list[Workload]:
    return [
        replace(
            Workload(
                "ns",
                f"{queue}-{k}",
                uid=f"{random.randint(0, 10**9):010}",
                queue=f"ns/{queue}",
                created=Nanos(NOW + k * SECOND),
                pod_sets=(PodSet("main", 1, {"nvidia.com/gpu": gpus}),),
            ),
            **changes,
        )
        for k in range(count)
    ]


def settles(cluster: Cluster, evictions: bool) -> None:
    cluster.settle()
    assert max(cluster.preempted.values(), default=0) <= 2, cluster.preempted
    # Otherwise the scenario does not show what it is about.
    assert bool(cluster.preempted) is evictions
    stopped = {key: each for key, each in cluster.holdings.holders.items() if each.evicted}
    assert stopped == {}


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("fair", FAIR)
@pytest.mark.parametrize("seed", range(4))
def test_equal_shares_do_not_take_from_each_other(
    seed: int, fair: Any, delays: tuple[int, ...]
) -> None:
    random = Random(seed)
    cluster = Cluster(configuration(queue("a", 0), queue("b", 0), fair=fair, shared=4), delays)
    cluster.submit(*jobs(random, "a", 2), *jobs(random, "b", 2))
    cluster.settle()
    cluster.submit(*(replace(each, name=f"{each.name}x") for each in jobs(random, "a", 2)))
    cluster.submit(*(replace(each, name=f"{each.name}x") for each in jobs(random, "b", 2)))
    settles(cluster, evictions=False)


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("weights", [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("seed", range(4))
def test_queues_of_weight_zero_settle(
    seed: int, weights: tuple[float, float], delays: tuple[int, ...]
) -> None:
    random = Random(seed)
    a, b = queue("a", 0, weight=weights[0]), queue("b", 0, weight=weights[1])
    cluster = Cluster(configuration(a, b, fair=(), shared=6), delays)
    cluster.submit(*jobs(random, "a", 6))
    cluster.settle()
    cluster.submit(*jobs(random, "b", 6))
    settles(cluster, evictions=weights != (1.0, 0.0))


@pytest.mark.parametrize("fair", [None, *FAIR])
@pytest.mark.parametrize("seed", range(4))
def test_victims_that_end_one_after_the_other_do_not_take_the_quota_back(
    seed: int, fair: Any
) -> None:
    random = Random(seed)
    delays = (1, 3, 5, 2)
    cluster = Cluster(configuration(queue("a", 4), queue("b", 4), fair=fair), delays)
    cluster.submit(*jobs(random, "b", 8))
    cluster.settle()
    assert len(cluster.admitted()) == 8
    cluster.submit(*jobs(random, "a", 1, gpus=4))
    settles(cluster, evictions=True)
    assert "a-0" in cluster.admitted()
    assert len(cluster.admitted()) == 5
    assert max(cluster.preempted.values()) == 1


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("fair", FAIR)
@pytest.mark.parametrize("queues", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_fair_sharing_does_not_play_ping_pong(
    seed: int, queues: int, fair: Any, delays: tuple[int, ...]
) -> None:
    random = Random(seed)
    names = [f"q{k}" for k in range(queues)]
    cluster = Cluster(
        configuration(*(queue(name, 1) for name in names), fair=fair, shared=5), delays
    )
    cluster.submit(*jobs(random, names[0], 12))
    cluster.settle()
    for name in names[1:]:
        cluster.submit(*jobs(random, name, 12))
        cluster.step()
    settles(cluster, evictions=True)


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("threshold", [None, 0])
@pytest.mark.parametrize("seed", range(4))
def test_reclaiming_while_borrowing_settles(
    seed: int, threshold: int | None, delays: tuple[int, ...]
) -> None:
    random = Random(seed)
    rules = Preemption(
        Policy.LOWER_PRIORITY,
        Policy.LOWER_PRIORITY,
        BorrowWithinCohort(Policy.LOWER_PRIORITY, threshold),
    )
    names = ("a", "b", "c")
    cluster = Cluster(configuration(*(queue(name, 2, rules) for name in names)), delays)
    cluster.submit(*jobs(random, "a", 6))
    cluster.settle()
    cluster.submit(*jobs(random, "b", 3, priority=1))
    cluster.step()
    cluster.submit(*jobs(random, "c", 3, priority=2))
    settles(cluster, evictions=True)
    assert {"c-0", "c-1"} <= cluster.admitted()


@pytest.mark.parametrize("fair", [True, False])
def test_with_held_pairs_everything_settles(fair: bool) -> None:
    random = Random(71)
    size = Size(admitted=4, pending=25)
    preempted = 0
    for number in range(500):
        case = scene(random, fair=fair, size=size)
        delays = random.choice(DELAYS)
        cluster = Cluster(case.configuration, delays, Displacements())
        cluster.submit(*case.pending, case.incoming)
        cluster.settle()
        assert max(cluster.pairs.values(), default=0) <= 2, number
        preempted += bool(cluster.preempted)
    assert preempted >= 10


def test_without_held_pairs_the_same_two_take_turns_for_ever() -> None:
    """The lower borrowing level goes first, so victims are back before their preemptor."""
    rules = Preemption(
        Policy.LOWER_PRIORITY, Policy.LOWER_PRIORITY, BorrowWithinCohort(Policy.LOWER_PRIORITY)
    )
    never = Preemption()

    def scenario(ledger: Displacements | None) -> Cluster:
        found = configuration(
            queue("a", 0, rules), queue("b", 0, never), queue("c", 0, never), shared=1
        )
        quotas = FlavorQuotas("gpus", {"nvidia.com/gpu": Quota(2)})
        group = (ResourceGroup(("nvidia.com/gpu",), (quotas,)),)
        cohorts = {**found.cohorts, "inner": Cohort("inner", "all", group)}
        queues = {n: replace(q, cohort="inner") for n, q in found.cluster_queues.items()}
        nested = replace(found, cohorts=cohorts, cluster_queues=queues)
        cluster = Cluster(nested, (1,), ledger)
        cluster.submit(*jobs(Random(1), "b", 1), *jobs(Random(2), "c", 1))
        cluster.settle()
        cluster.submit(*jobs(Random(3), "a", 1, gpus=3, priority=1))
        return cluster

    with pytest.raises(AssertionError, match="it does not settle"):
        scenario(None).settle()
    held = scenario(Displacements())
    held.settle()
    assert sorted(held.preempted.values()) == [2, 2]
    assert held.admitted() == {"b-0", "c-0"}
    assert held.ledger is not None
    assert len(held.ledger.held(held.now)) == 2
    assert held.ledger.held(Nanos(held.now + 3_600 * SECOND)) == {}
