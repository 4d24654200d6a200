"""With profile `best` no workload is evicted for places that the preemptor does not use.

1. The places that a workload's victims were chosen for stay its places until it is admitted, if it
   still fits there: decided anew each time, they would be the smallest that suffice then, which are
   others as soon as the first victims are gone.
2. Who fits once those are gone who are evicted already, whoever they were evicted for, waits for
   them and preempts nobody. What others are promised of their places is counted as taken.

Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.model import PlacedPods, TopologyAssignment
from reprieve.engine.topology.places import Places

__all__ = ["as_planned", "fits_after", "places_planned"]


def places_planned(assignment: Assignment) -> dict[str, TopologyAssignment]:
    """Return the places of an assignment, by pod set."""
    return {e.name: e.topology for e in assignment.pod_sets if e.topology is not None}


def as_planned(
    entry: Entry, planned: Mapping[str, TopologyAssignment], snapshot: Snapshot
) -> Assignment | None:
    """Return the entry's assignment with the places that were planned for it.

    None where there were none, where they are not of as many pods, or where it does not fit there
    with its targets gone.
    """
    assignment, places = entry.assignment, snapshot.places
    if assignment is None or places is None or not planned:
        return None
    given = places_planned(assignment)
    if given.keys() != planned.keys() or given == planned:
        return None
    if any(given[name].pods != planned[name].pods for name in given):
        return None
    found = replace(
        assignment,
        pod_sets=tuple(
            replace(each, topology=planned[each.name]) if each.name in planned else each
            for each in assignment.pod_sets
        ),
    )
    left = places.copy()
    for target in entry.targets:
        left.change(target.holder.placed, -1)
    return found if _has_room(replace(entry, assignment=found), left) else None


def _has_room(entry: Entry, places: Places) -> bool:
    tolerations = [each for row in entry.workload.pod_sets for each in row.tolerations]
    for flavor, pods in entry.placed:
        tree = places.trees.get(flavor)
        whole = {**pods.requests, "pods": pods.requests.get("pods", 0) + 1}
        if tree is None or not places.has_room(flavor, PlacedPods(whole, pods.assignment)):
            return False
        own = (*tolerations, *places.flavors[flavor].tolerations)
        leaves = [tree.first[tree.index[each.values]] for each in pods.assignment.domains]
        if tree.by_host and any(first_untolerated(leaf.taints, own) for leaf in leaves):
            return False
        places.change([(flavor, pods)], 1)
    return True


def fits_after(entry: Entry, snapshot: Snapshot, leaving: Iterable[Holder]) -> Assignment | None:
    """Return the entry's assignment without these, None where it needs another victim."""
    gone = [*leaving]
    if not gone or entry.assignment is None:
        return None
    chosen = {each.name: each.count for each in entry.assignment.pod_sets}
    assigner = Assigner(snapshot.without(gone), entry.workload, entry.queue, nobody, None)
    found = assigner.assign([chosen[each.name] for each in entry.workload.pod_sets])
    return found if found.mode is Mode.FIT else None
