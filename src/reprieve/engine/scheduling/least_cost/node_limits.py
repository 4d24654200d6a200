"""What a node may have of members beside resources: by constraints on one another and by claims.

Where each node is a domain of its own (host names) a hard spread constraint and a term of
anti-affinity that members have against themselves are amounts like resources: each member requests
one, a node has so many, and units that match free one for each of their pods. So are the devices
that members claim (`claimed_room`). The search for the least costly units counts them. Wider
domains, and spread constraints on few nodes, are counted exactly (`evenness`).

A spread constraint allows a node to have `maxSkew` more than the emptiest node has, which has at
most the mean, and no more than there is capacity for on any of them: that case bounds all plans,
and another one, which bounds nothing, is what filters rather accept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import PodClass, SpreadConstraint
from reprieve.engine.cluster.snapshot import Flag
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.spread import SpreadConstraintCounts, SpreadFilter
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.claimed_room import claimed_room
from reprieve.engine.scheduling.nodes.evenness import room_for_members
from reprieve.engine.scheduling.nodes.needs import MANY, Needs

__all__ = ["Case", "NodeLimits", "node_limits"]


@dataclass(frozen=True, slots=True)
class Case:
    """What nodes have of each limit: `free` (nodes, limits), with all units there.

    `bounds`: all plans are allowed by this case.
    """

    free: I64
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Amounts that members request beside resources.

    `amounts`: (classes, limits). `frees`: (slots, limits). `cases`: one of them at least.
    """

    amounts: I64
    frees: I64
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit. `frees`: (slots,) what each pod of a unit frees of it.

    `most`: (nodes,) with no unit there; `tight` is less where members are spread evenly.
    """

    amounts: I64  # (classes,)
    frees: I64
    most: I64
    tight: I64


def node_limits(
    simulation: Simulation,
    needs: Needs,
    slots: I64,
    passes: Mask,
    counted: Collection[SpreadConstraint | None],
) -> NodeLimits | None:
    """Return the limits of members, None where there are none.

    Args:
        simulation: without all units.
        needs: of the members.
        slots: of the pods of all units.
        passes: (classes, nodes) which nodes accept a member of a class.
        counted: the constraints that are counted in another way.
    """
    limits = [
        *_spread_limits(simulation, needs, slots, passes, counted),
        *_anti_affinity_limits(simulation, needs, slots),
        *(
            _Limit(each.amounts, each.frees, each.most, each.most)
            for each in claimed_room(simulation, needs, slots)
        ),
    ]
    if not limits:
        return None
    snapshot = simulation.snapshot
    frees = np.stack([each.frees for each in limits], axis=1)
    chosen = np.zeros((len(snapshot.nodes), len(limits)), np.int64)
    np.add.at(chosen, snapshot.pod_node[slots], frees)
    return NodeLimits(
        np.stack([each.amounts for each in limits], axis=1),
        frees,
        tuple(_bounds(limits, chosen)),
    )


def _bounds(limits: Sequence[_Limit], chosen: I64) -> Iterator[Case]:
    most = np.stack([each.most for each in limits], axis=1) - chosen
    tight = np.stack([each.tight for each in limits], axis=1) - chosen
    yield Case(most)
    if (tight < most).any():
        yield Case(tight, bounds=False)


# Spread constraints.


def _spread_limits(
    simulation: Simulation,
    needs: Needs,
    slots: I64,
    passes: Mask,
    counted: Collection[SpreadConstraint | None],
) -> Iterator[_Limit]:
    """Yield the hard constraints of classes that count their own pods, where nodes are domains."""
    found: dict[object, SpreadConstraintCounts] = {}
    asking: dict[object, list[int]] = {}
    for number, pending in enumerate(needs.classes):
        for each in simulation.filters(pending):
            if isinstance(each, SpreadFilter):
                for counts in each.constraints:
                    if counts.constraint in counted:
                        continue
                    if counts.own and counts.existing and _are_nodes(counts.domain_of_node):
                        found.setdefault(counts.constraint, counts)
                        asking.setdefault(counts.constraint, []).append(number)
    room = room_for_members(simulation, needs, passes) if found else None
    for key, counts in found.items():
        assert room is not None
        amounts = np.zeros(len(needs.classes), np.int64)
        amounts[asking[key]] = 1
        members = sum(
            count
            for each, count in zip(needs.classes, needs.counts, strict=True)
            if counts.matching[each.labels]
        )
        yield _of_spread(simulation, counts, slots, members, room, amounts)


def _of_spread(
    simulation: Simulation,
    counts: SpreadConstraintCounts,
    slots: I64,
    members: int,
    room: I64,
    amounts: I64,
) -> _Limit:
    snapshot = simulation.snapshot
    keyed = counts.domain_of_node >= 0
    held = np.where(keyed, counts.counts[counts.domain_of_node], 0)
    counted = counts.eligible & keyed
    frees = _matching(simulation, counts.matching, slots)
    units = np.bincount(snapshot.pod_node[slots], weights=frees, minlength=len(counted))
    skew, staying = counts.constraint.max_skew, members + int(held[counted].sum())
    few = counts.existing < counts.constraint.min_domains
    emptiest = min(
        0 if few else (staying + int(units[counted].sum())) // counts.existing,
        int((held + units + room)[counted].min()),
    )
    even = max(skew, -(-staying // counts.existing)) if emptiest else skew
    most = np.where(counted, skew + emptiest - held, MANY)
    tight = np.where(counted, min(even, skew + emptiest) - held, MANY)
    return _Limit(amounts, frees, most, tight)


# Anti-affinity.


def _anti_affinity_limits(simulation: Simulation, needs: Needs, slots: I64) -> Iterator[_Limit]:
    """Yield the terms of classes against themselves, where nodes are domains."""
    selection = selection_of(simulation)
    asking: dict[object, tuple[Mask, I32, list[int]]] = {}
    for number, pending in enumerate(needs.classes):
        entry: PodClass | None = simulation.snapshot.classes[pending.pod_class]
        for term in entry.anti_affinity if entry is not None else ():
            matching = selection.pods_of_term(term)
            numbers = selection.domains(term.topology_key).numbers
            if matching[pending.labels] and _are_nodes(numbers):
                asking.setdefault(term, (matching, numbers, []))[2].append(number)
    for matching, numbers, classes in asking.values():
        amounts = np.zeros(len(needs.classes), np.int64)
        amounts[classes] = 1
        most = np.where(numbers >= 0, 1, MANY).astype(np.int64)
        yield _Limit(amounts, _matching(simulation, matching, slots), most, most)


def _matching(simulation: Simulation, matching: Mask, slots: I64) -> I64:
    """Return which pods of units count, (slots,): not those that are terminating."""
    snapshot = simulation.snapshot
    there = (snapshot.pod_flags[slots] & Flag.DELETING) == 0
    found: I64 = (matching[snapshot.pod_labels[slots]] & there).astype(np.int64)
    return found


def _are_nodes(numbers: I32) -> bool:
    """Return whether no two nodes are in one domain; those without the label are in none."""
    there = numbers[numbers >= 0]
    return len(there) == len(np.unique(there))
