"""Which workloads hold the quota that a workload lacks, and which rule protects each of them.

A holder stays by the first rule that applies:

1. it leaves already
2. the policy of the workload's ClusterQueue preempts no work there
3. its ClusterQueue uses no more than its own
4. its priority
5. a minimum runtime that is not over
6. a loop of displacements that is held
7. fair shares
8. the workload would borrow, and may then preempt nothing from others (`quota_causes`)
9. it may be preempted, but that would not be enough

Source: specification of the quota plane, sections 3, 6.1 and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import Final

from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Blocker
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import exceeds
from reprieve.engine.quota.model import FlavorResource, Policy
from reprieve.engine.quota.plans import workload_ref
from reprieve.engine.quota.targets.candidates import Preemptor, satisfies
from reprieve.engine.quota.targets.protection import Spared

__all__ = ["Held", "Rule", "held_by"]

#: So many holders are named; all are counted.
_NAMED: Final = 20


class Rule(StrEnum):
    """Why a holder is not preempted."""

    LEAVING = "leaving"
    POLICY = "policy"
    OWN_QUOTA = "own quota"
    PRIORITY = "priority"
    PROTECTED = "protected"
    LOOP = "loop"
    HARM_BUDGET = "harm budget"
    FAIR_SHARE = "fair share"
    BORROWING = "borrowing"
    NOT_ENOUGH = "not enough"


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds what is missing: the largest, and how many stay by each rule."""

    blockers: tuple[Blocker, ...]
    refused: Mapping[str, int]


def held_by(
    snapshot: Snapshot,
    who: Preemptor,
    spared: Spared | None,
    missing: Collection[FlavorResource],
    cause: Cause | None = None,
    among: Iterable[Holder] | None = None,
) -> Held:
    """Return who holds what is missing, in the whole cohort tree, and why each stays.

    Args:
        snapshot: the state.
        who: the workload that waits.
        spared: which holders the workload may not preempt, None where there cannot be any.
        missing: the flavor-resources that do not suffice.
        cause: what keeps the search from finding victims.
        among: only these, whatever they hold; by default all that hold something of it.
    """
    need = frozenset(snapshot.tree.column(pair) for pair in missing)
    refused: Counter[str] = Counter()
    found: list[tuple[int, str, Holder, Rule]] = []
    for holder in _holders(snapshot, who.queue, need) if among is None else among:
        rule = _rule(snapshot, who, spared, holder, need)
        foreign = holder.queue != who.queue
        if cause is Cause.BORROWING and foreign and rule is Rule.NOT_ENOUGH:
            rule = Rule.BORROWING
        refused[rule] += 1
        most = max((amount for column, amount in holder.held if column in need), default=0)
        found.append((-most, holder.key, holder, rule))
    largest = nsmallest(_NAMED, found, key=lambda each: each[:2])
    blockers = tuple(
        Blocker(workload_ref(holder.workload), _amounts(snapshot, holder, need), str(rule))
        for _, _, holder, rule in largest
    )
    return Held(blockers, {str(rule): n for rule, n in sorted(refused.items())})


def _amounts(snapshot: Snapshot, holder: Holder, need: frozenset[int]) -> dict[str, int]:
    amounts: Counter[str] = Counter()
    for column, amount in holder.held:
        if column in need:
            amounts[snapshot.tree.flavor_resources[column].resource] += amount
    return dict(amounts)


def _holders(snapshot: Snapshot, queue: int, need: frozenset[int]) -> Iterator[Holder]:
    tree = snapshot.tree
    root = tree.root(queue)
    for node in tree.queues.values():
        if not tree.path[node] or tree.root(node) != root:
            continue
        for (_, columns), rows in snapshot.lists[node].items():
            if not need.isdisjoint(columns):
                for row in rows:
                    if any(column in need for column, _ in row[4].held):
                        yield row[4]


def _rule(
    snapshot: Snapshot,
    who: Preemptor,
    spared: Spared | None,
    holder: Holder,
    need: frozenset[int],
) -> Rule:
    tree = snapshot.tree
    rules = snapshot.configuration.cluster_queues[tree.names[who.queue]].preemption
    own = holder.queue == who.queue
    policy = rules.within_cluster_queue if own else rules.reclaim_within_cohort
    if holder.evicted:
        return Rule.LEAVING
    if policy in (Policy.NEVER, Policy.UNSET):
        return Rule.POLICY
    if not own and not exceeds(tree, snapshot.usage, holder.queue, need):
        return Rule.OWN_QUOTA
    if not satisfies(policy, who, holder.priority, holder.timestamp):
        return Rule.PRIORITY
    if spared is not None and spared.by_budget(holder):
        return Rule.HARM_BUDGET
    if spared is not None and spared(holder):
        return Rule.PROTECTED if holder.key in spared.young else Rule.LOOP
    if not own and snapshot.settings.fair_sharing is not None:
        return Rule.FAIR_SHARE
    return Rule.NOT_ENOUGH
