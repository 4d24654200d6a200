"""With profile `best` no workload is evicted for places that the preemptor does not use.

1. The places that a workload's victims were chosen for stay its places until it is admitted, if it
   still fits there: decided anew each time, they would be the smallest that suffice then, which are
   others as soon as the first victims have ended.
2. A workload whose victims are on their way keeps its turn, and the flavors that it was planned on,
   also where others keep it from fitting just now.
3. Those who wait for planned places are decided first, the oldest plan before the others: what is
   freed for one is not for another whose own victims still leave.
4. A workload that fits once those have ended that are evicted already, for whichever preemptor,
   waits for them and preempts no work, unless they do not end. What others are promised of their
   places is counted as used.
5. Places that others, who have no quota either, kept for themselves when the victims were chosen
   are none that come free first: while its victims leave it awaits the places of its plan.

Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import ClusterQueue, ResourceGroup, Settings
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.quota.waiting.plans import Reserved
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.places import Places

__all__ = [
    "as_planned",
    "awaits_its_plan",
    "by_plans",
    "fits_after",
    "keeps_its_plan",
    "leaving",
    "places_planned",
    "planned_flavors",
]

#: Outcomes that leave the plan of an entry as it is.
_UNDECIDED: Final = (Outcome.NO_FIT, Outcome.NO_CANDIDATES, Outcome.DEFERRED, Outcome.SKIPPED)


def places_planned(assignment: Assignment) -> dict[str, TopologyAssignment]:
    """Return the places of an assignment, by pod set."""
    return {e.name: e.topology for e in assignment.pod_sets if e.topology is not None}


def planned_flavors(
    planned: Mapping[str, TopologyAssignment], queue: ClusterQueue, places: Places
) -> Iterator[dict[tuple[str, str], str]]:
    """Yield by pod set and resource flavors whose nodes the planned places may be.

    Flavors may have nodes in one domain; there are none where places are none of any flavor.
    """
    able: dict[str, list[tuple[ResourceGroup, str]]] = {}
    for name, assignment in planned.items():
        wanted = {each.values for each in assignment.domains}
        able[name] = [
            (group, each.flavor)
            for group in queue.groups
            for each in group.flavors
            if each.flavor in places.trees and wanted <= places.trees[each.flavor].index.keys()
        ]
    for number in range(max(map(len, able.values()), default=0) if all(able.values()) else 0):
        chosen = {name: rows[min(number, len(rows) - 1)] for name, rows in able.items()}
        yield {
            (name, resource): flavor
            for name, (group, flavor) in chosen.items()
            for resource in group.covered
        }


def by_plans(entries: Sequence[Entry], settings: Settings) -> tuple[list[Entry], list[Entry]]:
    """Return those who wait for planned places, the oldest plan first, and the others."""
    if not settings.best:
        return [], [*entries]
    first = [each for each in entries if each.preempts and each.plan_number]
    first.sort(key=lambda each: each.plan_number)
    return first, [each for each in entries if not (each.preempts and each.plan_number)]


def leaving(
    entry: Entry, holders: Iterable[Holder], ledger: Displacements | None, now: Nanos
) -> dict[str, Holder]:
    """Return by key who is evicted already, for any preemptor, but for those who do not end.

    The owner of a job may keep its pods from ending; no plan waits for it then.
    """
    return {
        each.key: each
        for each in holders
        if each.evicted
        and (ledger is None or ledger.stays(entry.workload, each.workload, now) is None)
    }


def keeps_its_plan(entry: Entry, leaves: Iterable[Holder], tree: Tree) -> bool:
    """Return whether an entry continues to await its victims.

    Those are of its own tree of cohorts, or where its places are planned. What leaves elsewhere is
    no reason to keep others of its ClusterQueue behind it.
    """
    if not entry.planned or entry.outcome not in _UNDECIDED:
        return False
    leaves = [*leaves]
    return bool(_in_planned_places(entry, leaves)) or any(
        tree.root(holder.queue) == tree.root(entry.queue) for holder in leaves
    )


def _in_planned_places(entry: Entry, holders: Iterable[Holder]) -> list[Holder]:
    """Return those who have pods in the places that are planned for an entry."""
    planned = {each.values for found in entry.planned.values() for each in found.domains}
    return [
        holder
        for holder in holders
        if any(d.values in planned for _, pods in holder.placed for d in pods.assignment.domains)
    ]


def awaits_its_plan(
    entry: Entry, snapshot: Snapshot, leaves: Iterable[Holder], reserved: Reserved
) -> Assignment | None:
    """Return the planned assignment of an entry that would use what is reserved for others.

    None where it fits beside them, where none of its victims leaves any more, or where it does not
    fit the plan.
    """
    own = _in_planned_places(entry, leaves)
    if snapshot.places is None or not own or not reserved:
        return None
    beside = snapshot.places.copy()
    for _, placed in reserved:
        beside.change(placed, 1)
    if _has_room(entry, beside):
        return None
    return as_planned(entry, entry.planned, snapshot, own)


def as_planned(
    entry: Entry,
    planned: Mapping[str, TopologyAssignment],
    snapshot: Snapshot,
    leaves: Iterable[Holder] = (),
) -> Assignment | None:
    """Return the entry's assignment with the places that were planned for it.

    None where there were none, where they are not of as many pods, or where it does not fit there
    with its targets evicted and without those that leave.
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
    for holder in {h.key: h for h in (*(t.holder for t in entry.targets), *leaves)}.values():
        left.change(holder.placed, -1)
    return found if _has_room(replace(entry, assignment=found), left) else None


def _has_room(entry: Entry, places: Places) -> bool:
    tolerations = [each for row in entry.workload.pod_sets for each in row.tolerations]
    for flavor, pods in entry.placed:
        tree = places.trees.get(flavor)
        if tree is None or not places.has_room(flavor, pods, slots=True):
            return False
        own = (*tolerations, *places.flavors[flavor].tolerations)
        leaves = [tree.first[tree.index[each.values]] for each in pods.assignment.domains]
        if tree.by_host and any(first_untolerated(leaf.taints, own) for leaf in leaves):
            return False
        places.change([(flavor, pods)], 1)
    return True


def fits_after(entry: Entry, snapshot: Snapshot, leaving: Iterable[Holder]) -> Assignment | None:
    """Return the entry's assignment without these, None where it needs another victim.

    On its own flavors if it fits there, else on those that quota chooses then.
    """
    gone = [*leaving]
    if not gone or entry.assignment is None:
        return None
    own = {
        (each.name, resource): choice.flavor
        for each in entry.assignment.pod_sets
        for resource, choice in each.flavors.items()
    }
    chosen = {each.name: each.count for each in entry.assignment.pod_sets}
    counts, left = [chosen[each.name] for each in entry.workload.pod_sets], snapshot.without(gone)
    for only in (lambda name, resource: own.get((name, resource)), None):
        assigner = Assigner(left, entry.workload, entry.queue, nobody, None, only)
        found = assigner.assign(counts)
        if found.mode is Mode.FIT:
            return found
    return None
