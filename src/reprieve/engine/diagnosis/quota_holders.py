"""What a workload lacks of its quota, who holds it, and which rule lets each of them stay.

A flavor is an alternative, so what is missing is told for each flavor that the pods accept, the
nearest first; holders are those of the nearest. A holder stays by the first rule that applies:

1. it leaves already
2. the policy of the workload's ClusterQueue preempts nobody there
3. its ClusterQueue uses no more than its own
4. its priority
5. a minimum runtime that is not over
6. a loop of displacements that is held
7. fair shares
8. it might go, and that would not be enough

Source: specification of the quota plane, sections 3, 5.1, 6.1 and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import Final

from reprieve.engine.diagnosis.model import Blocker
from reprieve.engine.quota.candidates import Preemptor, satisfies
from reprieve.engine.quota.flavors import mismatch
from reprieve.engine.quota.holders import Holder
from reprieve.engine.quota.model import (
    ClusterQueue,
    FlavorResource,
    Policy,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.plans import workload_ref
from reprieve.engine.quota.protection import Spared
from reprieve.engine.quota.requests import pod_set_requests
from reprieve.engine.quota.snapshot import Snapshot
from reprieve.engine.quota.tree import available, exceeds

__all__ = ["Held", "Rule", "Shortage", "accepted_flavors", "asked_amounts", "held_by", "shortages"]

#: So many holders are named; all are counted.
_NAMED: Final = 20


class Rule(StrEnum):
    """Why a holder does not make way."""

    LEAVING = "leaving"
    POLICY = "policy"
    OWN_QUOTA = "own quota"
    PRIORITY = "priority"
    PROTECTED = "protected"
    LOOP = "loop"
    FAIR_SHARE = "fair share"
    NOT_ENOUGH = "not enough"


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing of one flavor, by resource in base units; `share` of what is asked for."""

    flavor: str
    missing: Mapping[str, int]
    share: float


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds what is missing: the largest, and how many stay by each rule."""

    blockers: tuple[Blocker, ...]
    refused: Mapping[str, int]


def asked_amounts(snapshot: Snapshot, workload: Workload, queue: ClusterQueue) -> dict[str, int]:
    """Return what a workload asks for altogether, by resource in base units."""
    asked: Counter[str] = Counter()
    for each in pod_set_requests(workload, snapshot.settings):
        asked.update(each.amounts)
        if queue.group_of("pods") is not None:
            asked["pods"] += each.count
    return {resource: amount for resource, amount in asked.items() if amount}


def accepted_flavors(snapshot: Snapshot, workload: Workload, group: ResourceGroup) -> Iterator[str]:
    """Yield the flavors of a group that all pods accept."""
    for each in group.flavors:
        flavor = snapshot.configuration.flavors.get(each.flavor)
        if flavor is not None and not any(mismatch(flavor, p) for p in workload.pod_sets):
            yield each.flavor


def shortages(snapshot: Snapshot, workload: Workload, queue: int) -> tuple[Shortage, ...]:
    """Return what is missing of each flavor that all pods accept, by group the nearest first.

    A group of which one flavor has room for all of it lacks nothing.
    """
    tree = snapshot.tree
    config = snapshot.configuration.cluster_queues[tree.names[queue]]
    asked = asked_amounts(snapshot, workload, config)
    found: list[Shortage] = []
    for group in config.groups:
        wanted = {name: amount for name, amount in asked.items() if name in group.covered}
        ranked = sorted(
            (
                _shortage(snapshot, queue, flavor, wanted)
                for flavor in accepted_flavors(snapshot, workload, group)
            ),
            key=lambda each: each.share,
        )
        if ranked and ranked[0].missing:
            found += ranked
    return tuple(found)


def held_by(
    snapshot: Snapshot,
    who: Preemptor,
    spared: Spared | None,
    missing: Collection[FlavorResource],
) -> Held:
    """Return who holds what is missing, in the whole cohort tree, and why each stays.

    Args:
        snapshot: the state.
        who: the workload that waits.
        spared: whom it leaves alone, None where there cannot be anybody.
        missing: the flavor-resources that do not suffice.
    """
    need = frozenset(snapshot.tree.column(pair) for pair in missing)
    refused: Counter[str] = Counter()
    found: list[tuple[int, str, Holder, Rule]] = []
    for holder in _holders(snapshot, who.queue, need):
        rule = _rule(snapshot, who, spared, holder, need)
        refused[rule] += 1
        most = max(amount for column, amount in holder.held if column in need)
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


def _shortage(snapshot: Snapshot, queue: int, flavor: str, wanted: Mapping[str, int]) -> Shortage:
    tree, missing, share = snapshot.tree, {}, 0.0
    for resource, amount in wanted.items():
        column = tree.column(FlavorResource(flavor, resource))
        snapshot.add_usage(queue, ((column, 0),))
        left = max(0, available(tree, column, snapshot.usage[column], tree.path[queue]))
        if amount > left:
            missing[resource] = amount - left
            share += (amount - left) / amount
    return Shortage(flavor, missing, share)


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
    if spared is not None and spared(holder):
        return Rule.PROTECTED if holder.key in spared.young else Rule.LOOP
    if not own and snapshot.settings.fair_sharing is not None:
        return Rule.FAIR_SHARE
    return Rule.NOT_ENOUGH
