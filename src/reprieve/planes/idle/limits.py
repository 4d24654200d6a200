"""What the priority classes and queues of pods state of delays and notices, in the idle plane.

They are read where the section has `preemptionDelay`, or allows notices at all. A root is evicted
with all of its pods: of delays the longest counts, and of the notices allowed the least. A root
without pods is bound by no class and queue. Source: `docs/preemption-delay.md`,
`docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubeworld.units.clock import Clock
from reprieve.engine.notice.granting import MOST
from reprieve.planes.common.mirrors.stated_limits import (
    ClassLimits,
    QueueLimits,
    decided_delay,
    least_notice,
    queue_of,
)
from reprieve.planes.common.mirrors.watching import Watch, Watcher, settled
from reprieve.planes.idle.records import PodRecord

__all__ = ["PodLimits"]


class PodLimits:
    """Answers for pods; iterated it gives the watches behind the answers."""

    def __init__(self, watcher: Watcher) -> None:
        self._classes = ClassLimits(watcher)
        self._queues = QueueLimits(watcher)

    def __iter__(self) -> Iterator[Watch[Any, Any]]:
        yield from self._classes
        yield from self._queues

    async def settled(self, clock: Clock) -> None:
        """Wait until queues have been listed, or it is known why they are not."""
        await settled(self._queues, clock)

    def delay(self, pods: Iterable[PodRecord], otherwise: int) -> int:
        """Return for how many nanoseconds work with these pods waits before it preempts."""
        found = []
        for pod in pods:
            of_class, _ = self._classes.of(pod.priority_class)
            of_queue, _ = self._queues.of(pod.namespace, queue_of(pod.labels))
            found.append(decided_delay(of_class, of_queue, otherwise))
        return max(found, default=otherwise)

    def notice(self, pods: Iterable[PodRecord]) -> int:
        """Return the longest notice, in nanoseconds, of work with these pods."""
        found = [MOST]
        for pod in pods:
            _, of_class = self._classes.of(pod.priority_class)
            _, of_queues = self._queues.of(pod.namespace, queue_of(pod.labels))
            found.append(least_notice(of_class, of_queues))
        return min(found)
