"""Finds nodes for members that do not fit one after the other, each on its best node.

1. Members that request only resources are counted against the capacity of all nodes; where a class
   has too little of it nothing is searched.
2. Their nodes are worked out exactly (`covering`), on as many nodes as one search covers.
3. Members with constraints on one another, and what 2 does not answer, are tried in other orders
   and then depth first (`gangs.search`), both bounded in steps.
4. Members with hard constraints on the numbers of pods in domains that fit like that nowhere are
   worked out with these (`evenness`).

Where more members wait than are needed all are tried, then the smallest that are enough; the others
are placed on what is left. Filters have the last word: every member is placed by them. Source:
KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.search import search
from reprieve.engine.scheduling.nodes.covered import Evenness, Instance
from reprieve.engine.scheduling.nodes.covering import Effort, cover
from reprieve.engine.scheduling.nodes.evenness import cases_of, even_limits, passing
from reprieve.engine.scheduling.nodes.needs import Needs, room_of
from reprieve.engine.scheduling.nodes.placing import Choose, Placing, diagnose
from reprieve.engine.scheduling.outcome import Diagnosis
from reprieve.units.ids import Uid

__all__ = ["place_otherwise", "smallest"]

_NODES: Final = 128  # that one exact search covers
_MEMBERS: Final = 256  # of a gang that is searched for, with filters that look at each other


def place_otherwise(
    simulation: Simulation,
    queued: Sequence[Pending],
    scheduled: int,
    minimum: int,
    choose: Choose,
    within: Mask | None,
) -> Placing | None:
    """Place pods in another way than one after the other; None where none is found.

    The pods that are placed stay in the simulation. `scheduled`: pods of the group that have a node
    already. `within`: (nodes,) of the placement that is examined, None for all.
    """
    wanted = max(1, minimum - scheduled)
    if len(queued) < wanted or len(queued) < 2:
        return None
    if any(simulation.refusal(pending) is not None for pending in queued):
        return None
    tries = [list(range(len(queued)))]
    if wanted < len(queued):
        tries.append(smallest(simulation, queued, wanted))
    for chosen in tries:
        nodes = _nodes_for(simulation, [queued[index] for index in chosen], within)
        if nodes is None:
            continue
        at = {queued[index].row.uid: node for index, node in zip(chosen, nodes, strict=True)}
        found = _placed(simulation, queued, at, choose, within)
        if found is not None:
            return found
    return None


def smallest(simulation: Simulation, queued: Sequence[Pending], wanted: int) -> list[int]:
    """Return the places of the pods that request least, so many of them, in order."""
    total = np.maximum(simulation.snapshot.allocatable.sum(axis=0), 1)[1:]
    size = [
        float((simulation.requests_of(pending.pod_class)[1:] / total).max(initial=0.0))
        for pending in queued
    ]
    return sorted(sorted(range(len(queued)), key=lambda index: (size[index], index))[:wanted])


def _nodes_for(
    simulation: Simulation, members: Sequence[Pending], within: Mask | None
) -> list[int] | None:
    """Return a node for each of these members, None where no search finds one."""
    needs = Needs(simulation, members)
    if needs.plain and len(needs.classes) == 1:
        return None  # one after the other is exact for equal members
    free = room_of(simulation, needs)
    passes = np.array([simulation.codes(pending) == 0 for pending in needs.classes])
    if within is not None:
        passes &= within
    if not _enough_room(needs, free, passes):
        return None
    if needs.plain:
        found = _exact(needs, free, passes)
        if found is not None or int(passes.any(axis=0).sum()) <= _NODES:
            return found
    if len(members) > _MEMBERS:
        return None
    # Nodes with the least capacity first.
    order = np.argsort(free.astype(np.float64).sum(axis=1), kind="stable")
    useful: Mask = np.asarray(passes.any(axis=0))
    found = search(simulation, members, order, useful)
    return _evenly(simulation, needs, free, within) if found is None else found


def _evenly(
    simulation: Simulation, needs: Needs, free: I64, within: Mask | None
) -> list[int] | None:
    """Return a node for each member by an exact search over what domains may have."""
    passes = np.array([passing(simulation, pending) for pending in needs.classes])
    if within is not None:
        passes &= within
    useful = np.flatnonzero(passes.any(axis=0))
    evens = even_limits(simulation, needs, np.zeros(0, np.int64), passes)
    if not evens or not len(useful) or len(useful) > _NODES:
        return None
    for case in cases_of(evens)[0]:
        counted = [each.on(useful, (), at) for each, at in zip(evens, case, strict=True)]
        found = cover(_without_units(needs, free[useful], passes[:, useful], counted), Effort())
        if found is not None:
            return assigned(needs, useful.tolist(), found.members)
    return None


def _enough_room(needs: Needs, free: I64, passes: Mask) -> bool:
    """Return whether each class for itself, and all together, fit."""
    for row, count in enumerate(needs.counts):
        asked = needs.amounts[row] > 0
        if not asked.any():
            continue
        slots = np.floor_divide(free[:, asked], needs.amounts[row][asked]).min(axis=1)
        if int(np.clip(slots[passes[row]], 0, count).sum()) < count:
            return False
    total = np.array(needs.counts, np.int64) @ needs.amounts
    there = np.clip(free[passes.any(axis=0)], 0, total).sum(axis=0)
    return bool((there >= total).all())


def _exact(needs: Needs, free: I64, passes: Mask) -> list[int] | None:
    """Return a node for each member by an exact search on the nodes with the most capacity."""
    useful = np.flatnonzero(passes.any(axis=0))
    if len(useful) > _NODES:
        order = np.lexsort(tuple(-free[useful].T))
        useful = np.sort(useful[order[:_NODES]])
    found = cover(_without_units(needs, free[useful], passes[:, useful]))
    return None if found is None else assigned(needs, useful.tolist(), found.members)


def _without_units(
    needs: Needs, free: I64, passes: Mask, even: Sequence[Evenness] = ()
) -> Instance:
    """Return what is to be covered on these nodes where no unit may be evicted."""
    nothing: Mapping[int, tuple[int, ...]] = {}
    return Instance(
        free=[tuple(row) for row in free.tolist()],
        needs=[tuple(row) for row in needs.amounts.tolist()],
        counts=needs.counts,
        allowed=passes.T.tolist(),
        frees=[nothing] * len(free),
        cost=(),
        even=even,
    )


def assigned(needs: Needs, nodes: Sequence[int], members: Sequence[Sequence[int]]) -> list[int]:
    """Return the node of each member, given how many of each class each of these nodes gets."""
    places: list[list[int]] = [[] for _ in needs.classes]
    for node, pattern in zip(nodes, members, strict=True):
        for row, count in enumerate(pattern):
            places[row] += [node] * count
    given = [iter(each) for each in places]
    return [next(given[row]) for row in needs.of]


def _placed(
    simulation: Simulation,
    queued: Sequence[Pending],
    at: Mapping[Uid, int],
    choose: Choose,
    within: Mask | None,
) -> Placing | None:
    """Place pods on these nodes, then the others where they fit; None: filters refuse."""
    placed: list[Placed] = []
    waiting = [pending for pending in queued if pending.row.uid in at]
    while waiting:
        later = []
        for pending in waiting:
            node = at[pending.row.uid]
            if simulation.code_at(pending, node):
                later.append(pending)  # one may need another beside it that comes later
            else:
                placed.append(simulation.place(pending, node))
        if len(later) == len(waiting):
            for pod in reversed(placed):
                simulation.unplace(pod)
            return None
        waiting = later
    nodes, diagnoses = [at.get(pending.row.uid, -1) for pending in queued], []
    for index, pending in enumerate(queued):
        found: Diagnosis | None = None
        if nodes[index] < 0:
            passes = simulation.codes(pending) == 0
            there = np.flatnonzero(passes if within is None else passes & within)
            if len(there):
                nodes[index] = choose(simulation, pending, there)
                simulation.place(pending, nodes[index])
            else:
                found = diagnose(simulation, pending, within)
        diagnoses.append(found)
    return Placing(tuple(nodes), tuple(diagnoses), None)
