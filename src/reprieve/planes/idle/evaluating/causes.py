"""What a snapshot reads beside GpuWorkloads, and which change of it calls for an evaluation.

Whether idle work may be evicted for a demand depends on nodes, on the pods on them, on devices, on
queued Workloads and on delays. A change of what an evaluation reads of them, or of a pending
demand, is answered by an evaluation within seconds, but only while a demand is pending. After a
long evaluation changes are gathered for longer, so that they cost a twentieth of a core at most.
Changes of other kinds reach the evaluation by the GpuWorkloads that they concern (`changes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.engine.idle.model import Phase
from reprieve.planes.common.loop import Pace
from reprieve.planes.common.mirrors.stated_limits import on_other_delays
from reprieve.planes.common.persistent import persistent
from reprieve.planes.idle.context import log
from reprieve.planes.idle.records import KueueRecord, NodeRecord, PodRecord
from reprieve.planes.idle.watches import Watches
from reprieve.planes.idle.workloads import TrackedWorkloads

__all__ = ["QUIET", "EvaluationCauses"]

#: How long changes are gathered: evaluations of a large cluster are dear, and pods come and end.
_PACE: Final = Pace(held_back=0, gather=2 * SECOND, rest=20, longest=15 * SECOND)
#: The watches of which no change calls for an evaluation, and why.
QUIET: Final[Mapping[str, str]] = {
    "namespaces": "their roots are followed again",
    "workloads": "each GpuWorkload is reconciled, which evaluates",
    "configs": "every GpuWorkload is reconciled",
    "intents": "each change requests an evaluation at once",
    "slices": "addresses of exporters; decisions read samples alone",
}


class EvaluationCauses:
    """Requests evaluations while a demand is pending.

    `evaluate` requests one now; `took` returns how many nanoseconds the last one lasted.
    """

    def __init__(
        self,
        watches: Watches,
        workloads: TrackedWorkloads,
        clock: Clock,
        evaluate: Callable[[], None],
        took: Callable[[], int] = lambda: 0,
    ) -> None:
        self._watches = watches
        self._workloads = workloads
        self._clock = clock
        self._evaluate = evaluate
        self._took = took
        self._changed = asyncio.Event()

    def follow(self, group: asyncio.TaskGroup) -> None:
        """Notice every change from now on, and evaluate after it, until the group ends."""
        self.subscribe()
        work = persistent(self.run, self._clock, log, "evaluating after changes")
        group.create_task(work)

    def subscribe(self) -> None:
        """Notice every change from now on."""
        watches = self._watches
        self._compare(watches.pods.cache, _read_of_pod)
        self._compare(watches.kueue.cache, _read_of_queued)
        if watches.nodes is not None:
            self._compare(watches.nodes.cache, _read_of_node)
        for watch in watches.devices.all():
            self._compare(watch.cache, lambda record: record.row)
        if watches.limits is not None:
            on_other_delays(watches.limits, self.note)

    def note(self) -> None:
        """Record that an evaluation would read something else than the last one."""
        self._changed.set()

    async def run(self) -> None:
        """Evaluate after changes until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(_PACE.after(self._took()))
            self._changed.clear()
            if any(held.status.phase is Phase.PENDING_GPU for held in self._workloads):
                self._evaluate()

    def _compare(self, cache: Any, read: Callable[[Any], object]) -> None:
        def changed(old: Any, new: Any) -> None:
            if old is None or new is None or read(old) != read(new):
                self._changed.set()

        cache.subscribe(changed)


def _read_of_pod(pod: PodRecord) -> object:
    facts = (pod.labels, pod.priority, pod.priority_class, pod.claimed, pod.shared, pod.part)
    spec = None if pod.pending is None else pod.pending.spec
    status = None if pod.pending is None else pod.pending.status
    return pod.row, spec, status, facts


def _read_of_queued(record: KueueRecord) -> object:
    workload = record.workload
    return record.gpus, record.claims, workload.spec, workload.status


def _read_of_node(record: NodeRecord) -> object:
    return record.offered, record.node.spec, record.node.metadata.labels
