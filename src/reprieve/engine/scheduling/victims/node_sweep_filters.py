"""What a (unit, node) pair of the sweep changes besides resources: exclusions, spread counts.

Each node is judged as if only its own victims were off: pods that exclude the pod from a node may
be victims of that node or not, and each spread constraint has its counts once per node. Source:
specification 8.4 and 7.5 to 7.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.filters.ports import PortsFilter
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.spread import SpreadConstraintCounts
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["Exclusion", "NodeSkew", "exclusions_of", "hits_of", "still_there"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Pods that keep the pod out of their domain."""

    code: Rejection
    pods: Mask  # (slots,)
    domains: I32  # (nodes,), -1 where there is none
    simulated: Callable[[Placed], bool]  # the same for pods that are not in slots


def exclusions_of(simulation: Simulation, pending: Pending) -> Iterator[Exclusion]:
    """Yield whom the pod cannot be with: host ports, and required anti-affinity either way."""
    snapshot, selection = simulation.snapshot, selection_of(simulation)
    for each in simulation.filters(pending):
        if isinstance(each, PortsFilter):
            pods = np.isin(snapshot.pod_class, list(each.classes))
            nodes = np.arange(len(snapshot.nodes), dtype=np.int32)
            yield Exclusion(Rejection.PORTS, pods, nodes, _of_classes(each.classes))
    if FilterName.INTER_POD_AFFINITY not in simulation.profile.filters:
        return
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None, "a pod's class is never free"
    for term in entry.anti_affinity:
        matched = selection.pods_of_term(term)
        domains = selection.domains(term.topology_key).numbers
        yield Exclusion(
            Rejection.POD_ANTI_AFFINITY, matched[snapshot.pod_labels], domains, _of_labels(matched)
        )
    by_key: dict[str, set[int]] = {}
    for number, other in enumerate(snapshot.classes):
        for term in () if other is None else other.anti_affinity:
            if selection.pods_of_term(term)[pending.labels]:
                by_key.setdefault(term.topology_key, set()).add(number)
    for key, classes in by_key.items():
        pods = np.isin(snapshot.pod_class, list(classes))
        domains = selection.domains(key).numbers
        by_class = _of_classes(frozenset(classes))
        yield Exclusion(Rejection.EXISTING_ANTI_AFFINITY, pods, domains, by_class)


def _of_classes(classes: frozenset[int]) -> Callable[[Placed], bool]:
    return lambda pod: pod.pod_class in classes


def _of_labels(matched: Mask) -> Callable[[Placed], bool]:
    return lambda pod: bool(matched[pod.labels])


def hits_of(units: Units, exclusion: Exclusion, pair_unit: I64, pair_node: I64) -> I64:
    """Return how many of each unit's pods keep the pod out of the pair's node: (pairs,)."""
    slots = units.slots()
    slots = slots[exclusion.pods[slots]]
    domains = exclusion.domains.astype(np.int64)
    size = int(domains.max(initial=0)) + 1
    at = domains[units.snapshot.pod_node[slots]]
    found, counts = np.unique((units.of_slot[slots] * size + at)[at >= 0], return_counts=True)
    wanted = pair_unit * size + domains[pair_node]
    hits = np.zeros(len(wanted), np.int64)
    if len(found):
        place = np.minimum(np.searchsorted(found, wanted), len(found) - 1)
        same = (found[place] == wanted) & (domains[pair_node] >= 0)
        hits[same] = counts[place[same]]
    return hits


def still_there(simulation: Simulation, exclusion: Exclusion, pair_node: I64, hits: I64) -> Mask:
    """Return the nodes that excluding pods still guard with the node's own victims off."""
    snapshot, domains = simulation.snapshot, exclusion.domains
    at = domains[snapshot.pod_node[simulation.present & exclusion.pods]]
    simulated = [pod.node for pod in simulation.simulated if exclusion.simulated(pod)]
    at = np.concatenate((at, domains[np.array(simulated, np.int64)]))
    totals = np.bincount(at[at >= 0], minlength=int(domains.max(initial=0)) + 1)
    off = np.zeros(len(snapshot.nodes), np.int64)
    np.add.at(off, pair_node, hits)
    return (domains >= 0) & (totals[domains] - off > 0)


class NodeSkew:
    """One spread constraint, counted separately for each node that is tried: (nodes, domains)."""

    def __init__(
        self, units: Units, constraint: SpreadConstraintCounts, pair_unit: I64, pair_node: I64
    ) -> None:
        snapshot, existing = units.snapshot, constraint.existing
        slots, place = units.flat(pair_unit)
        nodes = snapshot.pod_node[slots]
        counted = constraint.matching[snapshot.pod_labels[slots]] & constraint.eligible[nodes]
        counted &= (snapshot.pod_flags[slots] & Flag.DELETING) == 0
        moved, rows = np.unique(place[counted], return_inverse=True)
        self._row_of_pair = np.full(len(pair_unit), -1, np.int64)
        self._row_of_pair[moved] = np.arange(len(moved))
        self._rows = np.zeros((len(moved), existing), np.int64)
        np.add.at(self._rows, (rows, constraint.domain_of_node[nodes[counted]]), 1)
        self._counts = np.tile(constraint.counts[:existing], (len(snapshot.nodes), 1))
        np.subtract.at(self._counts, pair_node[moved], self._rows)
        self._pair_node = pair_node
        self._domain = constraint.domain_of_node.astype(np.int64)
        self._limit = constraint.constraint.max_skew - constraint.own
        self._few = existing < constraint.constraint.min_domains or not existing

    def passes(self, nodes: I64) -> Mask:
        """Return whether the pod passes on these nodes as they are now."""
        return self._within(nodes, self._counts[nodes])

    def _within(self, nodes: I64, counts: I64) -> Mask:
        domain = self._domain[nodes]
        known = (domain >= 0) & (domain < counts.shape[1])
        own = np.zeros(len(nodes), np.int64)
        own[known] = counts[known, domain[known]]
        least = 0 if self._few else counts.min(axis=1)
        return np.asarray(own - least <= self._limit)

    def admits(self, pairs: I64) -> Mask:
        """Return which pairs could be reprieved, one on each node."""
        found = np.ones(len(pairs), np.bool_)
        moved = np.flatnonzero(self._row_of_pair[pairs] >= 0)
        if len(moved):
            nodes = self._pair_node[pairs[moved]]
            counts = self._counts[nodes] + self._rows[self._row_of_pair[pairs[moved]]]
            found[moved] = self._within(nodes, counts)
        return found

    def add(self, pairs: I64) -> None:
        """Restore pairs, one on each node."""
        moved = pairs[self._row_of_pair[pairs] >= 0]
        self._counts[self._pair_node[moved]] += self._rows[self._row_of_pair[moved]]
