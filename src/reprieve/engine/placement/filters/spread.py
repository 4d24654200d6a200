"""PodTopologySpread: no domain has more matching pods than the emptiest one plus maxSkew.

Counts are exact: the minimum is computed over all domains that exist, at every moment, and
terminating pods never count, so that removing them changes nothing. (The real plugin keeps the two
lowest domains only; specification 21.6 names the three spots and recommends this.) Source:
specification 21.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, U8, Mask
from reprieve.engine.cluster.facts import Column
from reprieve.engine.cluster.rows import PodClass, Selector, SpreadConstraint
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.taints import taints_of
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.engine.placement.spread_constraints import constraints_of
from reprieve.engine.selectors import selects

__all__ = [
    "SpreadConstraintCounts",
    "SpreadFilter",
    "compile_spread",
    "included_nodes",
]

_LABEL: Final = int(Rejection.SPREAD_LABEL)
_SKEW: Final = int(Rejection.SPREAD_SKEW)


def included_nodes(view: View, entry: PodClass, constraint: SpreadConstraint) -> Mask:
    """Return the nodes that the constraint's inclusion policies leave: (nodes,)."""
    found = np.ones(len(view.snapshot.nodes), np.bool_)
    if constraint.honor_affinity:
        found &= selection_of(view).nodes_of_class(entry)
    if constraint.honor_taints:
        found &= taints_of(view).tolerated(entry.tolerations)
    return found


class SpreadConstraintCounts:
    """What one hard constraint counts.

    `domain_of_node`: (nodes,) number of the node's domain, -1 where the key is missing. The first
    `existing` domains have an eligible node, and only they have a minimum; all others count 0.
    `eligible`: (nodes,). `counts`: (domains,) matching pods on eligible ones. `matching`: (labels,)
    the label sets that match. `own`: 1 if the pod matches its own constraint. `limit`: the highest
    count that a domain may have before the pod comes, `maxSkew + minimum - own`.
    """

    def __init__(
        self,
        constraint: SpreadConstraint,
        domains: Column,
        eligible: Mask,
        matching: Mask,
        own: int,
    ) -> None:
        """All counts are 0 until `start`."""
        size = len(domains.values)
        exists = np.zeros(size + 1, np.bool_)
        exists[domains.numbers[eligible]] = True
        exists = exists[:size]
        order = np.argsort(~exists, kind="stable")
        rank = np.full(size + 1, -1, np.int32)  # number -1 reads the last entry
        rank[order] = np.arange(size, dtype=np.int32)
        self.constraint = constraint
        self.domain_of_node: I32 = rank[domains.numbers]
        self.existing = int(exists.sum())
        self.eligible = eligible
        self.matching = matching
        self.own = own
        self.counts: I64 = np.zeros(size, np.int64)
        self._few = self.existing < constraint.min_domains or not self.existing
        self._least = 0
        self._levels: Counter[int] = Counter()
        self._alone = (
            np.bincount(self.domain_of_node[self.domain_of_node >= 0], minlength=size) == 1
        )
        self._matches: bytes = matching.tobytes()
        self._domain_at: Callable[[int], int] = np.where(eligible, self.domain_of_node, -1).item
        self.limit = 0

    @property
    def minimum(self) -> int:
        """Return the lowest count of an existing domain; 0 if there are fewer than minDomains."""
        return 0 if self._few else self._least

    def start(self, nodes: I64) -> None:
        """Count from scratch: `nodes` of matching pods that are not terminating, once for each."""
        on = nodes[self.eligible[nodes]]
        self.counts = np.bincount(self.domain_of_node[on], minlength=len(self.counts))
        existing = self.counts[: self.existing]
        self._levels = Counter(existing.tolist())
        self._least = int(existing.min()) if len(existing) else 0
        self._set_limit()

    def count(self, pod: Placed, change: int) -> Reach:
        """Count a pod that was added (1) or removed (-1), and return whose answers change."""
        if pod.deleting or not self._matches[pod.labels]:
            return Reach.NOTHING
        domain = self._domain_at(pod.node)
        if domain < 0:
            return Reach.NOTHING
        before = self.counts.item(domain)
        after = before + change
        self.counts[domain] = after
        levels = self._levels
        levels[before] -= 1
        levels[after] += 1
        if after < self._least:
            self._least = after
        elif before == self._least and not levels[before]:
            del levels[before]
            self._least = after
        limit = self.limit
        self._set_limit()
        if limit != self.limit:
            return Reach.DOMAINS
        if (before <= limit) == (after <= limit):
            return Reach.NOTHING
        return Reach.NODE if self._alone[domain] else Reach.DOMAINS

    def codes(self) -> U8:
        """Return the `Rejection` of each node, 0 where it passes: (nodes,)."""
        table = np.empty(len(self.counts) + 1, np.uint8)
        np.multiply(self.counts > self.limit, np.uint8(_SKEW), out=table[:-1])
        table[-1] = _LABEL
        return table[self.domain_of_node]

    def code_at(self, node: int) -> int:
        """Return the `Rejection` of one node, 0 where it passes."""
        domain = self.domain_of_node.item(node)
        if domain < 0:
            return _LABEL
        return _SKEW if self.counts.item(domain) > self.limit else 0

    def _set_limit(self) -> None:
        self.limit = self.constraint.max_skew + self.minimum - self.own


class SpreadFilter:
    """All hard constraints of one pod, in their order."""

    def __init__(self, constraints: tuple[SpreadConstraintCounts, ...]) -> None:
        self.name = FilterName.POD_TOPOLOGY_SPREAD
        self.constraints = constraints
        self._codes: U8 | None = None

    def codes(self) -> U8:
        if self._codes is None:
            codes = self.constraints[-1].codes()
            for each in reversed(self.constraints[:-1]):
                earlier = each.codes()
                np.copyto(codes, earlier, where=earlier > 0)
            self._codes = codes
        return self._codes

    def code_at(self, node: int) -> int:
        for each in self.constraints:
            code = each.code_at(node)
            if code:
                return code
        return 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        code = self.code_at(node)
        return (Reason(Rejection(code)),) if code else ()

    def add(self, pod: Placed) -> Reach:
        return self._count(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._count(pod, -1)

    def _count(self, pod: Placed, change: int) -> Reach:
        reach = Reach.NOTHING
        for each in self.constraints:
            found = each.count(pod, change)
            if found is not Reach.NOTHING and reach is not Reach.DOMAINS:
                reach = found
        if reach is not Reach.NOTHING:
            self._codes = None
        return reach


def compile_spread(view: View, pending: Pending) -> SpreadFilter | None:
    """Return the filter of a pod with hard constraints."""
    hard = [each for each in constraints_of(view, pending) if each.hard]
    if not hard:
        return None
    snapshot, selection = view.snapshot, selection_of(view)
    entry = _entry(view, pending)
    own = snapshot.labels[pending.labels]
    assert own is not None
    labels = dict(own.labels)
    keyed = np.ones(len(snapshot.nodes), np.bool_)
    for each in hard:
        keyed &= selection.domains(each.topology_key).numbers >= 0
    places: dict[Selector, I64] = {}
    constraints = []
    for each in hard:
        # An empty selector matches the pod itself, but counts no placed pod.
        matching = selection.pods(each.selector or None, (own.namespace,))
        nodes = places.get(each.selector)
        if nodes is None:
            nodes = places[each.selector] = _nodes_of(view, matching)
        counts = SpreadConstraintCounts(
            each,
            selection.domains(each.topology_key),
            keyed & included_nodes(view, entry, each),
            matching,
            int(selects(each.selector, labels)),
        )
        counts.start(nodes)
        constraints.append(counts)
    return SpreadFilter(tuple(constraints))


def _entry(view: View, pending: Pending) -> PodClass:
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    return entry


def _nodes_of(view: View, matching: Mask) -> I64:
    """Return the nodes of the pods that match and are not terminating, once for each."""
    snapshot = view.snapshot
    there = np.flatnonzero(matching.take(snapshot.pod_labels) & view.present)
    there = there[(snapshot.pod_flags[there] & Flag.DELETING) == 0]
    simulated = [p.node for p in view.simulated if matching[p.labels] and not p.deleting]
    return np.concatenate((snapshot.pod_node[there], np.array(simulated, np.int64)))
