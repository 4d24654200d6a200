"""What the status of a Workload states that follows from its queue, its checks and the time alone.

1. held back by a deactivation or a stopped queue that is over, or by a backoff: queued again
2. its checks: those of its ClusterQueue that apply to it
3. without quota: why nothing is decided about it, or that this is over
4. with quota: admitted once its checks are ready

Pure: a Workload and the configuration in, the Workload with its new status out. Source:
specification of the quota plane, sections 1.1, 8.4 and 9.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Condition, Workload
from reprieve.engine.quota import model
from reprieve.engine.quota.assigning.checks import required_checks
from reprieve.intake.quota_workloads import (
    ADMISSION_GATED_BY,
    LACKS_PODS,
    condition_of,
    is_condition_true,
)
from reprieve.planes.quota.workload_status.transitions import (
    DEACTIVATED,
    DEACTIVATED_MESSAGE,
    admitted_by_checks,
    checks_kept,
    requeued,
    unreserved,
)
from reprieve.wording.kueue_queues import queue_blocker

__all__ = ["followed"]

_GATED: Final = "AdmissionGated"
_ON_HOLD: Final = "OnHold"
_DEFERRED: Final = ("PodsReadyTimeout", "AdmissionCheck")
_PENDING: Final = ("PendingEvaluation", "Workload is pending evaluation in the scheduling queue")
_CLEARED: Final = ("PendingEvaluation", "AdmissionGatedBy cleared, waiting for quota reservation")
_REACTIVATED: Final = ("Reactivated", "The workload was reactivated")
_BACKOFF: Final = ("BackoffFinished", "The workload backoff was finished")
_LACKS_PODS: Final = "The group waits for pods in place of those that failed or were evicted"
_STARTED: Final = {
    "ClusterQueueStopped": (
        "ClusterQueueRestarted",
        "The ClusterQueue was restarted after being stopped",
    ),
    "LocalQueueStopped": (
        "LocalQueueRestarted",
        "The LocalQueue was restarted after being stopped",
    ),
}


def followed(
    workload: Workload,
    row: model.Workload,
    configuration: model.Configuration,
    inactive: Collection[str],
    now: Nanos,
) -> Workload:
    """Return the Workload as its status should be.

    Args:
        workload: as it is.
        row: the engine's row of it.
        configuration: queues and settings.
        inactive: names of the ClusterQueues that cannot admit.
        now: the wall clock.
    """
    local = configuration.local_queues.get(row.queue)
    name = row.admission.cluster_queue if row.admission is not None else ""
    if not name and local is not None:
        name = local.cluster_queue
    queue = configuration.cluster_queues.get(name)
    workload = _requeued(workload, row, local, queue, now)
    if queue is not None:
        workload = checks_kept(workload, required_checks(queue, row.admission), now)
    if row.admission is None:
        return _explained(workload, row, configuration, inactive, now)
    if (
        queue is None
        or is_condition_true(workload, "Evicted")
        or is_condition_true(workload, "Admitted")
    ):
        return workload
    return admitted_by_checks(workload, required_checks(queue, row.admission), now)


def _requeued(
    workload: Workload,
    row: model.Workload,
    local: model.LocalQueue | None,
    queue: model.ClusterQueue | None,
    now: Nanos,
) -> Workload:
    condition = condition_of(workload.status.conditions, "Requeued")
    if row.admission is not None or not row.active:
        return workload
    over = row.requeue_at is None or row.requeue_at <= now
    if condition is None or condition.status != "False":
        # A backoff that is over is not shown any more.
        if row.requeue_at is not None and over and condition is not None:
            return requeued(workload, condition.reason, condition.message, now)
        return workload
    if condition.reason.startswith(DEACTIVATED):
        return requeued(workload, *_REACTIVATED, now)
    if condition.reason in _DEFERRED and over:
        return requeued(workload, *_BACKOFF, now)
    stopped: model.LocalQueue | model.ClusterQueue | None = None
    if condition.reason == "LocalQueueStopped":
        stopped = local
    elif condition.reason == "ClusterQueueStopped":
        stopped = queue
    if stopped is not None and stopped.stop_policy is model.StopPolicy.NONE:
        return requeued(workload, *_STARTED[condition.reason], now)
    return workload


def _explained(
    workload: Workload,
    row: model.Workload,
    configuration: model.Configuration,
    inactive: Collection[str],
    now: Nanos,
) -> Workload:
    """State why a Workload is not considered at all; the cycles state the rest."""
    condition = condition_of(workload.status.conditions, "QuotaReserved")
    if condition is not None and condition.reason == _ON_HOLD:
        return workload
    reason, message = _blocker(workload, row, configuration, inactive)
    if not reason:
        if not _is_over(condition):
            return workload
        assert condition is not None
        reason, message = _CLEARED if condition.reason == _GATED else _PENDING
    gates = configuration.settings.gates
    if not gates.unadmitted_workloads_observability and reason != _GATED:
        reason = "Pending" if reason == _PENDING[0] else "Inadmissible"
    said = condition is not None and (condition.status, condition.reason, condition.message)
    if said == ("False", reason, message):
        return workload
    return unreserved(workload, reason, message, now)


def _blocker(
    workload: Workload,
    row: model.Workload,
    configuration: model.Configuration,
    inactive: Collection[str],
) -> tuple[str, str]:
    if not row.active:
        return DEACTIVATED, DEACTIVATED_MESSAGE
    local = configuration.local_queues.get(row.queue)
    found = queue_blocker(row, local, configuration.cluster_queues, inactive)
    if found[0]:
        return found
    if is_condition_true(workload, LACKS_PODS):
        return LACKS_PODS, _LACKS_PODS
    gates = (workload.metadata.annotations or {}).get(ADMISSION_GATED_BY, "")
    return (_GATED, f"Admission is gated by: {gates}") if gates else ("", "")


def _is_over(condition: Condition | None) -> bool:
    """Return whether a condition states what `_blocker` stated before, and does not any more."""
    if condition is None or condition.status != "False":
        return False
    if condition.reason in (DEACTIVATED, "Suspended") or condition.message == _LACKS_PODS:
        return True
    if condition.reason == _GATED:
        return condition.message.startswith("Admission is gated by: ")
    if condition.reason not in ("Misconfigured", "Inadmissible"):
        return False
    return condition.message.endswith((" doesn't exist", " is terminating or missing"))
