"""How many Workloads wait for which reason, kept by one change at a time.

A Workload counts by what was reported of it last. What waits in a LocalQueue and was not looked at
yet waits behind another one; what waits at a queue that admits none waits for that, whatever was
reported before. A query costs the LocalQueues with pending Workloads, never the Workloads.
"""

from __future__ import annotations

from collections import Counter

from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.quota.model import QueueingStrategy, StopPolicy
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["WaitingCounts", "closed_reason"]


class WaitingCounts:
    """Reasons by Workload, counted by LocalQueue."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, Reason]] = {}
        self._doors: dict[str, Counter[Reason]] = {}
        # Of those that have their quota and are not admitted.
        self._reserved: dict[str, Reason] = {}

    def count(self, key: str, local_queue: str, reason: Reason) -> None:
        """Count a Workload that waits for its quota, in place of what was known of it."""
        known = self._reasons.get(key)
        if known == (local_queue, reason):
            return
        self.forget(key)
        self._reasons[key] = local_queue, reason
        self._doors.setdefault(local_queue, Counter())[reason] += 1

    def count_reserved(self, key: str, reason: Reason) -> None:
        """Count a Workload that has its quota, and waits for something else."""
        self.forget(key)
        self._reserved[key] = reason

    def forget(self, key: str) -> None:
        """Count a Workload no more; one that is not known changes nothing."""
        self._reserved.pop(key, None)
        known = self._reasons.pop(key, None)
        if known is None:
            return
        local_queue, reason = known
        counts = self._doors[local_queue]
        counts[reason] -= 1
        if not counts[reason]:
            del counts[reason]
        if not counts:
            del self._doors[local_queue]

    def reason(self, key: str) -> Reason | None:
        """Return what a Workload counts as, None where nothing was stated of it."""
        known = self._reasons.get(key)
        return self._reserved.get(key) if known is None else known[1]

    def by_reason(self, queues: Queues) -> Counter[Reason]:
        """Return how many wait for each reason."""
        found = Counter(self._reserved.values())
        # Behind the head of a strict queue no Workload is looked at again.
        heads: Counter[str] = Counter()
        for local_queue, number in queues.doors().items():
            closed = closed_reason(queues, local_queue)
            if closed is not None:
                found[closed] += number
                continue
            reported = self._doors.get(local_queue, Counter[Reason]())
            found.update(reported)
            found[Reason.BEHIND_HEAD] += max(0, number - reported.total())
            name = queues.configuration.local_queues[local_queue].cluster_queue
            if _is_strict(queues, name):
                heads[name] += reported[Reason.HELD_BY_OTHERS]
        behind = sum(number - 1 for number in heads.values() if number > 1)
        found[Reason.HELD_BY_OTHERS] -= behind
        found[Reason.BEHIND_HEAD] += behind
        return found


def closed_reason(queues: Queues, local_queue: str) -> Reason | None:
    """Return why no workload of a LocalQueue is admitted; None where one may be."""
    configuration = queues.configuration
    local = configuration.local_queues.get(local_queue)
    queue = None if local is None else configuration.cluster_queues.get(local.cluster_queue)
    if local is None or (local.stop_policy is StopPolicy.NONE and queue is None):
        return Reason.INACTIVE
    if local.stop_policy is not StopPolicy.NONE:
        return Reason.STOPPED
    if queue is not None and queue.stop_policy is not StopPolicy.NONE:
        return Reason.STOPPED
    return Reason.INACTIVE if local.cluster_queue in queues.inactive else None


def _is_strict(queues: Queues, cluster_queue: str) -> bool:
    row = queues.configuration.cluster_queues[cluster_queue]
    return row.strategy is QueueingStrategy.STRICT_FIFO
