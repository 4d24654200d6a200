"""InterPodAffinity: required affinity and anti-affinity between pods, over topology domains.

Three tests, each a count of pods per domain: pods that match all affinity terms at once, pods that
match one anti-affinity term, and placed pods with an anti-affinity term that matches the pending
one. Terminating pods count here. Source: specification 21.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, U8, Mask
from reprieve.engine.cluster.facts import Column
from reprieve.engine.cluster.rows import AffinityTerm, PodLabels
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.engine.selectors import selects

__all__ = ["DomainCounts", "InterPodFilter", "compile_interpod", "term_matches"]

_AFFINITY: Final = int(Rejection.POD_AFFINITY)
_ANTI: Final = int(Rejection.POD_ANTI_AFFINITY)
_EXISTING: Final = int(Rejection.EXISTING_ANTI_AFFINITY)
_SHARED: Final = "anti-affinity"


def term_matches(view: View, term: AffinityTerm, pod: PodLabels) -> bool:
    """Return whether a term of some pod matches a pod with this namespace and these labels."""
    if pod.namespace not in term.namespaces and not selects(
        term.namespace_selector, view.snapshot.namespace_labels(pod.namespace)
    ):
        return False
    return selects(term.selector, dict(pod.labels))


class DomainCounts:
    """How much the pods in each domain of one topology key weigh.

    `domain_of_node`: (nodes,), -1 where the key is missing. `counts`: (domains,). `weights`: what a
    pod adds in its domain, by its labels' number, or by its class's if `by_class`: (labels,) or
    (classes,) int64.
    """

    def __init__(self, key: str, domains: Column, weights: I64, *, by_class: bool) -> None:
        """All counts are 0 until `start`."""
        size = len(domains.values)
        self.key = key
        self.domain_of_node: I32 = domains.numbers
        self.weights = weights
        self.by_class = by_class
        self.counts: I64 = np.zeros(size, np.int64)
        # Texts of bytes are made faster than lists, and labels can be as many as pods.
        small = int(weights.max(initial=0)) < 256
        self._weights: Sequence[int] = (
            weights.astype(np.uint8).tobytes() if small else weights.tolist()
        )
        self._alone = np.bincount(domains.numbers[domains.numbers >= 0], minlength=size) == 1

    def start(self, view: View) -> None:
        """Count the pods of the view."""
        snapshot = view.snapshot
        numbers = snapshot.pod_class if self.by_class else snapshot.pod_labels
        there = np.flatnonzero((self.weights > 0).take(numbers) & view.present)
        nodes, weights = snapshot.pod_node[there], self.weights[numbers[there]]
        domains = self.domain_of_node[nodes]
        inside = domains >= 0
        np.add.at(self.counts, domains[inside], weights[inside])
        for pod in view.simulated:
            self.count(pod, 1)

    def nodes(self) -> Mask:
        """Return the nodes of these domains: (nodes,)."""
        table = np.zeros(len(self.counts) + 1, np.bool_)  # number -1 reads the last entry
        np.greater(self.counts, 0, out=table[:-1])
        return table[self.domain_of_node]

    def occupied_at(self, node: int) -> bool:
        """Return whether the node's domain has such a pod."""
        domain = self.domain_of_node.item(node)
        return domain >= 0 and self.counts.item(domain) > 0

    def count(self, pod: Placed, sign: int) -> Reach:
        """Count a pod that was added (1) or removed (-1); return where `occupied` has changed."""
        weight = self._weights[pod.pod_class if self.by_class else pod.labels]
        if not weight:
            return Reach.NOTHING
        domain = self.domain_of_node.item(pod.node)
        if domain < 0:
            return Reach.NOTHING
        before = self.counts.item(domain)
        after = before + sign * weight
        self.counts[domain] = after
        if (before > 0) == (after > 0):
            return Reach.NOTHING
        return Reach.NODE if self._alone[domain] else Reach.DOMAINS


class InterPodFilter:
    """Required pod affinity and anti-affinity of one pod.

    `affinity` and `anti`: one entry per term, by labels; those of `affinity` weigh a pod only if it
    matches all terms. `existing`: one entry per topology key, by class: how many of the class's
    anti-affinity terms with that key match the pending pod. `matches_itself`: whether the pending
    pod satisfies all its own affinity terms (the rule of the first pod).
    """

    def __init__(
        self,
        affinity: tuple[DomainCounts, ...],
        anti: tuple[DomainCounts, ...],
        existing: tuple[DomainCounts, ...],
        *,
        matches_itself: bool,
    ) -> None:
        self.name = FilterName.INTER_POD_AFFINITY
        self.affinity = affinity
        self.anti = anti
        self.existing = existing
        self.matches_itself = matches_itself
        self.matched = sum(int(each.counts.sum()) for each in affinity)
        everything = (*affinity, *anti, *existing)
        self._nodes = len(everything[0].domain_of_node)
        self._labels = _concerned(each for each in everything if not each.by_class)
        self._classes = _concerned(each for each in everything if each.by_class)
        self._codes: U8 | None = None

    @property
    def first(self) -> bool:
        """Return whether the rule of the first pod holds: none runs that it requests but itself."""
        return self.matches_itself and not self.matched

    def codes(self) -> U8:
        if self._codes is None:
            codes = np.zeros(self._nodes, np.uint8)
            for each in self.existing:
                codes[each.nodes()] = _EXISTING
            for each in self.anti:
                codes[each.nodes()] = _ANTI
            for each in self.affinity:
                codes[each.domain_of_node < 0 if self.first else ~each.nodes()] = _AFFINITY
            self._codes = codes
        return self._codes

    def code_at(self, node: int) -> int:
        if self.affinity:
            if self.first:
                if any(each.domain_of_node.item(node) < 0 for each in self.affinity):
                    return _AFFINITY
            elif not all(each.occupied_at(node) for each in self.affinity):
                return _AFFINITY
        for each in self.anti:
            if each.occupied_at(node):
                return _ANTI
        for each in self.existing:
            if each.occupied_at(node):
                return _EXISTING
        return 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        code = self.code_at(node)
        return (Reason(Rejection(code)),) if code else ()

    def add(self, pod: Placed) -> Reach:
        return self._count(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._count(pod, -1)

    def _count(self, pod: Placed, sign: int) -> Reach:
        by_labels = self._labels and self._labels[pod.labels]
        if not (by_labels or (self._classes and self._classes[pod.pod_class])):
            return Reach.NOTHING
        reach = Reach.NOTHING
        first = not self.matched
        for each in self.affinity:
            reach = _further(reach, each.count(pod, sign))
            if each.domain_of_node.item(pod.node) >= 0:
                self.matched += sign * each.weights.item(pod.labels)
        if first != (not self.matched):
            reach = Reach.DOMAINS
        for each in self.anti:
            reach = _further(reach, each.count(pod, sign))
        for each in self.existing:
            reach = _further(reach, each.count(pod, sign))
        if reach is not Reach.NOTHING:
            self._codes = None
        return reach


def compile_interpod(view: View, pending: Pending) -> InterPodFilter | None:
    """Return the filter of a pod with terms of its own, or that some class's term matches.

    The class need not be placed yet: pods that come later are counted from then on.
    """
    snapshot, selection = view.snapshot, selection_of(view)
    entry = snapshot.classes[pending.pod_class]
    own = snapshot.labels[pending.labels]
    assert entry is not None
    assert own is not None
    existing = _existing(view, own)
    if not (entry.affinity or entry.anti_affinity or existing):
        return None
    affinity: list[DomainCounts] = []
    if entry.affinity:
        matching = np.logical_and.reduce([selection.pods_of_term(t) for t in entry.affinity])
        weights = matching.astype(np.int64)
        affinity = [_by_labels(view, term, weights) for term in entry.affinity]
    anti = [
        _by_labels(view, term, selection.pods_of_term(term).astype(np.int64))
        for term in entry.anti_affinity
    ]
    for each in (*affinity, *anti, *existing):
        each.start(view)
    return InterPodFilter(
        tuple(affinity),
        tuple(anti),
        tuple(existing),
        matches_itself=all(term_matches(view, term, own) for term in entry.affinity),
    )


def _by_labels(view: View, term: AffinityTerm, weights: I64) -> DomainCounts:
    key = term.topology_key
    return DomainCounts(key, selection_of(view).domains(key), weights, by_class=False)


def _existing(view: View, own: PodLabels) -> list[DomainCounts]:
    by_key: dict[str, I64] = {}
    for term, classes in _holders(view):
        if term_matches(view, term, own):
            weights = by_key.get(term.topology_key)
            if weights is None:
                weights = np.zeros(len(view.snapshot.classes), np.int64)
                by_key[term.topology_key] = weights
            np.add.at(weights, classes, 1)
    return [
        DomainCounts(key, selection_of(view).domains(key), weights, by_class=True)
        for key, weights in by_key.items()
    ]


def _holders(view: View) -> Iterable[tuple[AffinityTerm, Sequence[int]]]:
    """Return the distinct anti-affinity terms, with the numbers of the classes that hold them."""
    known = view.shared.get(_SHARED)
    if not isinstance(known, tuple):
        holders: dict[AffinityTerm, list[int]] = {}
        for number, entry in enumerate(view.snapshot.classes):
            if entry is not None:
                for term in entry.anti_affinity:
                    holders.setdefault(term, []).append(number)
        known = view.shared[_SHARED] = tuple(holders.items())
    return known


def _concerned(counts: Iterable[DomainCounts]) -> bytes:
    """Return which labels or classes some of these count, by number; empty without any counts."""
    found = [each.weights > 0 for each in counts]
    return np.logical_or.reduce(found).tobytes() if found else b""


def _further(reach: Reach, other: Reach) -> Reach:
    if reach is Reach.DOMAINS or other is Reach.NOTHING:
        return reach
    return other
