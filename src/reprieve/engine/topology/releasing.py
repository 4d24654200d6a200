"""Which places a pod set keeps once some of its pods have finished and are not needed any more.

A workload states how many of its pods are not needed, not which. Where all that it still needs are
there and each has its domain, what they do not use is free; before that it keeps everything, since
a pod that is yet to be made has to find its place.

Source: specification of topology-aware scheduling, sections 9 (8) and 10 (6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from reprieve.engine.topology.model import TopologyAssignment

__all__ = ["still_needed"]


def still_needed(
    assignment: TopologyAssignment,
    pods: Sequence[tuple[str, ...] | None],
    needed: int,
) -> TopologyAssignment | None:
    """Return the places of the pods that are left, None where those are all, or not known.

    Args:
        assignment: of the pod set.
        pods: the domain of each of its pods that has not finished, None while it has none.
        needed: how many pods it needs.
    """
    used = Counter(each for each in pods if each is not None)
    known = len(pods) == needed == used.total()
    given = {each.values: each.count for each in assignment.domains}
    if not needed or not known or any(n > given.get(values, 0) for values, n in used.items()):
        return None
    if used.total() == assignment.pods:
        return None
    domains = (replace(each, count=used[each.values]) for each in assignment.domains)
    return replace(assignment, domains=tuple(each for each in domains if each.count))
