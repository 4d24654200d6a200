"""Finds out whether victims that were chosen as the least costly ones are not: a part of the proof.

Nothing of the search is used. What it finds is always a better choice, never a guess:

1. the members fit when only pods of lower priorities than the highest among the victims are
   removed;
2. the plan states that nothing costs less (gap 0), and one pod would do in place of all victims
   that are evicted alone on a node: with `harmOrder` one that loses less, where several planes
   decide one that holds fewer devices, else one in place of several;
3. the plan states it, and a plan that is made the plain way costs less (`naive_plan`): it has fewer
   pods that budgets do not allow, or as many and less of what counts next.

A plan that does not state it is held to 1 only where the search promises it: not for members whose
filters depend on other pods, nor for members of several sizes on many nodes. For topology
constraints, trees and groups that are evicted by floors neither 1 nor 3 is checked, and 3 not on
many nodes. Source: promise "Irreducible" of the design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.profile import OF_THE_NODE_ALONE, Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.proofs.naive_plan import naive_victims
from reprieve.engine.scheduling.victims.budget_matches import budget_matches
from reprieve.engine.scheduling.victims.harm import devices_of_pods, lost_work
from reprieve.engine.scheduling.victims.hierarchy import whole_groups

__all__ = ["beats_bound", "costs_more_than_plain", "fits_below", "is_checked", "promised"]

_NODES: Final = 64  # on which members of several sizes are placed exactly
_MEMBERS: Final = 64
_STATES: Final = 512  # of such members
_TRIED: Final = 4  # pods in place of the victims of one node


def is_checked(policy: Policy, group: GroupRow | None) -> bool:
    """Return whether other choices for a preemptor are known here."""
    if not policy.best or policy.non_uniform_groups:
        return False
    return group is None or not (group.composite or group.topology_key)


def promised(simulation: Simulation, members: Sequence[Pending]) -> bool:
    """Return whether the search promises the least priority for these members."""
    classes = Counter((pending.pod_class, pending.labels) for pending in members)
    if len(classes) > 1:
        nodes = len(simulation.snapshot.nodes)
        if nodes > _NODES or prod(count + 1 for count in classes.values()) > _STATES:
            return False
    return all(
        isinstance(each, ResourcesFilter) or each.name in OF_THE_NODE_ALONE
        for pending in members
        for each in simulation.filters(pending)
    )


def fits_below(
    simulation: Simulation, members: Sequence[Pending], slots: I64, evictable: Mask, priority: I64
) -> bool:
    """Return whether the members fit without pods of lower priorities than the victims' alone.

    `simulation`: all pods are there; it is of no further use. `slots`: of the victims. `evictable`:
    (slots,) which pods may be victims. `priority`: (slots,) by which victims are compared.
    """
    snapshot, policy = simulation.snapshot, simulation.policy
    lower = evictable & simulation.present & (priority < priority[slots].max())
    groups = whole_groups(snapshot, policy)[snapshot.pod_group.astype(np.intp)]
    # Of a group that is evicted as a whole all may be evicted, or none.
    stays = np.unique(groups[simulation.present & ~lower & (groups >= 0)])
    lower &= ~np.isin(groups, stays)
    gone = np.flatnonzero(lower)
    if len(gone):
        simulation.remove(gone)
    # The largest first, each on the first node: a placement that is found is one.
    need = [simulation.requests_of(pending.pod_class) for pending in members]
    total = np.maximum(snapshot.allocatable.sum(axis=0), 1)
    order = sorted(range(len(members)), key=lambda index: -float((need[index] / total)[1:].max()))
    for index in order:
        nodes = np.flatnonzero(simulation.codes(members[index]) == 0)
        if not len(nodes):
            return False
        simulation.place(members[index], int(nodes[0]))
    return True


def beats_bound(
    simulation: Simulation,
    members: Sequence[tuple[Pending, int]],
    slots: I64,
    evictable: Mask,
    priority: I64,
    now: int,
    *,
    budgets: bool,
) -> int | None:
    """Return a victim in place of which, and of others there, one pod would do; None without one.

    That pod loses less with `harmOrder`, or holds fewer devices where several planes decide, else
    it is one in place of several. A plan that states that nothing costs less (gap 0) has no such
    victim. `simulation`: all pods are there; it is left as it was. `members`: with their nodes.
    `priority`: (slots,) by which victims are compared. `now`: Unix seconds. `budgets`: they count.
    """
    snapshot, policy = simulation.snapshot, simulation.policy
    lost = _weights(snapshot, policy, now)
    alone = whole_groups(snapshot, policy)[snapshot.pod_group.astype(np.intp)] < 0
    free = evictable & alone & (snapshot.pod_node >= 0) & (priority <= priority[slots].max())
    if budgets:
        free &= ~_guarded(simulation)
    free[slots] = False
    victims = slots[alone[slots]]
    for node in np.unique(snapshot.pod_node[victims]).tolist():
        here = victims[snapshot.pod_node[victims] == node]
        others = np.flatnonzero(free & (snapshot.pod_node == node))
        needed = snapshot.pod_requests[here].sum(axis=0)
        enough = (snapshot.pod_requests[others, 1:] >= needed[1:]).all(axis=1)
        if lost is not None:
            enough &= np.clip(lost[others], 0, None) < np.clip(lost[here], 0, None).sum()
        elif len(here) < 2:
            continue
        staying = np.setdiff1d(slots, here)
        for other in others[enough][:_TRIED].tolist():
            if _fit_without(simulation, members, np.append(staying, other)):
                return int(here[0])
    return None


def _fit_without(
    simulation: Simulation, members: Sequence[tuple[Pending, int]], slots: I64
) -> bool:
    """Return whether members pass all filters on their nodes once these pods have left."""
    before = simulation.checkpoint()
    simulation.remove(slots)
    fits = True
    for pending, node in members:
        if simulation.code_at(pending, node):
            fits = False
            break
        simulation.place(pending, node)
    simulation.rollback(before)
    return fits


def costs_more_than_plain(
    simulation: Simulation,
    members: Sequence[tuple[Pending, int]],
    slots: I64,
    evictable: Mask,
    priority: I64,
    now: int,
    *,
    budgets: bool,
) -> bool:
    """Return whether a plan that states that nothing costs less costs more than a plain one.

    A plain one evicts no pod of a higher priority than the victims, and has the members on the
    plan's own nodes or on those that it finds. `simulation`, `members`, `slots`, `evictable` and
    `priority` as in `beats_bound`. `budgets`: they count. Not checked on many nodes.
    """
    snapshot, policy = simulation.snapshot, simulation.policy
    if len(snapshot.nodes) > _NODES or len(members) > _MEMBERS:
        return False
    allowed = evictable & simulation.present & (priority <= priority[slots].max())
    groups = whole_groups(snapshot, policy)[snapshot.pod_group.astype(np.intp)]
    allowed &= ~np.isin(groups, np.unique(groups[simulation.present & ~allowed & (groups >= 0)]))
    weight = _weights(snapshot, policy, now)
    weight = np.ones(len(priority), np.int64) if weight is None else np.clip(weight, 0, None)
    ways = [weight]
    if budgets and (guarded := _guarded(simulation)).any():
        ways.append(weight + guarded * (int(weight.sum()) + 1))

    def cost(victims: I64) -> tuple[int, int]:
        beyond = _beyond_budgets(simulation, victims) if budgets else 0
        return beyond, int(weight[victims].sum())

    paid = cost(slots)
    pending, own = [each for each, _ in members], [node for _, node in members]
    plain = (
        naive_victims(simulation, pending, allowed, each, split=split, at=at)
        for each in ways
        for split in (False, True)
        for at in (None, own)
    )
    return any(found is not None and cost(found) < paid for found in plain)


def _guarded(simulation: Simulation) -> Mask:
    """Return which pods any budget selects: (slots,)."""
    limited = budget_matches(simulation).limited
    found: Mask = limited[simulation.snapshot.pod_labels]
    return found


def _beyond_budgets(simulation: Simulation, slots: I64) -> int:
    """Return how many of these pods budgets do not allow, once for each budget."""
    snapshot, matches = simulation.snapshot, budget_matches(simulation)
    labels, found = snapshot.pod_labels[slots], 0
    for budget, selected in zip(matches.budgets, matches.selected, strict=True):
        hit = slots[np.isin(labels, selected)]
        going = len(hit)
        if budget.disrupted:
            names = (snapshot.pod_keys[slot].partition("/")[2] for slot in hit.tolist())
            going = sum(name not in budget.disrupted for name in names)
        found += max(0, going - budget.allowed)
    return found


def _weights(snapshot: Snapshot, policy: Policy, now: int) -> I64 | None:
    """Return what each pod counts for before the number of pods: (slots,); None: nothing does."""
    if policy.fewest_devices:
        return devices_of_pods(snapshot)
    return lost_work(snapshot, now, policy.max_lost_work) if policy.harm_order else None
