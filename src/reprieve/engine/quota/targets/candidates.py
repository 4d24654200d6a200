"""Who may be preempted, and in which order.

The order of candidates, first difference decides:

1. evicted before not evicted
2. other ClusterQueues before the preemptor's own
3. with admission fair sharing, for two of one ClusterQueue and different LocalQueues: the higher
   usage of the LocalQueue first
4. lower effective priority first
5. the lower rank first, where the victim order of another scheduler gave one
6. later quota reservation first; without a reservation it counts as made now
7. by option, idle ones first
8. uid

Rows are sorted by 4 to 8 already (`state`), so the candidates of one policy are a front part of a
list: `cut` finds where it ends.

Source: specification of the quota plane, sections 6.1 and 6.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.holdings.holders import Holder, Row, effective_priority
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Policy, Reason, Settings, Workload
from reprieve.engine.quota.waiting.timing import queue_timestamp

__all__ = [
    "Preemptor",
    "Target",
    "by_local_queue",
    "cut",
    "in_order",
    "order_holders",
    "preemptor",
    "satisfies",
]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The workload that needs capacity: what the policies compare.

    `spares` states which candidates it may not preempt (`protection`), None where it may preempt
    all. `holds` states the same of those alone that would be chosen next.
    """

    workload: Workload
    queue: int
    priority: int
    timestamp: Nanos
    spares: Callable[[Holder], bool] | None = None
    holds: Callable[[Holder], bool] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A workload designated to be preempted, and why."""

    holder: Holder
    reason: Reason


def preemptor(workload: Workload, queue: int, settings: Settings) -> Preemptor:
    """Return `workload` as a preemptor in a ClusterQueue."""
    return Preemptor(
        workload,
        queue,
        effective_priority(workload, settings),
        queue_timestamp(workload, settings),
    )


def satisfies(policy: Policy, who: Preemptor, priority: int, timestamp: Nanos) -> bool:
    """Return whether `who` may preempt a candidate by `policy`."""
    if policy is Policy.ANY:
        return True
    if policy is Policy.LOWER_PRIORITY:
        return who.priority > priority
    if policy is Policy.LOWER_OR_NEWER_EQUAL_PRIORITY:
        return who.priority > priority or (who.priority == priority and who.timestamp < timestamp)
    return False


def cut(rows: Sequence[Row], policy: Policy, who: Preemptor) -> Sequence[Row]:
    """Return the rows that satisfy the policy, in their order."""
    if policy is Policy.ANY:
        return rows
    if policy not in (Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY):
        return ()
    if rows[-1][0] < who.priority:
        return rows
    end = bisect_left(rows, (who.priority,))
    lower = rows[:end]
    if policy is Policy.LOWER_PRIORITY:
        return lower
    equal = rows[end : bisect_left(rows, (who.priority + 1,))]
    return [*lower, *(row for row in equal if who.timestamp < row[4].timestamp)]


def order_holders(left: Row, right: Row, own: int, usage: Mapping[str, float] | None) -> int:
    """Compare two candidates by the criteria of this module; `own` is the preemptor's queue.

    `usage` of LocalQueues, None where admission fair sharing is off.
    """
    a, b = left[4], right[4]
    if a.evicted != b.evicted:
        return -1 if a.evicted else 1
    if (a.queue == own) != (b.queue == own):
        return -1 if a.queue != own else 1
    if usage is not None and a.queue == b.queue and a.workload.queue != b.workload.queue:
        first, second = usage.get(a.workload.queue, 0.0), usage.get(b.workload.queue, 0.0)
        if first != second:
            return -1 if first > second else 1
    return -1 if left[:4] < right[:4] else 1


def in_order(snapshot: Snapshot, rows: Sequence[Row], own: int) -> Sequence[Row]:
    """Return rows of one list of the index in the order in which they are preempted."""
    if not by_local_queue(snapshot):
        return rows
    usage = snapshot.local_queue_usage

    def compare(left: Row, right: Row) -> int:
        return order_holders(left, right, own, usage)

    return sorted(rows, key=cmp_to_key(compare))


def by_local_queue(snapshot: Snapshot) -> bool:
    """Return whether the usage of LocalQueues orders candidates."""
    settings = snapshot.settings
    return settings.admission_fair_sharing and settings.gates.admission_fair_sharing
