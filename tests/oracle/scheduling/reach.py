"""How far victims go, which with `harmOrder` is no further than without it.

The first numbers say how many pods break a budget as section 7.6 counts them, and the priority of
the first victim, the effective one and its own; the rest by how many pods each budget is overdrawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.scheduling import objects, units
from tests.oracle.scheduling.objects import Cluster, Object

Reach = tuple[float, ...]


def of_victims(pods: Sequence[Object], violations: int, cluster: Cluster) -> Reach:
    """`pods`: the most important unit's first, and of these the one of the highest own priority."""
    overdrawn = []
    for budget in cluster.every("pdbs"):
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        going = sum(units.counts(budget, pod) for pod in pods)
        overdrawn.append(max(0, going - allowed))
    nobody = float("-inf")
    highest = max((units.priority_as_victim(pod, cluster) for pod in pods), default=nobody)
    own = objects.own_priority(pods[0]) if pods else nobody
    return (violations, highest, own, *overdrawn)


def within(one: Reach, other: Reach) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
