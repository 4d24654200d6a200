"""Chooses the node where a plain pod fits without lower-priority units there.

Each node is a domain of its own, on which the same steps run: all potential victims off, does the
pod fit, then units are reprieved one at a time. All nodes are worked on at once (`sweep`), the k-th
unit of every node in the k-th round; a pod with constraints that need whole filters is tried node
by node (`one_node`). Both give the same candidates. With `harmOrder` a node is chosen as without it
where the victims would reach further otherwise (`reach`). Source: specification, section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.rows import PODS
from reprieve.engine.cluster.snapshot import NO_START, Pending
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import PLUGIN, RESOLVABLE, Code, Reason, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.group_preemption import ongoing
from reprieve.engine.scheduling.least_cost.alternatives import set_harm
from reprieve.engine.scheduling.least_cost.cheapest_node import least_costly_node
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence, pods_of
from reprieve.engine.scheduling.victims.budget_matches import budget_matches
from reprieve.engine.scheduling.victims.floors import NONE_WHOLE, torn_groups
from reprieve.engine.scheduling.victims.harm import lost_pods
from reprieve.engine.scheduling.victims.node_bounds import bounds_of
from reprieve.engine.scheduling.victims.node_by_node import (
    NO_VICTIMS,
    Candidates,
    Statuses,
    each_node,
    joined,
)
from reprieve.engine.scheduling.victims.node_sweep import Swept, sweep, sweepable
from reprieve.engine.scheduling.victims.reach import own_priorities, reach_of
from reprieve.engine.scheduling.victims.reprieve import NOT_MONOTONE
from reprieve.engine.scheduling.victims.units import Units, potential_units

__all__ = ["Candidates", "choose_node", "find_candidates", "preempt_after", "preempt_for_pod"]

_OFFSET = 2**31


def preempt_for_pod(simulation: Simulation, pending: Pending, policy: Policy) -> Preemption:
    """Return the victims of a pod that no node fits; the simulation is left as it was."""
    return preempt_after(simulation, pending, policy, simulation.codes(pending).copy())


def preempt_after(
    simulation: Simulation, pending: Pending, policy: Policy, codes: U8
) -> Preemption:
    """Return the same, given why each node refused the pod: (nodes,) of `Rejection`."""
    snapshot = simulation.snapshot
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None, "a pod's class is never free"
    if not entry.preempts:
        return _ineligible(Sentence.NOT_ELIGIBLE_POLICY)
    resolvable: Mask = np.isin(codes, [int(each) for each in RESOLVABLE])
    nominated = snapshot.node_index.get(pending.row.nominated, -1)
    counts = nominated >= 0 and bool(resolvable[nominated] or codes[nominated] == 0)
    if counts and ongoing(simulation, [pending], pending.row.priority, policy):
        return _ineligible(Sentence.NOT_ELIGIBLE_TERMINATING)
    candidates = find_winner(simulation, pending, policy, resolvable)
    if not len(candidates):
        return Preemption(
            Code.UNSCHEDULABLE,
            Explanation(Sentence.NO_CANDIDATES, (len(snapshot.nodes),)),
            unhelpful=_unhelpful(candidates.statuses(), len(snapshot.nodes)),
        )
    found = _least_harmful(simulation, pending, policy, candidates)
    if policy.best and found.code is Code.SUCCESS:
        on_node = partial(_on_node, simulation, pending, policy)
        return least_costly_node(simulation, pending, candidates, found, on_node)
    lost = candidates.units.lost
    if lost is None or not lost.any() or _goes_least(simulation, pending, candidates.units, found):
        return found
    candidates = find_winner(simulation, pending, policy, resolvable, by_harm=False)
    without = _least_harmful(simulation, pending, policy, candidates, by_harm=False)
    return found if _within(simulation, found, without) else without


def _on_node(simulation: Simulation, pending: Pending, policy: Policy, node: int) -> Preemption:
    """Return the victims on one node."""
    one = np.zeros(len(simulation.snapshot.nodes), np.bool_)
    one[node] = True
    found = find_candidates(simulation, pending, policy, one)
    if not len(found):
        return Preemption(Code.UNSCHEDULABLE, Explanation(Sentence.NO_CANDIDATES, (1,)))
    return _least_harmful(simulation, pending, policy, found)


def _goes_least(simulation: Simulation, pending: Pending, units: Units, found: Preemption) -> bool:
    """Return whether it is certain that no victims for the pod have less `reach`."""
    if found.violating or not found.victims or not own_priorities(units):
        return False
    if found.victims[0].priority == units.priority.min():
        return True
    if not NOT_MONOTONE.isdisjoint(each.name for each in simulation.filters(pending)):
        return False
    # On every node the highest priority that has to be evicted is the same in any order among
    # equals.
    limited = budget_matches(simulation).limited
    return not limited[units.snapshot.pod_labels[units.slots()]].any()


def _within(simulation: Simulation, found: Preemption, without: Preemption) -> bool:
    """Return whether victims that were chosen by harm reach no further than those without."""
    if without.code is not Code.SUCCESS:
        return True
    snapshot, budgets = simulation.snapshot, budget_matches(simulation)
    most = reach_of(snapshot, without, budgets)
    return found.code is Code.SUCCESS and reach_of(snapshot, found, budgets).within(most)


def _least_harmful(
    simulation: Simulation,
    pending: Pending,
    policy: Policy,
    candidates: Candidates,
    whole: frozenset[int] = NONE_WHOLE,
    *,
    by_harm: bool = True,
) -> Preemption:
    """Return the victims on the best node; `by_harm`: as `harmOrder` wants it, if that is on.

    A node on which a group would be torn is tried again with the group as one unit (`whole`: those
    that are), and compared with the others by what that costs.
    """
    snapshot = simulation.snapshot
    lost = lost_pods(simulation) if policy.non_uniform_groups and by_harm else None
    best: tuple[tuple[int, ...], int, Preemption] | None = None
    tried: set[int] = set()
    while len(tried) < len(candidates):
        chosen = choose_node(candidates, tried)
        tried.add(chosen)
        node = int(candidates.nodes[chosen])
        found = _victims_of(pending, candidates, chosen)
        slots = pods_of(found.victims)
        torn = torn_groups(snapshot, policy, slots)
        if not torn and best is None:
            return found
        harm = set_harm(snapshot, found, lost)
        if best is not None and best[:2] <= (harm, node):
            break
        if torn and torn <= whole:
            continue
        if torn:
            one = np.zeros(len(snapshot.nodes), np.bool_)
            one[node] = True
            more = whole | torn
            again = find_candidates(simulation, pending, policy, one, whole=more, by_harm=by_harm)
            if not len(again):
                continue
            found = _least_harmful(simulation, pending, policy, again, more, by_harm=by_harm)
            if found.code is not Code.SUCCESS:
                continue
            harm = set_harm(snapshot, found, lost)
        if best is None or (harm, node) < best[:2]:
            best = (harm, node, found)
        if not torn:
            break
    if best is None:
        return Preemption(
            Code.UNSCHEDULABLE, Explanation(Sentence.NO_CANDIDATES, (len(snapshot.nodes),))
        )
    return best[2]


def _victims_of(pending: Pending, candidates: Candidates, chosen: int) -> Preemption:
    """Return the victims of one candidate."""
    units = candidates.units
    chosen_units, violating = candidates.victims(chosen)
    victims = units.victims(chosen_units, violating)
    name = units.snapshot.nodes[candidates.nodes[chosen]].name
    pods = sum(len(victim.pods) for victim in victims)
    return Preemption(
        Code.SUCCESS,
        Explanation(Sentence.FOUND_POD, (name, pods)),
        victims=victims,
        nominated=((pending.row.uid, name),),
        violating=int(violating.sum()),
        group_disruptions=int((units.grouped[chosen_units] > 0).sum()),
    )


def _unhelpful(statuses: Statuses, nodes: int) -> tuple[tuple[Reason | Explanation, int], ...]:
    counts: Counter[Reason | Explanation] = Counter()
    for said in statuses.values():
        counts.update(said)
    if nodes > len(statuses):
        counts[Explanation(Sentence.NOT_HELPFUL)] = nodes - len(statuses)
    return tuple(counts.items())


def _ineligible(sentence: Sentence) -> Preemption:
    return Preemption(
        Code.UNSCHEDULABLE, Explanation(sentence), evaluated=False, keep_nominations=True
    )


def find_winner(
    simulation: Simulation, pending: Pending, policy: Policy, nodes: Mask, *, by_harm: bool = True
) -> Candidates:
    """Return candidates among `nodes` (nodes,) of which the best is the best of all of them.

    All candidates, unless it is certain that those left out come after the best one.
    """
    bounds = None
    # With `nonUniformGroups` it is not always the best one that is chosen.
    if not policy.non_uniform_groups and not _stops_early(simulation, int(nodes.sum())):
        bounds = bounds_of(simulation, pending, policy, nodes)
    waves = list(bounds.waves) if bounds is not None else []
    while bounds is not None and waves:
        level = waves.pop(0)
        possible = bounds.within(level)
        if 2 * int(possible.sum()) > int(nodes.sum()):
            break
        found = find_candidates(simulation, pending, policy, possible, by_harm=by_harm)
        if not len(found):
            continue
        violating, first = _first_criteria(found, choose_node(found))
        if violating == 0 and first <= level:
            return found
        if violating == 0:
            # All nodes that can be as good are in one wave more.
            waves = [first]
    return find_candidates(simulation, pending, policy, nodes, by_harm=by_harm)


def _stops_early(simulation: Simulation, nodes: int) -> bool:
    """Return whether the search may end before all of so many nodes were tried."""
    return _wanted(simulation.profile, len(simulation.snapshot.nodes)) < nodes


def _first_criteria(candidates: Candidates, chosen: int) -> tuple[int, int]:
    """Return the first two criteria by which a candidate is chosen (`choose_node`)."""
    units, violating = candidates.victims(chosen)
    first = candidates.units.pods(int(units[0]))
    return int(violating.sum()), int(candidates.units.snapshot.pod_priority[first].max())


def find_candidates(
    simulation: Simulation,
    pending: Pending,
    policy: Policy,
    nodes: Mask,
    *,
    whole: frozenset[int] = NONE_WHOLE,
    by_harm: bool = True,
) -> Candidates:
    """Return the candidates among `nodes` (nodes,), as many as the profile requests.

    `whole`: groups that are evicted as a whole besides those of mode `all`. `by_harm`: their
    victims are chosen as `harmOrder` wants it, if that is on.
    """
    units = potential_units(
        simulation.snapshot,
        simulation.present & simulation.evictable,
        pending.row.priority,
        policy,
        on=nodes,
        lost=lost_pods(simulation) if by_harm else None,
        more=whole,
    )
    budgets = budget_matches(simulation)
    # Nodes that are kept for others as well are few, and each is examined twice (8.7).
    kept = np.zeros(len(nodes), np.bool_)
    kept[list(simulation.nominated)] = True
    if sweepable(simulation, pending):
        swept = sweep(simulation, pending, units, budgets, nodes & ~kept)
        found = _from_sweep(simulation, pending, units, nodes & ~kept, swept)
        if (nodes & kept).any():
            found = joined(found, each_node(simulation, pending, units, budgets, nodes & kept))
    else:
        found = each_node(simulation, pending, units, budgets, nodes)
    return _limited(found, simulation.profile, len(simulation.snapshot.nodes))


def _from_sweep(
    simulation: Simulation, pending: Pending, units: Units, nodes: Mask, swept: Swept
) -> Candidates:
    fits = np.flatnonzero(swept.fits)
    edges = np.append(np.searchsorted(swept.pair_node, fits), len(swept.pair_node))

    def statuses() -> Statuses:
        return _statuses(simulation, pending, nodes, swept)

    return Candidates(
        units,
        fits,
        edges,
        swept.pair_unit,
        swept.pair_violating,
        statuses,
    )


def _statuses(simulation: Simulation, pending: Pending, nodes: Mask, swept: Swept) -> Statuses:
    snapshot = simulation.snapshot
    found: Statuses = dict.fromkeys(np.flatnonzero(swept.empty).tolist(), (NO_VICTIMS,))
    needless = nodes & ~swept.fits & ~swept.empty & (swept.failed == 0)
    for node in np.flatnonzero(needless).tolist():
        found[node] = (Explanation(Sentence.EXPECTED_VICTIM, (snapshot.nodes[node].name,)),)
    for node in np.flatnonzero(nodes & (swept.failed > 0)).tolist():
        code = Rejection(int(swept.failed[node]))
        found[node] = _stated(simulation, pending, code, node)
        if code is Rejection.RESOURCES:
            names = [snapshot.resources[column] for column in swept.columns]
            lacking = swept.lacking[node].tolist()
            found[node] = tuple(
                Reason(Rejection.TOO_MANY_PODS)
                if name == PODS
                else Reason(Rejection.INSUFFICIENT, name)
                for name, amount in zip(names, lacking, strict=True)
                if amount < 0
            )
    return found


def _stated(
    simulation: Simulation, pending: Pending, code: Rejection, node: int
) -> tuple[Reason, ...]:
    """Return the reasons of the filter itself where its code stands for more than one text."""
    plugin = PLUGIN.get(code)
    for each in simulation.filters(pending):
        if code not in RESOLVABLE and each.name is plugin and each.code_at(node) == code:
            return each.reasons_at(node) or (Reason(code),)
    return (Reason(code),)


def _limited(found: Candidates, profile: Profile, nodes: int) -> Candidates:
    """Keep the candidates that a scan from the first node finds before it has enough (8.3)."""
    wanted = _wanted(profile, nodes)
    if wanted >= len(found):
        return found
    clean = np.flatnonzero(np.add.reduceat(found.violating, found.edges[:-1]) == 0)
    if not len(clean):
        return found
    kept = max(wanted, int(clean[0]) + 1)
    return replace(found, nodes=found.nodes[:kept], edges=found.edges[: kept + 1])


def _wanted(profile: Profile, nodes: int) -> int:
    """Return how many candidates among so many nodes are enough."""
    share = nodes * profile.min_candidate_nodes_percentage // 100
    return min(nodes, max(share, profile.min_candidate_nodes_absolute))


def choose_node(candidates: Candidates, without: Collection[int] = ()) -> int:
    """Return the position of the best candidate; the first difference decides (8.6).

    1. fewest pods that break a budget;
    2. lowest priority of the first victim;
    3. with `harmOrder`, least lost work;
    4. lowest sum over the victims of (priority + 2**31);
    5. fewest pods;
    6. latest of the earliest start times among the victims of the highest priority;
    7. first node by name.

    Priorities are the pods' own, not those of their groups. `without`: positions that are out.
    """
    if len(candidates) == 1:
        return 0
    units, edges = candidates.units, candidates.edges
    flat = candidates.unit[: edges[-1]]
    starts = edges[:-1]
    totals = _Totals(units, flat)
    highest = np.maximum.reduceat(totals.highest[flat], starts)
    at_top = totals.highest[flat] == np.repeat(highest, np.diff(edges))
    earliest = np.minimum.reduceat(np.where(at_top, totals.start[flat], NO_START), starts)
    lost: tuple[I64, ...] = ()
    if units.lost is not None:
        lost = (np.add.reduceat(np.clip(units.lost[flat], 0, None), starts),)
    keys = (
        -earliest,
        np.add.reduceat(units.size[flat], starts),
        np.add.reduceat(totals.sum[flat], starts),
        *lost,
        totals.first[flat[starts]],
        np.add.reduceat(candidates.violating[: edges[-1]], starts),
    )
    best = np.arange(len(candidates))
    if without:
        best = np.setdiff1d(best, list(without))
    for key in reversed(keys):
        best = best[key[best] == key[best].min()]
    return int(best[0])


class _Totals:
    """What node choice reads of each unit, from its pods' own priorities: (units,) each."""

    def __init__(self, units: Units, wanted: I64) -> None:
        snapshot = units.snapshot
        priority = snapshot.pod_priority
        self.first = np.zeros(len(units), np.int64)
        self.sum = np.zeros(len(units), np.int64)
        self.highest = np.zeros(len(units), np.int64)
        self.start = np.zeros(len(units), np.int64)
        singles = wanted[wanted < units.singles]  # may name a unit twice
        own = priority[units.first[singles]]
        self.first[singles] = self.highest[singles] = own
        self.sum[singles] = own + _OFFSET
        self.start[singles] = snapshot.pod_start[units.first[singles]]
        for unit in set(wanted[wanted >= units.singles].tolist()):
            pods = units.pods(unit)
            numbers = priority[pods]
            self.sum[unit] = int(numbers.sum()) + _OFFSET * len(pods)
            self.first[unit] = self.highest[unit] = numbers.max()
            self.start[unit] = snapshot.pod_start[pods[numbers == numbers.max()]].min()
