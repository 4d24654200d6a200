"""With profile `best` others are evicted for pods whose node failed, before the whole gang is.

Where no other node has capacity for them:

1. Those that are evicted already are waited for, if the pods have nodes once they have ended.
2. Else workloads of lower priority are preempted that the gang's ClusterQueue may preempt
   (`withinClusterQueue`), and none of another one, since the gang requests no quota: the lowest
   top priority that is enough, of these a single one with the fewest pods, else the first that are
   enough in the order of candidates, without those that are not needed.

Source: specification of topology-aware scheduling, section 9 (6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.model import Policy, Reason
from reprieve.engine.quota.targets.candidates import Preemptor, Target

__all__ = ["Fault", "candidates_for", "faults_of_replacement", "fewest_for"]

_PERMITTED: Final = (Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY)
#: So many sets are tried at most.
_TRIES: Final = 64


class Fault(StrEnum):
    """What is wrong with victims for pods of a failed node."""

    NOT_PERMITTED = "it is no workload of lower priority in the ClusterQueue"
    NOBODY_NEEDED = "its pods have other nodes without a victim"
    NO_NODES = "its pods have no other nodes without all victims"
    COULD_STAY = "it could stay"


Fits = Callable[[Sequence[Holder]], bool]


def candidates_for(who: Preemptor, policy: Policy, holders: Iterable[Holder]) -> list[Holder]:
    """Return who may be preempted for pods of a failed node, the lowest priority first.

    Args:
        who: the gang, with whom it spares.
        policy: `withinClusterQueue` of its ClusterQueue.
        holders: all that hold quota.
    """
    if policy not in _PERMITTED:
        return []
    found = [
        each
        for each in holders
        if each.queue == who.queue
        and each.key != who.workload.key
        and not each.evicted
        and each.placed
        and each.priority < who.priority
        and not any(asked is not None and asked(each) for asked in (who.spares, who.holds))
    ]
    return sorted(found, key=lambda e: (e.priority, -(e.workload.reserved_at or 0), e.workload.uid))


def fewest_for(candidates: Sequence[Holder], fits: Fits) -> tuple[Target, ...]:
    """Return what is preempted, nothing where all of them together are not enough."""
    if not candidates or not fits(candidates):
        return ()
    tries = _TRIES
    low, high = 0, len(levels := sorted({each.priority for each in candidates})) - 1
    while low < high:
        middle = (low + high) // 2
        if fits([each for each in candidates if each.priority <= levels[middle]]):
            high = middle
        else:
            low = middle + 1
    order = [each for each in candidates if each.priority <= levels[low]]
    for each in sorted(order, key=_pods_of)[:tries]:
        if fits([each]):
            return _targets([each])
    low, high = 1, len(order)
    while low < high:
        middle = (low + high) // 2
        if fits(order[:middle]):
            high = middle
        else:
            low = middle + 1
    chosen = order[:low]
    for each in [*reversed(chosen)]:
        fewer = [other for other in chosen if other is not each]
        if fewer and fits(fewer):
            chosen = fewer
    return _targets(chosen)


def faults_of_replacement(
    who: Preemptor, targets: Sequence[Target], fits: Fits
) -> tuple[PlanFault, ...]:
    """Return what is wrong with these victims: none may be spared, none may be protected."""
    gone = [target.holder for target in targets]
    found = [
        PlanFault(Fault.NOT_PERMITTED, each.key)
        for each in gone
        if each.queue != who.queue or each.priority >= who.priority or each.evicted
    ]
    if fits([]):
        found.append(PlanFault(Fault.NOBODY_NEEDED, who.workload.key))
    elif not fits(gone):
        found.append(PlanFault(Fault.NO_NODES, who.workload.key))
    else:
        found += [
            PlanFault(Fault.COULD_STAY, each.key)
            for each in gone
            if fits([other for other in gone if other is not each])
        ]
    return tuple(found)


def _targets(holders: Iterable[Holder]) -> tuple[Target, ...]:
    return tuple(Target(holder, Reason.IN_CLUSTER_QUEUE) for holder in holders)


def _pods_of(holder: Holder) -> int:
    return sum(placed.assignment.pods for _, placed in holder.placed)
