"""Decides the examples of `docs/quota.md`: who is preempted by which setting, with what shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.figures import cluster_queue_share
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
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
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["fair_rows", "preemption_rows"]

NOW: Final = Nanos(1_000_000 * SECOND)
GPU: Final = "nvidia.com/gpu"
FLAVOR: Final = "default-flavor"
FINAL: Final = Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL: Final = Strategy.LESS_THAN_INITIAL_SHARE
# Queue, name, GPUs and priority of what runs, the oldest first.
Running = tuple[tuple[str, str, int, int], ...]
OWN: Final[Running] = (("team-a", "a-low", 2, 100), ("team-a", "a-newer", 2, 500))
BORROWED: Final[Running] = (("team-b", "b-high", 4, 1000), ("team-b", "b-low", 4, 100))
ALL: Final[Running] = (*BORROWED, ("team-b", "b-mid", 4, 400))
NEVER: Final = BorrowWithinCohort()
LOWER: Final = BorrowWithinCohort(Policy.LOWER_PRIORITY)


def preemption_rows() -> Iterator[tuple[str, ...]]:
    """Yield what runs, the policy of team-a, its request and priority, and who is preempted."""
    for policy in (
        Policy.NEVER,
        Policy.LOWER_PRIORITY,
        Policy.LOWER_OR_NEWER_EQUAL_PRIORITY,
    ):
        yield _row(OWN, Preemption(policy), f"`withinClusterQueue: {policy}`", 2, 500, 1)
    lower, newer = Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY
    yield _row(OWN, Preemption(lower), f"`withinClusterQueue: {lower}`", 4, 500, 1)
    yield _row(OWN, Preemption(newer), f"`withinClusterQueue: {newer}`", 4, 500, 1)
    for reclaim, priority in (
        (Policy.NEVER, 500),
        (Policy.LOWER_PRIORITY, 500),
        (Policy.LOWER_PRIORITY, 50),
        (Policy.ANY, 50),
    ):
        rules = Preemption(reclaim_within_cohort=reclaim)
        yield _row(BORROWED, rules, f"`reclaimWithinCohort: {reclaim}`", 4, priority, 2)
    threshold = replace(LOWER, max_priority_threshold=300)
    for borrow, said in (
        (NEVER, "`borrowWithinCohort: {policy: Never}`"),
        (LOWER, "`borrowWithinCohort: {policy: LowerPriority}`"),
        (threshold, "`borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 300}`"),
    ):
        rules = Preemption(Policy.NEVER, Policy.ANY, borrow)
        yield _row(ALL, rules, f"`reclaimWithinCohort: Any`, {said}", 8, 500, 3)


def fair_rows() -> Iterator[tuple[str, ...]]:
    """Yield for each job of team-a in turn who goes, and the shares then, by weights of team-a."""
    runs = [list(_fair(weight)) for weight in (1.0, 2.0)]
    for number, pair in enumerate(zip(*runs, strict=True), start=1):
        yield (str(number), *(cell for cells in pair for cell in cells))


def _row(
    running: Running, rules: Preemption, said: str, gpus: int, priority: int, queues: int
) -> tuple[str, ...]:
    """Decide one example among as many queues of four GPUs each."""
    holdings, waiting = _state(running, {"team-a": rules}, queues, 4, Settings())
    waiting.push(_workload("team-a", "new", gpus, priority))
    (entry,) = cycle(holdings, waiting, NOW).entries
    what = ", ".join(f"`{name}`" for _, name, _, _ in running)
    return what, said, str(gpus), str(priority), _victims(entry)


def _fair(weight: float) -> Iterator[tuple[str, str]]:
    jobs = tuple(("team-b", f"b-{number}", 1, 0) for number in range(1, 10))
    settings = Settings(fair_sharing=(FINAL, INITIAL))
    rules = {"team-a": Preemption(reclaim_within_cohort=Policy.ANY)}
    holdings, waiting = _state(jobs, rules, 3, 3, settings, weight)
    for number in range(1, 7):
        waiting.push(_workload("team-a", f"a-{number}", 1, 0))
        said = "none"
        for entry in cycle(holdings, waiting, NOW).of(Outcome.PREEMPTING):
            said = _victims(entry)
            for target in entry.issued:
                holdings.release(target.holder.key)
            (admitted,) = cycle(holdings, waiting, NOW).entries
            assert admitted.outcome is Outcome.ADMITTED
        shares = (cluster_queue_share(holdings, name).published for name in ("team-a", "team-b"))
        yield said, " : ".join(map(str, shares))


def _victims(entry: Entry) -> str:
    found = [f"`{each.holder.workload.name}` ({each.reason})" for each in entry.issued]
    return ", ".join(found) or "none"


def _state(
    running: Running,
    rules: Mapping[str, Preemption],
    queues: int,
    nominal: int,
    settings: Settings,
    weight: float = 1.0,
) -> tuple[Holdings, Queues]:
    quotas = (ResourceGroup((GPU,), (FlavorQuotas(FLAVOR, {GPU: Quota(nominal)}),)),)
    names = [f"team-{letter}" for letter in "abc"[:queues]]
    configuration = Configuration(
        {
            name: ClusterQueue(
                name,
                "research",
                quotas,
                rules.get(name, Preemption()),
                weight=weight if name == "team-a" else 1.0,
            )
            for name in names
        },
        {},
        {FLAVOR: ResourceFlavor(FLAVOR)},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in names},
        {"ns": {}},
        settings,
    )
    holdings, waiting = Holdings(configuration), Queues(configuration)
    for age, (queue, name, gpus, priority) in enumerate(running):
        # What is called newer was created after the preemptor, and got its quota before it.
        created = NOW + SECOND if name == "a-newer" else NOW - (99 - age) * SECOND
        workload = replace(_workload(queue, name, gpus, priority), created=Nanos(created))
        waiting.push(workload)
        (entry,) = cycle(holdings, waiting, Nanos(NOW - (99 - age) * SECOND)).entries
        assert entry.outcome is Outcome.ADMITTED, (name, entry.message)
    return holdings, waiting


def _workload(queue: str, name: str, gpus: int, priority: int) -> Workload:
    pods = (PodSet("main", 1, {GPU: gpus}),)
    return Workload("ns", name, f"uid-{name}", f"ns/{queue}", priority, created=NOW, pod_sets=pods)
