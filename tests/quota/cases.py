"""Random cases of the quota plane as engine values, and the same as the oracle's plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    Configuration,
    Eviction,
    FlavorFungibility,
    FlavorQuotas,
    FlavorResource,
    Fungibility,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Strategy,
    Workload,
)

SECOND = 1_000_000_000
NOW = Nanos(1_000_000 * SECOND)
RECLAIM = (Policy.NEVER, Policy.LOWER_PRIORITY, Policy.ANY, Policy.ANY)
WITHIN = (
    Policy.NEVER,
    Policy.LOWER_PRIORITY,
    Policy.LOWER_PRIORITY,
    Policy.LOWER_OR_NEWER_EQUAL_PRIORITY,
)
STRATEGIES: tuple[tuple[Strategy, ...] | None, ...] = (
    (),
    (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (Strategy.LESS_THAN_INITIAL_SHARE,),
)


@dataclass(frozen=True)
class Scene:
    """A configuration, what holds quota in it, what waits, and one workload that wants room."""

    configuration: Configuration
    admitted: tuple[Workload, ...]
    pending: tuple[Workload, ...]
    incoming: Workload
    queue: str
    requests: Mapping[FlavorResource, int]
    need: frozenset[FlavorResource]


@dataclass(frozen=True)
class Size:
    """How large random cases are."""

    queues: int = 5
    cohorts: int = 3
    flavors: int = 2
    resources: int = 2
    admitted: int = 18
    pending: int = 8
    quota: int = 8
    sizes: tuple[int, ...] = (1, 1, 2, 3, 4)
    priorities: int = 3


def scene(random: Random, fair: bool | None = None, size: Size | None = None) -> Scene:
    """Return a random scene; usage may exceed quotas as after a change of configuration."""
    size = size or Size()
    fair = random.random() < 0.5 if fair is None else fair
    flavors = [f"f{k}" for k in range(random.randint(1, size.flavors))]
    resources = ["cpu", "nvidia.com/gpu", "memory"][: random.randint(1, size.resources)]
    cohorts = _cohorts(random, size, flavors, resources)
    queues = {
        name: _queue(random, name, size, flavors, resources, sorted(cohorts))
        for name in (f"q{k:03}" for k in range(random.randint(1, size.queues)))
    }
    configuration = Configuration(
        queues,
        cohorts,
        {name: ResourceFlavor(name) for name in flavors},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in queues},
        {"ns": {}},
        Settings(fair_sharing=random.choice(STRATEGIES) if fair else None),
    )
    admitted = tuple(
        held(random, f"w{k:05}", random.choice(list(queues)), flavors, resources, size)
        for k in range(random.randint(size.admitted // 2, size.admitted))
    )
    pending = tuple(
        waiting(random, f"p{k:05}", random.choice(list(queues)), resources, size)
        for k in range(random.randint(0, size.pending))
    )
    queue = random.choice(list(queues))
    wanted = random.sample(resources, random.choice((1, 1, len(resources))))
    requests = {
        FlavorResource(random.choice(flavors), name): random.choice(size.sizes) for name in wanted
    }
    need = frozenset(random.sample(sorted(requests), random.randint(1, len(requests))))
    incoming = replace(
        waiting(random, "incoming", queue, wanted, size),
        priority=random.choice((0, size.priorities - 1)),
    )
    return Scene(configuration, admitted, pending, incoming, queue, requests, need)


def _cohorts(
    random: Random, size: Size, flavors: list[str], resources: list[str]
) -> dict[str, Cohort]:
    names = [f"c{k}" for k in range(random.randint(0, size.cohorts))]
    found = {}
    for position, name in enumerate(names):
        parent = random.choice(names[:position]) if position and random.random() < 0.85 else ""
        groups = _groups(random, size, flavors, resources, bool(parent), 0.5)
        found[name] = Cohort(name, parent, groups, _weight(random))
    return found


def _queue(
    random: Random,
    name: str,
    size: Size,
    flavors: list[str],
    resources: list[str],
    cohorts: list[str],
) -> ClusterQueue:
    cohort = random.choice(cohorts) if cohorts and random.random() < 0.9 else ""
    reclaim = random.choice(RECLAIM)
    borrow = None
    if reclaim is not Policy.NEVER and random.random() < 0.5:
        threshold = random.choice((None, None, 0, 1))
        borrow = BorrowWithinCohort(Policy.LOWER_PRIORITY, threshold)
    return ClusterQueue(
        name,
        cohort,
        _groups(random, size, flavors, resources, bool(cohort), 0.95),
        Preemption(random.choice(WITHIN), reclaim, borrow),
        FlavorFungibility(random.choice(list(Fungibility)), random.choice(list(Fungibility))),
        random.choice(list(QueueingStrategy)),
        weight=_weight(random),
    )


def _groups(
    random: Random,
    size: Size,
    flavors: list[str],
    resources: list[str],
    limited: bool,
    likely: float,
) -> tuple[ResourceGroup, ...]:
    if random.random() > likely:
        return ()

    def quota() -> Quota:
        nominal = random.choice((0, random.randint(0, size.quota)))
        borrowing = random.choice((None, None, random.randint(0, size.quota)))
        lending = random.choice((None, None, random.randint(0, nominal)))
        return Quota(nominal, borrowing, lending) if limited else Quota(nominal)

    quotas = tuple(FlavorQuotas(f, {r: quota() for r in resources}) for f in flavors)
    return (ResourceGroup(tuple(resources), quotas),)


def _weight(random: Random) -> float:
    return random.choice((1.0, 1.0, 1.0, 2.0, 0.5, 0.1, 0.3, 0.0))


def waiting(random: Random, name: str, queue: str, resources: list[str], size: Size) -> Workload:
    """Return a workload that holds nothing."""
    wanted = random.sample(resources, random.randint(1, len(resources)))
    return Workload(
        "ns",
        name,
        uid=f"{random.randint(0, 10**9):010}-{name}",
        queue=f"ns/{queue}",
        priority=random.randint(-1, size.priorities - 2),
        created=Nanos(NOW - random.randint(0, 5) * SECOND),
        pod_sets=(PodSet("main", 1, {r: random.choice(size.sizes) for r in wanted}),),
    )


def held(
    random: Random, name: str, queue: str, flavors: list[str], resources: list[str], size: Size
) -> Workload:
    """Return a workload that holds quota."""
    pending = waiting(random, name, queue, resources, size)
    reserved = Nanos(NOW - random.randint(0, 5) * SECOND)
    return holding(pending, queue, random.choice(flavors), reserved, random.random() < 0.12)


def holding(
    workload: Workload, queue: str, flavor: str, reserved: Nanos, evicted: bool = False
) -> Workload:
    """Return `workload` with an admission to `queue`, all of it on one flavor."""
    amounts = dict(workload.pod_sets[0].requests)
    admission = Admission(
        queue, (AdmittedPodSet("main", 1, dict.fromkeys(amounts, flavor), amounts),)
    )
    mark = Eviction("Preempted", reserved) if evicted else None
    return replace(workload, admission=admission, reserved_at=reserved, evicted=mark)


def plain(scene: Scene, admitted: Iterable[Workload] | None = None) -> dict[str, Any]:
    """Return the scene as the oracle's case."""
    configuration = scene.configuration
    settings = configuration.settings

    def quotas(groups: tuple[ResourceGroup, ...], above: str) -> dict[Any, Any]:
        return {
            (flavor.flavor, resource): (
                quota.nominal,
                quota.borrowing_limit if above else None,
                quota.lending_limit,
            )
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.resources.items()
        }

    return {
        "fair": None if settings.fair_sharing is None else [str(s) for s in settings.fair_sharing],
        "within_nominal_gate": settings.gates.fair_sharing_preempt_within_nominal,
        "queues": {
            name: {
                "cohort": queue.cohort,
                "quotas": quotas(queue.groups, queue.cohort),
                "weight": queue.weight,
                "within": str(queue.preemption.within_cluster_queue),
                "reclaim": str(queue.preemption.reclaim_within_cohort),
                "borrow": queue.preemption.borrow_within_cohort
                and str(queue.preemption.borrow_within_cohort.policy),
                "threshold": queue.preemption.borrow_within_cohort
                and queue.preemption.borrow_within_cohort.max_priority_threshold,
            }
            for name, queue in configuration.cluster_queues.items()
        },
        "cohorts": {
            name: {
                "parent": cohort.parent,
                "quotas": quotas(cohort.groups, cohort.parent),
                "weight": cohort.weight,
            }
            for name, cohort in configuration.cohorts.items()
        },
        "admitted": [_plain(w) for w in (scene.admitted if admitted is None else admitted)],
        "incoming": {
            "queue": scene.queue,
            "priority": scene.incoming.priority,
            "created": scene.incoming.created,
            "requests": {tuple(pair): amount for pair, amount in scene.requests.items()},
            "need": {tuple(pair) for pair in scene.need},
        },
    }


def _plain(workload: Workload) -> dict[str, Any]:
    assert workload.admission is not None
    usage: dict[tuple[str, str], int] = {}
    for pod_set in workload.admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            amount = pod_set.usage.get(resource, 0)
            usage[flavor, resource] = usage.get((flavor, resource), 0) + amount
    return {
        "key": workload.key,
        "uid": workload.uid,
        "queue": workload.admission.cluster_queue,
        "priority": workload.priority,
        "reserved": math.inf if workload.reserved_at is None else workload.reserved_at,
        "created": workload.created,
        "evicted": workload.evicted is not None,
        "usage": usage,
    }
