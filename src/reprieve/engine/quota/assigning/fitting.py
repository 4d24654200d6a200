"""What a head gets that fits as it is: known from others of its shape, without another scan.

Where several heads request the same free capacity, all but one are looked at again in the next
cycle, and most of what is ever admitted has the shape of something that was. With one flavor for
each resource, and one flavor-resource requested in all, nothing is left to choose, so that the
assignment of what fits follows from

1. the shape and the names of the pod sets, and the ClusterQueue
2. the configuration
3. the borrowing level of each pod set, with those before it

and capacity is looked up each time. It has no texts of amounts, unlike that of a head that waits.
Source: specification of the quota plane, sections 5.1, 5.2 and 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.quota.assigning.assignment import Assignment, Mode, begins
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.amounts import plus
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available, borrowing_level
from reprieve.engine.quota.model import Configuration, Workload

__all__ = ["Fitting"]

#: So many shapes are known at most, before all are forgotten.
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Fit:
    """A shape: what its pod sets request, each with those before it, and what they got by levels.

    Levels are those of the pod sets, in order.
    """

    names: tuple[str, ...]
    column: int
    amounts: tuple[int, ...]
    assignments: dict[tuple[int, ...], Assignment] = field(default_factory=dict)


class Fitting:
    """Assignments that preempt no workload; `saved` counts how often one was given again."""

    def __init__(self) -> None:
        self.saved = 0
        self._known: dict[tuple[int, object], _Fit] = {}
        self._configuration: Configuration | None = None

    def again(self, snapshot: Snapshot, entry: Entry, shape: object) -> Assignment | None:
        """Return what an entry gets if it fits, None if that is not known."""
        if snapshot.configuration is not self._configuration:
            return None
        known = self._known.get((entry.queue, shape))
        if known is None or known.names != _names(entry.workload) or entry.workload.replaces:
            return None
        tree, column, queue = snapshot.tree, known.column, entry.queue
        if column >= len(snapshot.usage) or not begins(entry.resumed):
            return None
        usage = snapshot.usage[column]
        if known.amounts[-1] > available(tree, column, usage, tree.path[queue]):
            return None
        levels = [borrowing_level(tree, column, usage, queue, each)[0] for each in known.amounts]
        found = known.assignments.get(tuple(levels))
        if found is not None:
            self.saved += 1
        return found

    def record(self, snapshot: Snapshot, entry: Entry, shape: object, found: Assignment) -> None:
        """Keep what an entry got that fits."""
        workload = entry.workload
        if found.mode is not Mode.FIT or len(found.usage) != 1 or workload.replaces:
            return
        if any(each.group for each in workload.pod_sets) or not begins(entry.resumed):
            return
        groups = snapshot.configuration.cluster_queues[entry.cluster_queue].groups
        if any(len(group.flavors) != 1 for group in groups):
            return
        if snapshot.configuration is not self._configuration or len(self._known) >= _MOST:
            self._configuration = snapshot.configuration
            self._known.clear()
        ((column, _),) = found.usage.items()
        total, amounts, levels = 0, [], []
        for each in found.pod_sets:
            for resource, choice in each.flavors.items():
                total = plus(total, each.requests[resource])
                amounts.append(total)
                levels.append(choice.level)
        key, names = (entry.queue, shape), _names(workload)
        known = self._known.get(key)
        if known is None or known.names != names:
            known = self._known[key] = _Fit(names, column, tuple(amounts))
        known.assignments[tuple(levels)] = found


def _names(workload: Workload) -> tuple[str, ...]:
    return tuple([each.name for each in workload.pod_sets])
