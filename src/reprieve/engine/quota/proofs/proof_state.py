"""What a proof of a preemption needs of the snapshot on which the victims were searched.

Where a victim's ClusterQueue is, seen from the preemptor; whether the hierarchy gives the preemptor
an advantage there; what is lacking; whom the policy permits; and whether the preemptor fits. Each
is worked out anew and naively, and once for a proof.

Source: specification of the quota plane, sections 4, 6.1, 6.2 and 6.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.reckoning import Reckoning, Usage
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import (
    AdmittedPodSet,
    FlavorResource,
    Policy,
    Reason,
    Settings,
    Workload,
)
from reprieve.engine.quota.proofs.places import AskedPlaces, PlaceProof

__all__ = ["Alike", "Preempting", "ProofState", "Side", "Victim", "effective"]


@dataclass(frozen=True, slots=True)
class Victim:
    """Who is preempted, and the reason given."""

    holder: Holder
    reason: Reason


# A ClusterQueue, amounts by flavor-resource there, and all flavor-resources: those who have the
# same differ by nothing but their priorities and times.
Alike = tuple[int, tuple[tuple[int, int], ...], frozenset[int]]


@dataclass(frozen=True, slots=True)
class Preempting:
    """One preemption: who requests what, by flavor-resource, at which ClusterQueue, for whom.

    `pod_sets` are the flavors and the numbers of pods from which the requests come; without them it
    is not checked whether they are what the workload needs. `instead`: whom the victims spare, the
    targets of the reference; empty where the victims are those. `places`: what pods request of
    topologies, None where they request nothing of it.
    """

    workload: Workload
    queue: int
    requests: Mapping[int, int]
    victims: tuple[Victim, ...]
    now: Nanos
    pod_sets: tuple[AdmittedPodSet, ...] = ()
    instead: tuple[Holder, ...] = ()
    places: AskedPlaces | None = None


class Side(NamedTuple):
    """Where a victim's ClusterQueue is, seen from the preemptor.

    `common` is the lowest cohort above both, `mine` and `theirs` its children towards the two, and
    `below` the nodes from the victim's queue to `theirs`. For the preemptor's own queue `common`
    is that queue, and the others are empty.
    """

    common: int
    mine: int = -1
    theirs: int = -1
    below: tuple[int, ...] = ()
    advantage: bool = False


class ProofState:
    """The snapshot of the search, as the rules of one proof query it."""

    def __init__(self, plan: Preempting, searched: Snapshot) -> None:
        self.plan = plan
        self.snapshot = searched
        self.tree = searched.tree
        self.reckoning: Reckoning = searched.reckoning
        self.settings: Settings = searched.settings
        name = searched.tree.names[plan.queue]
        self.config = searched.configuration.cluster_queues[name]
        self.rules = self.config.preemption
        self.path = self.reckoning.path(plan.queue)
        self._boosted = self.settings.gates.priority_boost
        self.priority = effective(plan.workload, self.settings)
        self.wanted = {column: n for column, n in plan.requests.items() if n}
        self.before = Usage(self.reckoning, searched.usage)
        lacking = {
            column
            for column, amount in self.wanted.items()
            if amount > self.before.available(plan.queue, column)
        }
        self.places = _places(plan, searched)
        #: Whether the preemptor would get all that it requests without any eviction.
        self.lacks = bool(lacking) or (self.places is not None and self.places.lacks())
        if plan.places is not None:
            lacking |= {searched.tree.column(pair) for pair in _with_places(plan)}
        self.lacking = frozenset(lacking)
        self._sides: dict[int, Side | None] = {plan.queue: Side(plan.queue)}
        self.alike: dict[Alike, list[Victim]] = {}
        for victim in plan.victims:
            holder = victim.holder
            alike = (holder.queue, holder.held, holder.columns)
            self.alike.setdefault(alike, []).append(victim)

    @cached_property
    def borrows(self) -> bool:
        """Whether the preemptor may preempt while it borrows."""
        borrow = self.rules.borrow_within_cohort
        return borrow is not None and borrow.policy not in (Policy.NEVER, Policy.UNSET)

    @cached_property
    def advantages(self) -> Mapping[int, bool]:
        """Return by cohort above the preemptor whether a node below it had enough by itself."""
        found: dict[int, bool] = {}
        advantage, rest = False, self.wanted
        for node in self.path:
            found[node] = advantage
            left = {}
            for column, amount in rest.items():
                quotas, used = self.reckoning.quotas(column), self.before.of(column)[node]
                left[column] = max(0, amount - max(0, quotas.kept[node] - used))
            advantage = advantage or all(
                self.reckoning.quotas(column).subtree[node] >= self.before.of(column)[node] + amount
                for column, amount in rest.items()
            )
            rest = left
        return found

    def side(self, queue: int) -> Side | None:
        """Return where a ClusterQueue is; None for one of another tree or an inactive one."""
        if queue not in self._sides:
            self._sides[queue] = self._find_side(queue)
        return self._sides[queue]

    def _find_side(self, queue: int) -> Side | None:
        theirs, common, below = self.reckoning.path(queue), queue, []
        if theirs[-1] != self.path[-1] or self.tree.names[queue] in self.tree.inactive:
            return None
        for common in theirs:
            if common in self.path:
                break
            below.append(common)
        mine = self.path[self.path.index(common) - 1]
        return Side(common, mine, below[-1], tuple(below), self.advantages[common])

    def policy(self, own: bool) -> Policy:
        """Return the policy for victims of the own queue, or of others."""
        return self.rules.within_cluster_queue if own else self.rules.reclaim_within_cohort

    def permits(self, policy: Policy, workload: Workload) -> bool:
        """Return whether a policy permits to preempt a workload."""
        if policy is Policy.ANY:
            return True
        if policy not in (Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY):
            return False
        priority = workload.priority + (workload.boost if self._boosted else 0)
        if priority != self.priority or policy is Policy.LOWER_PRIORITY:
            return priority < self.priority
        return since(self.plan.workload, self.settings) < since(workload, self.settings)

    @cached_property
    def within_nominal(self) -> bool:
        """Whether fair sharing allows the preemptor to reclaim without a comparison of shares."""
        gate = self.settings.gates.fair_sharing_preempt_within_nominal
        return gate and all(self._is_nominal(self.before, column) for column in self.lacking)

    def _is_nominal(self, usage: Usage, column: int) -> bool:
        queue = self.plan.queue
        then = usage.of(column)[queue] + self.wanted[column]
        return then <= self.reckoning.quotas(column).subtree[queue]

    def fits(self, usage: Usage, borrowing: bool) -> bool:
        """Return whether the preemptor fits, by borrowing only if that is allowed."""
        return all(self.fits_in(usage, column, borrowing) for column in self.wanted)

    def fits_in(self, usage: Usage, column: int, borrowing: bool) -> bool:
        """Return whether one flavor-resource of it fits."""
        if not borrowing and not self._is_nominal(usage, column):
            return False
        return self.wanted[column] <= usage.available(self.plan.queue, column)


def _places(plan: Preempting, snapshot: Snapshot) -> PlaceProof | None:
    if plan.places is None or snapshot.places is None:
        return None
    return PlaceProof(plan.places, snapshot.places)


def _with_places(plan: Preempting) -> Iterator[FlavorResource]:
    """Yield what pod sets with places request: all of it counts as lacking."""
    assert plan.places is not None
    names = {each.name for wanted in plan.places.wanted.values() for each in wanted}
    for each in plan.pod_sets:
        if each.name in names:
            for resource, flavor in each.flavors.items():
                yield FlavorResource(flavor, resource)


def effective(workload: Workload, settings: Settings) -> int:
    """Return the priority with its boost, where the gate is on."""
    return workload.priority + (workload.boost if settings.gates.priority_boost else 0)


def since(workload: Workload, settings: Settings) -> int:
    """Return since when a workload waits, as priorities that are equal are decided."""
    evicted, preempted = workload.evicted, workload.preempted
    why = "" if evicted is None else evicted.reason
    if evicted is not None and (
        why == "AdmissionCheck" or (why == "PodsReadyTimeout" and settings.eviction_timestamp)
    ):
        return evicted.at
    late = preempted is not None and preempted.reason == Reason.IN_COHORT_RECLAIM_WHILE_BORROWING
    if preempted is not None and late and not settings.gates.priority_sorting_within_cohort:
        return preempted.at + MILLISECOND
    return workload.created
