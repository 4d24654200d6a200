"""All nodes at once: which units would be evicted for one pod, were it placed on that node.

A (unit, node) pair stands for a unit that has a pod on the node; a whole group is in a pair with
each of its nodes. After all potential victims of a node are off, the pod either fits there or not;
then pairs are reprieved in rounds, the k-th of each node in round k, those that break a budget
first. What a pair changes is its requests on the node, its pods that exclude the pod (host ports,
required anti-affinity, either way), and its counts per spread domain; nothing else is followed, so
`sweepable` states whether that is all the pod needs. Source: specification 8.4 and 7.5 to 7.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.rows import PodClass
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.filters.spread import SpreadFilter
from reprieve.engine.placement.profile import OF_THE_NODE_ALONE, FilterName
from reprieve.engine.placement.reasons import Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.node_sweep_filters import (
    NodeSkew,
    exclusions_of,
    hits_of,
    still_there,
)
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["Swept", "sweep", "sweepable"]

_STATIC: Final = OF_THE_NODE_ALONE | {FilterName.VOLUME_BINDING, FilterName.DYNAMIC_RESOURCES}
_FOLLOWED: Final = frozenset(
    {
        FilterName.NODE_PORTS,
        FilterName.NODE_RESOURCES_FIT,
        FilterName.POD_TOPOLOGY_SPREAD,
        FilterName.INTER_POD_AFFINITY,
    }
)
_MOST_DOMAINS: Final = 64  # counters are kept per node and domain


@dataclass(frozen=True, slots=True)
class Swept:
    """The victims of each node, as pairs.

    `fits`: (nodes,) candidates. `failed`: (nodes,) the first `Rejection` of a node that does not
    accept the pod even without its potential victims, 0 elsewhere. `lacking`: columns of resources
    and what is missing of them there, (nodes, columns). `pair_node`, `pair_unit`: the victims,
    sorted by node and importance; `pair_violating`: their pods that break a budget.
    """

    fits: Mask
    failed: U8
    empty: Mask  # no potential victims
    columns: tuple[int, ...]
    lacking: I64
    pair_node: I64
    pair_unit: I64
    pair_violating: I64


def sweepable(simulation: Simulation, pending: Pending) -> bool:
    """Return whether `sweep` knows all that can keep this pod from a node."""
    entry = _entry(simulation, pending)
    for each in simulation.filters(pending):
        if each.name in _STATIC and not simulation.policy.simulate_claims:
            continue
        if each.name not in _FOLLOWED:
            return False
        if isinstance(each, SpreadFilter) and any(
            len(constraint.counts) > _MOST_DOMAINS for constraint in each.constraints
        ):
            return False
    return not entry.affinity


def sweep(
    simulation: Simulation, pending: Pending, units: Units, budgets: BudgetMatches, nodes: Mask
) -> Swept:
    """Return the victims on each of `nodes` (nodes,)."""
    snapshot = simulation.snapshot
    pairs = _pairs(units, nodes)
    pair_unit, pair_node = pairs.unit, pairs.node
    violating = _violating(units, budgets, pair_unit, pair_node)

    columns, slack = _slack(simulation, pending)
    freed = np.zeros((len(pair_unit), len(columns)), np.int64)
    np.add.at(freed, pairs.of_pod, snapshot.pod_requests[:, list(columns)][pairs.pods])
    np.add.at(slack, pair_node, freed)

    failed = np.zeros(len(snapshot.nodes), np.uint8)
    barred = np.zeros(len(pair_unit), np.bool_)
    tests: list[tuple[Rejection, Mask]] = []
    for exclusion in exclusions_of(simulation, pending):
        hits = hits_of(units, exclusion, pair_unit, pair_node)
        barred |= hits > 0
        tests.append((exclusion.code, still_there(simulation, exclusion, pair_node, hits)))
    skews = [
        NodeSkew(units, constraint, pair_unit, pair_node)
        for each in simulation.filters(pending)
        if isinstance(each, SpreadFilter)
        for constraint in each.constraints
    ]
    tests.extend(_lasting(simulation, pending, nodes))
    lacking = np.minimum(slack, 0)
    tests.append((Rejection.RESOURCES, np.asarray((lacking < 0).any(axis=1))))
    every = np.arange(len(snapshot.nodes))
    tests.extend((Rejection.SPREAD_SKEW, ~skew.passes(every)) for skew in skews)
    for code, refused in sorted(tests, key=lambda test: test[0]):
        failed[refused & (failed == 0)] = code
    counts = np.bincount(pair_node, minlength=len(snapshot.nodes))
    failed[~nodes | (counts == 0)] = 0
    tried = nodes & (failed == 0) & (counts > 0)

    gone = _rounds(tried, pair_node, pair_unit, violating, freed, slack, barred, skews)
    return Swept(
        fits=tried & (np.bincount(pair_node[gone], minlength=len(tried)) > 0),
        failed=failed,
        empty=nodes & (counts == 0),
        columns=columns,
        lacking=lacking,
        pair_node=pair_node[gone],
        pair_unit=pair_unit[gone],
        pair_violating=violating[gone],
    )


def _rounds(
    tried: Mask,
    pair_node: I64,
    pair_unit: I64,
    violating: I64,
    freed: I64,
    slack: I64,
    barred: Mask,
    skews: list[NodeSkew],
) -> Mask:
    """Restore pairs round by round; return those that stay off: (pairs,)."""
    gone = tried[pair_node]
    # Pairs are in order of node and importance; those that break a budget come first on a node.
    count = len(pair_node)
    turn = np.argsort((pair_node * 2 + (violating == 0)) * count + np.arange(count))
    turn = turn[gone[turn] & ~barred[turn]]
    node = pair_node[turn]
    if not len(turn):
        return gone
    starts = np.flatnonzero(np.concatenate(([True], node[1:] != node[:-1])))
    place = np.arange(len(turn)) - np.repeat(starts, np.diff(np.append(starts, len(turn))))
    by_round = np.argsort(place.astype(np.uint16), kind="stable")
    edges = np.searchsorted(place[by_round], np.arange(int(place.max()) + 2))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        pairs = turn[by_round[first:last]]
        left = slack[pair_node[pairs]] - freed[pairs]
        back = (left >= 0).all(axis=1)
        for skew in skews:
            back &= skew.admits(pairs)
        pairs, left = pairs[back], left[back]
        slack[pair_node[pairs]] = left
        for skew in skews:
            skew.add(pairs)
        gone[pairs] = False
    return gone


def _entry(simulation: Simulation, pending: Pending) -> PodClass:
    entry = simulation.snapshot.classes[pending.pod_class]
    assert entry is not None, "a pod's class is never free"
    return entry


def _lasting(
    simulation: Simulation, pending: Pending, nodes: Mask
) -> Iterator[tuple[Rejection, Mask]]:
    """Yield what no removal changes: a node with a shortage may be refused for this as well."""
    for each in simulation.filters(pending):
        if each.name in _STATIC or isinstance(each, SpreadFilter):
            codes = each.codes()
            refused = codes[nodes & (codes > 0)]
            for number in np.unique(refused).tolist() if len(refused) else ():
                if Rejection(number) is not Rejection.SPREAD_SKEW:
                    yield Rejection(number), codes == number


@dataclass(frozen=True, slots=True)
class _Pairs:
    """(unit, node) pairs in order of node and importance: (pairs,).

    `pods`, `of_pod`: slots, and the pair of each one's unit with the pod's own node.
    """

    unit: I64
    node: I64
    pods: I64
    of_pod: I64


def _pairs(units: Units, nodes: Mask) -> _Pairs:
    snapshot, count = units.snapshot, len(units)
    rank = np.empty(count, np.int64)
    order = units.ordered(np.arange(count))
    rank[order] = np.arange(count)
    slots = units.slots()
    where = snapshot.pod_node[slots].astype(np.int64)
    here = nodes[where]
    slots, where = slots[here], where[here]
    unit = units.of_slot[slots]
    packed = where * count + rank[unit]
    if units.group_pods:
        keys, of_pod = np.unique(packed, return_inverse=True)
    else:
        turn = np.argsort(packed)
        keys, of_pod = packed[turn], np.empty(len(packed), np.int64)
        of_pod[turn] = np.arange(len(packed))
    return _Pairs(order[keys % count], keys // count, slots, of_pod)


def _slack(simulation: Simulation, pending: Pending) -> tuple[tuple[int, ...], I64]:
    """Return the checked columns and what is left of them with the pod on each node."""
    for each in simulation.filters(pending):
        if isinstance(each, ResourcesFilter):
            return (0, *each.columns), each.left()
    return (), np.zeros((len(simulation.snapshot.nodes), 0), np.int64)


def _violating(units: Units, budgets: BudgetMatches, pair_unit: I64, pair_node: I64) -> I64:
    """Return how many pods of each pair's unit break a budget, counted per node: (pairs,)."""
    violating = np.zeros(len(pair_unit), np.int64)
    if not budgets.budgets or not len(pair_unit):
        return violating
    slots, place = units.flat(pair_unit)
    labels = units.snapshot.pod_labels[slots]
    count = budgets.count[labels]
    most = int(count.max(initial=0))
    if most == 1 and not any(budget.disrupted for budget in budgets.budgets):
        hit = np.flatnonzero(count)
        budget_of = budgets.first[labels[hit]]
        key = pair_node[place[hit]] * len(budgets.budgets) + budget_of
        grouped = np.argsort(key, kind="stable")
        ranked = key[grouped]
        number = np.arange(len(hit)) - np.searchsorted(ranked, ranked)
        allowed = np.array([budget.allowed for budget in budgets.budgets], np.int64)
        over = number >= allowed[ranked % len(budgets.budgets)]
        np.add.at(violating, place[hit[grouped[over]]], 1)
    elif most:
        _violating_one_by_one(units, budgets, pair_node, slots, place, violating)
    return violating


def _violating_one_by_one(
    units: Units, budgets: BudgetMatches, pair_node: I64, slots: I64, place: I64, violating: I64
) -> None:
    snapshot = units.snapshot
    left: dict[tuple[int, int], int] = {}
    by_labels = budgets.by_labels()
    count = budgets.count[snapshot.pod_labels[slots]]
    for position in np.flatnonzero(count).tolist():
        slot, pair = int(slots[position]), int(place[position])
        node, labels = int(pair_node[pair]), int(snapshot.pod_labels[slot])
        name = snapshot.pod_keys[slot].partition("/")[2]
        for index in by_labels[labels]:
            budget = budgets.budgets[index]
            if name in budget.disrupted:
                continue
            now = left.get((node, index), budget.allowed) - 1
            left[node, index] = now
            if now < 0:
                violating[pair] += 1
                break
