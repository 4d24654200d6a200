"""Who holds quota, and the order in which the holders of one ClusterQueue are preempted.

    1. lower effective priority first
    2. the lower rank first, where the victim order of another scheduler gave one
    3. later quota reservation first; by option, the last save where that is later (`harm`)
    4. by option, idle ones first
    5. uid, then namespace/name

They are kept in that order apart by the set of flavor-resources that they hold, so that a search
reads only the front of the lists it needs.

Source: specification of the quota plane, sections 3.2 and 6.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.model import Settings, Workload
from reprieve.engine.topology.places import Placed

__all__ = [
    "Borrowers",
    "Gathered",
    "Holder",
    "Kind",
    "Lists",
    "Row",
    "effective_priority",
    "row_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What harm budgets select holders by; one object for all that are alike."""

    tenant: str
    queue: str
    priority: int


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A workload that holds quota.

    `evicted` states that it is preempted already, `idle` that it is to be preferred as such,
    `since` from when on its work counts as not saved. `held` are amounts by flavor-resource;
    `columns` the flavor-resources of its flavors, also those of which it holds nothing; `devices`
    how many devices that are; `placed` the places of its pods in flavors with a topology.
    """

    workload: Workload
    key: str
    queue: int
    priority: int
    timestamp: Nanos
    evicted: bool
    idle: bool
    since: int
    held: tuple[tuple[int, int], ...]
    columns: frozenset[int]
    devices: int
    kind: Kind
    placed: tuple[Placed, ...] = ()


# (priority, rank and minus twice `since`, one less if idle, uid, key, holder)
Row = tuple[int, int, str, str, Holder]
# Rows of one ClusterQueue by (evicted, flavor-resources).
Lists = dict[tuple[bool, frozenset[int]], list[Row]]
# Lists of those who are evicted, and of others, by flavor-resource and node (`borrowers`).
Gathered = tuple[Sequence[Sequence[Row]], Sequence[Sequence[Row]]]
Borrowers = dict[int, dict[int, Gathered]]


_BELOW_RANK = 66  # bits of what decides among those of one rank


def row_of(holder: Holder) -> Row:
    """Return the holder with what it is sorted by."""
    # Half a nanosecond later than any other that reserved at the same instant.
    return (
        holder.priority,
        (holder.workload.rank << _BELOW_RANK) - 2 * holder.since - holder.idle,
        holder.workload.uid,
        holder.key,
        holder,
    )


def effective_priority(workload: Workload, settings: Settings) -> int:
    """Return the priority with its boost, where the gate is on."""
    return workload.priority + (workload.boost if settings.gates.priority_boost else 0)
