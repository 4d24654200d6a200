"""What is counted about Workloads, read from each change that the watch shows.

A transition is counted once, whichever client made it; what was so when this process began is not
counted again. Evictions are counted where they are written, since only there their cause is known.
Source: specification of the quota plane, section 9.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from kubeworld.units.quantities import InvalidQuantity
from reprieve.api.kueue import Condition, Workload
from reprieve.engine.lost_work import devices_of, lost_device_seconds
from reprieve.intake.cluster.metadata import checkpoint_of
from reprieve.intake.quota_requests import amounts_of
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Held

__all__ = ["Meters", "count_ungated", "devices_held", "lost_with", "ready_for"]

_GROUP: Final = "kueue.x-k8s.io/is-group-workload"


def ready_for(workload: Workload, now: int) -> float | None:
    """Return for how many seconds its pods were ready, None if they were not."""
    ready = condition_of(workload.status.conditions, "PodsReady")
    return max(0.0, _since(ready, now)) if is_true(ready) else None


def count_ungated(context: QuotaContext, workload: Workload, gate: str) -> None:
    """Count the removal of a scheduling gate from a pod of an admitted Workload."""
    admission = workload.status.admission
    admitted = condition_of(workload.status.conditions, "Admitted")
    if admission is None or admitted is None:
        return
    group = (workload.metadata.annotations or {}).get(_GROUP) == "true"
    seconds = (context.clock.wall() - parse_instant(admitted.last_transition_time)) / SECOND
    context.quota_metrics.ungated(gate, admission.cluster_queue, group, seconds)


def lost_with(workload: Workload, now: int) -> int:
    """Return the device-seconds of work that an admitted Workload loses; `now` in Unix seconds.

    Its pods are not looked at: it starts when it is admitted, and states its checkpoint itself.
    """
    admission = workload.status.admission
    admitted = condition_of(workload.status.conditions, "Admitted")
    if admission is None or not is_true(admitted):
        return 0
    devices = devices_held(workload)
    start = parse_instant(admitted.last_transition_time) // SECOND
    return lost_device_seconds(start, checkpoint_of(workload.metadata), devices, now)


def devices_held(workload: Workload) -> int:
    """Return how many devices a Workload with quota holds."""
    devices, admission = 0, workload.status.admission
    for assigned in (admission.pod_set_assignments or ()) if admission is not None else ():
        with suppress(InvalidQuantity):
            devices += devices_of(amounts_of(assigned.resource_usage).items())
    return devices


class Meters:
    """Counts transitions of Workloads."""

    def __init__(self, context: QuotaContext, state: QuotaState) -> None:
        self._context = context
        self._state = state

    def changed(self, old: Held[Workload] | None, new: Held[Workload] | None) -> None:
        """Count what a change of a Workload shows."""
        if old is None or new is None or old.uid != new.uid:
            return
        before, after, now = old.object, new.object, self._context.clock.wall()
        if before.status.conditions == after.status.conditions:
            return
        metrics, place = self._context.quota_metrics, self._state.place(after)
        # Nothing is counted any more for a queue whose series are removed.
        queues = self._state.configuration.cluster_queues
        if place.cluster_queue and place.cluster_queue not in queues:
            return
        waited = _queued_for(before, now)
        if _became(before, after, "QuotaReserved"):
            metrics.reserved(place, waited)
        if _became(before, after, "Admitted"):
            reserved = condition_of(after.status.conditions, "QuotaReserved")
            checks = _since(reserved, now) if after.status.admission_checks else None
            metrics.admitted(place, waited, checks, self._cohorts(place.cluster_queue))
        if _became(before, after, "PodsReady"):
            admitted = condition_of(after.status.conditions, "Admitted")
            metrics.ready(place, _queued_for(after, now), _since(admitted, now))
        if _became(before, after, "Finished"):
            metrics.ended(place, _ran_for(after))
        evicted = condition_of(after.status.conditions, "Evicted")
        admission = before.status.admission
        if admission is not None and after.status.admission is None and is_true(evicted):
            metrics.released(admission.cluster_queue, evicted.reason, _since(evicted, now))

    def _cohorts(self, queue: str) -> list[str]:
        tree = self._state.holdings.tree
        node = tree.queues.get(queue)
        return [] if node is None else [tree.names[each] for each in tree.path[node][1:]]


def _became(before: Workload, after: Workload, kind: str) -> bool:
    return is_condition_true(after, kind) and not is_condition_true(before, kind)


def _queued_for(workload: Workload, now: int) -> float:
    requeued = condition_of(workload.status.conditions, "Requeued")
    if requeued is not None:
        return _since(requeued, now)
    created = workload.metadata.creation_timestamp
    return (now - parse_instant(created)) / SECOND if created else 0.0


def _ran_for(workload: Workload) -> float | None:
    """Return for how many seconds a finished Workload was admitted, over all its admissions."""
    past = workload.status.accumulated_past_execution_time_seconds
    admitted = condition_of(workload.status.conditions, "Admitted")
    finished = condition_of(workload.status.conditions, "Finished")
    if not is_true(admitted) or finished is None:
        return None if past is None else float(past)
    return (past or 0) + _since(admitted, parse_instant(finished.last_transition_time))


def _since(condition: Condition | None, now: int) -> float:
    if condition is None:
        return 0.0
    return (now - parse_instant(condition.last_transition_time)) / SECOND
