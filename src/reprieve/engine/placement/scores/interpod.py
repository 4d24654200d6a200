"""InterPodAffinity's score: who prefers whom in which topology domain (specification 17.4).

A placed pod adds to the domain of its node, for each topology key: the weight of each of the own
pod's preferred terms that matches it, the profile's weight for each of its required affinity terms
that matches the own pod, and the weight of each of its preferred terms that does; anti-affinity
counts negative. Terminating pods count. All of this depends on a pod's class and labels only, so
that it is a table by class plus a table by labels, and a pod that is added or removed changes one
number per key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64
from reprieve.engine.cluster.rows import AffinityTerm, PodClass
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, Score, View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.profile import ScoreName

__all__ = ["compile_inter_pod_affinity"]

_SHARED: Final = "preferring classes"

Preferring: TypeAlias = list[tuple[int, AffinityTerm, int]]  # class, term, weight


@dataclass(frozen=True, slots=True)
class _Domains:
    """One topology key: what pods add there, and what the pods that are there add up to."""

    numbers: I32  # (nodes,) domain of each node, -1 where the key is missing
    by_class: I64
    by_labels: I64
    totals: I64  # (domains + 1,); the last one stays 0, for nodes without the key


class _Preferences:
    """The score of one pending pod."""

    name = ScoreName.INTER_POD_AFFINITY

    def __init__(self, domains: tuple[_Domains, ...]) -> None:
        self._domains = domains

    def values(self, nodes: I64) -> I64:
        raw = np.zeros(len(nodes), np.int64)
        for each in self._domains:
            raw += each.totals[each.numbers[nodes]]
        if not len(raw):
            return raw
        least = int(raw.min())
        spread = int(raw.max()) - least
        if not spread:
            return np.zeros_like(raw)
        scores: I64 = (100.0 * ((raw - least) / spread)).astype(np.int64)
        return scores

    def add(self, pod: Placed) -> Reach:
        return self._count(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._count(pod, -1)

    def _count(self, pod: Placed, sign: int) -> Reach:
        reach = Reach.NOTHING
        for each in self._domains:
            weight = each.by_class.item(pod.pod_class) + each.by_labels.item(pod.labels)
            if weight:
                domain = each.numbers.item(pod.node)
                if domain >= 0:
                    each.totals[domain] += sign * weight
                    reach = Reach.DOMAINS
        return reach


def compile_inter_pod_affinity(view: View, pending: Pending) -> Score | None:
    """Return the score; None where neither the pod nor any class prefers anything about it."""
    snapshot, profile = view.snapshot, view.profile
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None
    own = (*_signed(entry, required_weight=0),)
    if profile.ignore_preferred_terms_of_existing_pods and not own:
        return None
    selection = selection_of(view)
    tables: dict[str, tuple[I64, I64]] = {}

    def table(key: str) -> tuple[I64, I64]:
        if key not in tables:
            classes = np.zeros(len(snapshot.classes), np.int64)
            tables[key] = classes, np.zeros(len(snapshot.labels), np.int64)
        return tables[key]

    for term, weight in own:
        table(term.topology_key)[1][selection.pods_of_term(term)] += weight
    for number, term, weight in _preferring(view):
        if selection.pods_of_term(term)[pending.labels]:
            table(term.topology_key)[0][number] += weight
    if not tables:
        return None
    slots = np.flatnonzero(view.present)
    nodes = snapshot.pod_node[slots]
    pod_class, pod_labels = snapshot.pod_class[slots], snapshot.pod_labels[slots]
    found = []
    for key, (by_class, by_labels) in tables.items():
        domains = selection.domains(key)
        weights = by_class[pod_class] + by_labels[pod_labels]
        totals = np.zeros(len(domains.values) + 1, np.int64)
        counted = np.flatnonzero(weights)
        np.add.at(totals, domains.numbers[nodes[counted]], weights[counted])
        totals[-1] = 0
        found.append(_Domains(domains.numbers, by_class, by_labels, totals))
    score = _Preferences(tuple(found))
    for pod in view.simulated:
        score.add(pod)
    return score


def _preferring(view: View) -> Preferring:
    known = view.shared.get(_SHARED)
    if known is None:
        known = view.shared[_SHARED] = [
            (number, term, weight)
            for number, entry in enumerate(view.snapshot.classes)
            if entry is not None
            for term, weight in _signed(entry, view.profile.hard_pod_affinity_weight)
        ]
    preferring: Preferring = known  # type: ignore[assignment]  # no other code writes this key
    return preferring


def _signed(entry: PodClass, required_weight: int) -> Iterator[tuple[AffinityTerm, int]]:
    """Yield a class's terms that count and their weights, negative for anti-affinity."""
    for preferred in entry.preferred_affinity:
        yield preferred.term, preferred.weight
    for preferred in entry.preferred_anti_affinity:
        yield preferred.term, -preferred.weight
    if required_weight:
        for term in entry.affinity:
            yield term, required_weight
