"""Topology in the assignment of flavors: which flavors do, and where pods get places.

A flavor is chosen by quota alone. On the flavors that were chosen the pod sets that request a
topology, or whose ClusterQueue has no other flavors, are assigned domains. Where quota fits but the
nodes do not, the workload needs preemption; where they would not do either with all that topologies
placed evicted, it fits nowhere.

Source: specification of topology-aware scheduling, sections 1.2, 5.1, 5.2 and 6.1 to 6.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reprieve.engine.quota.assigning.assignment import (
    Assignment,
    Choice,
    Mode,
    NoFitReason,
    PodSetAssignment,
)
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorResource,
    PodSet,
    ResourceFlavor,
    Workload,
)
from reprieve.engine.quota.proofs.places import AskedPlaces
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.topology.model import Outcome, PodsWanted, Topology, TopologyAssignment
from reprieve.engine.topology.places import Places
from reprieve.engine.topology.standing import PlaceSearch

__all__ = [
    "asked_places",
    "asks_for_places",
    "is_tas_only",
    "places_after_checks",
    "planned_without",
    "search_of",
    "topology_mismatch",
    "wanted_of",
    "with_places",
]


def is_tas_only(queue: ClusterQueue, configuration: Configuration) -> bool:
    """Return whether all flavors of a ClusterQueue have a topology."""
    flavors = configuration.flavors
    return all(
        each.flavor in flavors and flavors[each.flavor].topology
        for group in queue.groups
        for each in group.flavors
    )


def topology_mismatch(
    flavor: ResourceFlavor,
    pod_set: PodSet,
    topologies: Mapping[str, Topology],
    places: Places | None,
    tas_only: bool,
    covered: Iterable[str],
) -> str:
    """Return why a flavor does not fit what a pod set requests of topologies, empty if it does."""
    request = pod_set.topology
    asks = request is not None and request.explicit
    if not flavor.topology:
        if not asks or not any(pod_set.requests.get(name) for name in covered):
            return ""
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
    if not asks:
        return "" if tas_only else f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    topology = topologies.get(flavor.topology)
    if topology is None or places is None or flavor.name not in places.trees:
        return f'Flavor "{flavor.name}" information missing in TAS cache'
    assert request is not None
    levels = [request.required or request.preferred, *(each.level for each in request.layers)]
    if any(level and level not in topology.levels for level in levels):
        return f'Flavor "{flavor.name}" does not contain the requested level'
    return ""


def asks_for_places(workload: Workload, queue: ClusterQueue, configuration: Configuration) -> bool:
    """Return whether a workload of a ClusterQueue is given places."""
    if not configuration.settings.gates.topology_aware_scheduling:
        return False
    if any(each.topology is not None and each.topology.explicit for each in workload.pod_sets):
        return True
    return bool(queue.groups) and is_tas_only(queue, configuration)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is requested of the places of each flavor; `faults` by pod set: why one has none.

    `delayed`: the pod sets that get places once checks have provided nodes of their flavor.
    """

    by_flavor: Mapping[str, Sequence[PodsWanted]]
    faults: Mapping[str, str]
    delayed: frozenset[str]


def _asked(
    workload: Workload,
    assigned: Sequence[PodSetAssignment],
    queue: ClusterQueue,
    configuration: Configuration,
    places: Places,
) -> _Asked:
    rows = {each.name: each for each in workload.pod_sets}
    implied = is_tas_only(queue, configuration)
    of_groups: dict[str, set[str]] = {}
    for each in assigned:
        group = rows[each.name].group
        if group:
            of_groups.setdefault(group, set()).update(c.flavor for c in each.flavors.values())
    chosen: dict[str, list[PodsWanted]] = {}
    faults: dict[str, str] = {}
    delayed: set[str] = set()
    for each in assigned:
        row = rows[each.name]
        explicit = _is_explicit(row)
        if not explicit and not implied:
            continue
        flavors = {choice.flavor for choice in each.flavors.values()}
        if not flavors & places.trees.keys() and row.group:
            flavors = of_groups[row.group]
        found = sorted(flavors & places.trees.keys())
        if len(found) != 1:
            more = f"more than one TAS flavor assigned: {', '.join(found)}"
            faults[each.name] = more if found else "no TAS flavor assigned"
            continue
        if workload.admission is None and queue.provides_nodes(found[0]):
            delayed.add(each.name)
            continue
        chosen.setdefault(found[0], []).append(_wanted(row, each.count, implied and not explicit))
    return _Asked(dict(sorted(chosen.items())), faults, frozenset(delayed))


def wanted_of(
    workload: Workload,
    queue: ClusterQueue,
    configuration: Configuration,
    counts: Mapping[str, int],
) -> list[PodsWanted]:
    """Return the pod sets of a workload that are named in `counts`, with so many pods each."""
    implied = is_tas_only(queue, configuration)
    return [
        _wanted(row, counts[row.name], implied and not _is_explicit(row))
        for row in workload.pod_sets
        if row.name in counts
    ]


def _is_explicit(row: PodSet) -> bool:
    return row.topology is not None and row.topology.explicit


def _wanted(row: PodSet, count: int, implied: bool) -> PodsWanted:
    return PodsWanted(
        row.name,
        count,
        row.on_node,
        row.topology if not implied else None,
        implied,
        row.group,
        row.node_selector,
        row.affinity,
        row.preferred,
        row.tolerations,
    )


def _placed_on(asked: _Asked, places: Places, empty: bool) -> dict[str, Outcome]:
    return (places.emptied() if empty else places).assign(asked.by_flavor)


def with_places(
    assignment: Assignment,
    workload: Workload,
    queue: ClusterQueue,
    configuration: Configuration,
    places: Places,
    tree: Tree,
) -> Assignment:
    """Return an assignment of flavors with places, or with what keeps pods from them."""
    if assignment.mode is Mode.NO_FIT:
        return assignment
    asked = _asked(workload, assignment.pod_sets, queue, configuration, places)
    if asked.faults:
        name, fault = next(iter(asked.faults.items()))
        return _failed(assignment, {name: f"failed to assign flavors to pod set {name}: {fault}"})
    assignment = _delaying(assignment, asked.delayed)
    if not asked.by_flavor:
        return assignment
    reasons: dict[str, str] = {}
    if assignment.mode is Mode.FIT:
        found = _placed_on(asked, places, empty=False)
        reasons = _reasons(found, workload, asked)
        if not reasons:
            return _given(assignment, found)
    empty = _placed_on(asked, places, empty=True)
    failed = {name: "" for name, each in empty.items() if each.assignment is None}
    assignment = _with_reasons(assignment, reasons)
    if failed:
        return _failed(assignment, failed)
    names = {each.name for wanted in asked.by_flavor.values() for each in wanted}
    return replace(_preempting(assignment, names, tree), lacks_places=bool(reasons))


def _reasons(found: Mapping[str, Outcome], workload: Workload, asked: _Asked) -> dict[str, str]:
    """Return by pod set why it has no places: of a group the first, of flavors the first by name.

    The others have an empty text.
    """
    without = {name: each.reason for name, each in found.items() if each.assignment is None}
    flavors = {each.name: f for f, wanted in asked.by_flavor.items() for each in wanted}
    reported: set[str] = set()
    first = min((flavors[name] for name in without), default="")
    reasons: dict[str, str] = {}
    for row in workload.pod_sets:
        if row.name in without:
            silent = flavors[row.name] != first or (row.group and row.group in reported)
            reasons[row.name] = "" if silent else without[row.name]
            reported.add(row.group)
    return reasons


def places_after_checks(
    workload: Workload, queue: ClusterQueue, configuration: Configuration, places: Places
) -> tuple[dict[str, TopologyAssignment], str]:
    """Return by pod set the places that were delayed until its checks were ready.

    The second value states why a pod set has none; there are no places then.
    """
    assert workload.admission is not None, "it holds quota"
    due = [
        PodSetAssignment(
            each.name, each.count, {}, {r: Choice(f, Mode.FIT, 0) for r, f in each.flavors.items()}
        )
        for each in workload.admission.pod_sets
        if each.delayed
    ]
    asked = _asked(workload, due, queue, configuration, places)
    found = _placed_on(asked, places, empty=False)
    reasons = dict(asked.faults) or _reasons(found, workload, asked)
    if reasons:
        name, reason = next(((n, text) for n, text in reasons.items() if text), ("", ""))
        return {}, f"couldn't assign flavors to pod set {name}: {reason}"
    return {n: each.assignment for n, each in found.items() if each.assignment is not None}, ""


def _delaying(assignment: Assignment, names: Collection[str]) -> Assignment:
    if not names:
        return assignment
    pod_sets = (replace(e, delayed=True) if e.name in names else e for e in assignment.pod_sets)
    return replace(assignment, pod_sets=tuple(pod_sets))


def _given(assignment: Assignment, found: Mapping[str, Outcome]) -> Assignment:
    pod_sets = tuple(
        replace(each, topology=found[each.name].assignment) if each.name in found else each
        for each in assignment.pod_sets
    )
    return replace(assignment, pod_sets=pod_sets)


def _with_reasons(assignment: Assignment, reasons: Mapping[str, str]) -> Assignment:
    pod_sets = tuple(
        replace(each, reasons=tuple(sorted((*each.reasons, reasons[each.name]))))
        if reasons.get(each.name)
        else each
        for each in assignment.pod_sets
    )
    return replace(assignment, pod_sets=pod_sets)


def _failed(assignment: Assignment, reasons: Mapping[str, str]) -> Assignment:
    failed = _with_reasons(assignment, reasons)
    pod_sets = tuple(
        replace(each, fits=False) if each.name in reasons else each for each in failed.pod_sets
    )
    return replace(failed, pod_sets=pod_sets, no_fit_reason=NoFitReason.TOPOLOGY_PLACEMENT_FAILED)


def _preempting(assignment: Assignment, names: set[str], tree: Tree) -> Assignment:
    """Return it with preemption for all that the pod sets with places request."""
    need = set(assignment.need)
    pod_sets = []
    for each in assignment.pod_sets:
        if each.name in names:
            flavors = {r: replace(c, mode=Mode.PREEMPT) for r, c in each.flavors.items()}
            need |= {tree.column(FlavorResource(c.flavor, r)) for r, c in flavors.items()}
            each = replace(each, flavors=flavors)
        pod_sets.append(each)
    return replace(assignment, pod_sets=tuple(pod_sets), need=frozenset(need))


def planned_without(
    assignment: Assignment,
    workload: Workload,
    queue: ClusterQueue,
    snapshot: Snapshot,
    targets: Sequence[Target],
) -> Assignment:
    """Return an assignment that needs preemption with the places it has without these.

    Without targets they are those that it would have if no topology had placed anything.
    """
    places, configuration = snapshot.places, snapshot.configuration
    if places is None:
        return assignment
    asked = _asked(workload, assignment.pod_sets, queue, configuration, places)
    if not asked.by_flavor:
        return assignment
    left = places.copy()
    for target in targets:
        left.change(target.holder.placed, -1)
    return _given(assignment, _placed_on(asked, left, empty=not targets))


def search_of(
    assignment: Assignment,
    workload: Workload,
    queue: ClusterQueue,
    configuration: Configuration,
    places: Places | None,
) -> PlaceSearch | None:
    """Return what a search for victims needs of places, None where the workload has none."""
    asked = asked_places(assignment, workload, queue, configuration, places)
    return None if asked is None or places is None else PlaceSearch(places, asked.wanted)


def asked_places(
    assignment: Assignment,
    workload: Workload,
    queue: ClusterQueue,
    configuration: Configuration,
    places: Places | None,
) -> AskedPlaces | None:
    """Return what is requested of places, and what is planned; None where there is neither."""
    if places is None:
        return None
    asked = _asked(workload, assignment.pod_sets, queue, configuration, places)
    if not asked.by_flavor:
        return None
    planned = {e.name: e.topology for e in assignment.pod_sets if e.topology is not None}
    return AskedPlaces(asked.by_flavor, planned)
