"""Which domain each gated pod of a placed pod set gets.

Where every pod has a rank the domains are handed out in the order of the ranks, so that neighbours
are close to each other; where a pod has none, two have the same, or one that runs is not where its
rank states, each domain gets the next pods until it is full.

A rank comes from the number that the pod's controller gave it. Replicas that number their pods each
anew have theirs one after the other, and of two pod sets that are placed together the numbers of
the larger one begin where the smaller one ends.

Source: specification of topology-aware scheduling, section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprieve.engine.topology.model import TopologyAssignment

__all__ = ["Numbering", "PlacedPod", "Values", "group_offsets", "places_for"]

Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of a pod set. `at` is its domain, None while it is gated; `rank` None without."""

    key: str
    at: Values | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Numbering:
    """How the pods of a pod set are numbered.

    `count` of them from `offset` on; with `replicas` each replica numbers its own from 0.
    """

    count: int
    offset: int = 0
    replicas: int | None = None

    def rank(self, index: int | None, replica: int | None = None) -> int | None:
        """Return the rank of the pod with a number, None where the number makes no sense.

        `replica`: the number of its replica, where these are numbered.
        """
        if index is None or not 0 <= index < self.count + self.offset:
            return None
        if self.replicas is None:
            rank = index - self.offset
        else:
            if replica is None or not 0 <= replica < self.replicas:
                return None
            size = self.count // self.replicas
            if index >= size:
                return None
            rank = index + replica * size - self.offset
        return rank if 0 <= rank < self.count else None


def group_offsets(pod_sets: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    """Return by name where the numbers of each pod set begin.

    Args:
        pod_sets: name, group (empty for none) and number of pods of each.
    """
    groups: dict[str, list[tuple[str, int]]] = {}
    for name, group, count in pod_sets:
        if group:
            groups.setdefault(group, []).append((name, count))
    offsets = {name: 0 for name, _, _ in pod_sets}
    for members in groups.values():
        if len(members) == 2:
            (first, one), (second, other) = members
            offsets[first if one > other else second] = min(one, other)
    return offsets


def places_for(assignment: TopologyAssignment, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    """Return the domain of each gated pod, by its key; those for which there is none are left out.

    Args:
        assignment: of the pod set.
        pods: those of it that have not finished, in the order in which they are served.
    """
    return _by_rank(assignment, pods) or _greedily(assignment, pods)


def _by_rank(assignment: TopologyAssignment, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    places = [*_one_by_one(assignment)]
    ranks = [each.rank for each in pods]
    if any(rank is None or not 0 <= rank < len(places) for rank in ranks):
        return {}
    if len(set(ranks)) != len(ranks):
        return {}
    found = {}
    for each in pods:
        assert each.rank is not None
        if each.at is None:
            found[each.key] = places[each.rank]
        elif each.at != places[each.rank]:
            return {}
    return found


def _greedily(assignment: TopologyAssignment, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    used = Counter(each.at for each in pods if each.at is not None)
    free: list[Values] = []
    for domain in assignment.domains:
        free += [domain.values] * max(0, domain.count - used[domain.values])
    gated = (each.key for each in pods if each.at is None)
    return dict(zip(gated, free, strict=False))


def _one_by_one(assignment: TopologyAssignment) -> Iterator[Values]:
    for domain in assignment.domains:
        for _ in range(domain.count):
            yield domain.values
