"""PodTopologySpread's score: the fewer matching pods in a node's domain the better (17.3).

A domain's count covers all eligible nodes of the cluster, whether they are scored or not; for
hostname it is the pods of the node itself. How much a constraint weighs depends on how many domains
the scored nodes have. Nodes that lack a key score 0, but not under the built-in defaults. Raw
values are 64-bit floats, rounded half away from zero. Terminating pods do not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import PodClass, SpreadConstraint
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filtering import Placed, Reach, Score, View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.spread import included_nodes
from reprieve.engine.placement.profile import ScoreName
from reprieve.engine.placement.spread_constraints import (
    HOSTNAME,
    by_system_defaults,
    constraints_of,
)

__all__ = ["compile_spread"]


@dataclass(frozen=True, slots=True)
class _Counter:
    """One constraint: which pods it counts, and how many there are by place.

    `places`: for each node the entry of `counts` that its pods count in, the last one, which is
    never read, where they do not count. For hostname places are nodes.
    """

    max_skew: int
    domains: I32  # (nodes,), -1 where the key is missing
    by_node: bool
    matches: Mask  # (labels,)
    places: I64  # (nodes,)
    counts: I64

    def count(self, pod: Placed, sign: int) -> Reach:
        if pod.deleting or not self.matches.item(pod.labels):
            return Reach.NOTHING
        self.counts[self.places.item(pod.node)] += sign
        return Reach.NODE if self.by_node else Reach.DOMAINS

    def weight(self, domains: I32) -> float:
        """Return what one pod weighs when the scored nodes are in these domains."""
        if self.by_node:
            return math.log(len(domains) + 2)
        there = np.zeros(len(self.counts), np.bool_)
        there[domains] = True
        return math.log(int(np.count_nonzero(there[:-1])) + 2)


class _Spreading:
    """The score of one pending pod."""

    name = ScoreName.POD_TOPOLOGY_SPREAD

    def __init__(self, counters: tuple[_Counter, ...], ignored: Mask | None) -> None:
        """`ignored`: (nodes,) that lack a key, None when keys are not needed."""
        self._counters = counters
        self._ignored = ignored

    def values(self, nodes: I64) -> I64:
        if self._ignored is None:
            return self._normalised(nodes)
        scored = ~self._ignored[nodes]
        found = np.zeros(len(nodes), np.int64)
        found[scored] = self._normalised(nodes[scored])
        return found

    def add(self, pod: Placed) -> Reach:
        return self._count(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._count(pod, -1)

    def _count(self, pod: Placed, sign: int) -> Reach:
        reach = Reach.NOTHING
        for each in self._counters:
            found = each.count(pod, sign)
            if found is Reach.DOMAINS or reach is Reach.NOTHING:
                reach = found
        return reach

    def _normalised(self, nodes: I64) -> I64:
        if not len(nodes):
            return np.zeros(0, np.int64)
        total: NDArray[np.float64] = np.zeros(len(nodes), np.float64)
        for each in self._counters:
            domains = each.domains[nodes]
            counts = each.counts[nodes if each.by_node else domains]
            value = counts * each.weight(domains) + (each.max_skew - 1)
            total += np.where(domains >= 0, value, 0.0)
        whole = np.floor(total)
        raw = (whole + (total - whole >= 0.5)).astype(np.int64)
        most = int(raw.max())
        if not most:
            return np.full(len(nodes), 100, np.int64)
        return 100 * (most + int(raw.min()) - raw) // most


def compile_spread(view: View, pending: Pending) -> Score | None:
    """Return the score of soft constraints; None without any."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    constraints = [each for each in constraints_of(view, pending) if not each.hard]
    if not constraints:
        return None
    selection = selection_of(view)
    ignored: Mask | None = None
    if not by_system_defaults(view, pending):
        ignored = np.zeros(len(view.snapshot.nodes), np.bool_)
        for each in constraints:
            ignored |= selection.domains(each.topology_key).numbers < 0
    score = _Spreading(
        tuple(_counter(view, pending, entry, each, ignored) for each in constraints), ignored
    )
    for pod in view.simulated:
        score.add(pod)
    return score


def _counter(
    view: View,
    pending: Pending,
    entry: PodClass,
    constraint: SpreadConstraint,
    ignored: Mask | None,
) -> _Counter:
    snapshot = view.snapshot
    selection = selection_of(view)
    domains = selection.domains(constraint.topology_key)
    # An empty selector counts no pod here.
    matches = selection.pods(constraint.selector or None, (pending.row.namespace,))
    by_node = constraint.topology_key == HOSTNAME
    if by_node:
        places: I64 = np.arange(len(snapshot.nodes), dtype=np.int64)
        size = len(snapshot.nodes) + 1
    else:
        size = len(domains.values) + 1
        left_out = (domains.numbers < 0) | ~included_nodes(view, entry, constraint)
        if ignored is not None:
            left_out |= ignored
        places = np.where(left_out, size - 1, domains.numbers).astype(np.int64)
    counted = view.present & matches[snapshot.pod_labels]
    counted &= (snapshot.pod_flags & Flag.DELETING) == 0
    counts = np.bincount(places[snapshot.pod_node[counted]], minlength=size).astype(np.int64)
    return _Counter(constraint.max_skew, domains.numbers, by_node, matches, places, counts)
