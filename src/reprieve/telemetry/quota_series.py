"""Kueue's series: names without the prefix `kueue_`, labels without `replica_role`, buckets.

Source: specification of the quota plane, section 9; the reference's list of metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COUNTERS", "GAUGES", "HISTOGRAMS"]

_QUEUE: Final = ("cluster_queue",)
_LOCAL: Final = ("name", "namespace")
_CLASS: Final = ("priority_class",)
_CAUSE: Final = ("reason", "underlying_cause")
_AMOUNT: Final = ("cohort", "cluster_queue", "flavor", "resource")
_COHORT_AMOUNT: Final = ("cohort", "flavor", "resource")
_LOCAL_AMOUNT: Final = (*_LOCAL, "flavor", "resource")


def _buckets(count: int) -> tuple[float, ...]:
    return (1.0, *(2.5 * 2**n for n in range(count - 1)))


_FAST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CREATION: Final = tuple(0.01 * 2**n for n in range(11))

COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "admission_attempts": ("Cycles that had heads, by what came of them.", ("result",)),
    "preemption_target_recomputations": (
        "Targets looked for again because another workload used them, by the result.",
        (*_QUEUE, "result"),
    ),
    "quota_reserved_workloads": ("Reservations.", (*_QUEUE, *_CLASS)),
    "admitted_workloads": ("Admissions.", (*_QUEUE, *_CLASS)),
    "finished_workloads": ("Workloads that ended.", (*_QUEUE, *_CLASS)),
    "evicted_workloads": ("Evictions.", (*_QUEUE, *_CAUSE, *_CLASS)),
    "evicted_workloads_once": (
        "Workloads evicted for the first time for a reason.",
        (*_QUEUE, *_CAUSE, *_CLASS),
    ),
    "preempted_workloads": (
        "Preemptions, by the ClusterQueue that made them.",
        ("preempting_cluster_queue", "reason"),
    ),
    "cohort_subtree_admitted_workloads": ("Admissions below a cohort.", ("cohort", *_CLASS)),
    "local_queue_quota_reserved_workloads": ("Reservations.", (*_LOCAL, *_CLASS)),
    "local_queue_admitted_workloads": ("Admissions.", (*_LOCAL, *_CLASS)),
    "local_queue_finished_workloads": ("Workloads that ended.", (*_LOCAL, *_CLASS)),
    "local_queue_evicted_workloads": ("Evictions.", (*_LOCAL, *_CAUSE, *_CLASS)),
}
HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]]] = {
    "admission_attempt_duration_seconds": ("Time of a cycle.", ("result",), _FAST),
    "quota_reserved_wait_time_seconds": (
        "From queueing to the reservation.",
        (*_QUEUE, *_CLASS),
        _buckets(14),
    ),
    "admission_wait_time_seconds": (
        "From queueing to the admission.",
        (*_QUEUE, *_CLASS),
        _buckets(16),
    ),
    "admission_checks_wait_time_seconds": (
        "From the reservation to the admission.",
        (*_QUEUE, *_CLASS),
        _buckets(14),
    ),
    "ready_wait_time_seconds": (
        "From queueing until the pods are ready.",
        (*_QUEUE, *_CLASS),
        _buckets(14),
    ),
    "admitted_until_ready_wait_time_seconds": (
        "From the admission until the pods are ready.",
        (*_QUEUE, *_CLASS),
        _buckets(14),
    ),
    "execution_time_seconds": (
        "From the first admission to the end, without the time in between.",
        (*_QUEUE, *_CLASS),
        _buckets(16),
    ),
    "pods_ready_to_evicted_time_seconds": (
        "From pods that are ready to their eviction.",
        (*_QUEUE, *_CAUSE),
        _buckets(14),
    ),
    "workload_eviction_latency_seconds": (
        "From the eviction to the release of the quota.",
        (*_QUEUE, "reason"),
        _buckets(14),
    ),
    "workload_creation_latency_seconds": (
        "From the creation of a job to that of its Workload.",
        ("job_kind",),
        _CREATION,
    ),
    "pod_scheduling_gate_removal_seconds": (
        "From the admission to the removal of a pod's scheduling gate.",
        ("name", *_QUEUE, "is_group"),
        _FAST,
    ),
    "local_queue_quota_reserved_wait_time_seconds": (
        "From queueing to the reservation.",
        (*_LOCAL, *_CLASS),
        _buckets(14),
    ),
    "local_queue_admission_wait_time_seconds": (
        "From queueing to the admission.",
        (*_LOCAL, *_CLASS),
        _buckets(14),
    ),
    "local_queue_admission_checks_wait_time_seconds": (
        "From the reservation to the admission.",
        (*_LOCAL, *_CLASS),
        _buckets(14),
    ),
    "local_queue_ready_wait_time_seconds": (
        "From queueing until the pods are ready.",
        (*_LOCAL, *_CLASS),
        _buckets(14),
    ),
    "local_queue_admitted_until_ready_wait_time_seconds": (
        "From the admission until the pods are ready.",
        (*_LOCAL, *_CLASS),
        _buckets(14),
    ),
    "local_queue_execution_time_seconds": (
        "From the first admission to the end, without the time in between.",
        (*_LOCAL, *_CLASS),
        _buckets(16),
    ),
}
GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "admission_cycle_preemption_skips": (
        "Preemptions skipped in the last cycle because others needed the same.",
        _QUEUE,
    ),
    "pending_workloads": ("Workloads that wait.", (*_QUEUE, "status")),
    "pending_scheduling_hashes": ("Different shapes of what waits.", (*_QUEUE, "status")),
    "finished_workloads": ("Workloads that ended and are still there.", _QUEUE),
    "reserving_active_workloads": ("Workloads with a reservation.", _QUEUE),
    "admitted_active_workloads": ("Admitted workloads.", _QUEUE),
    "unadmitted_workloads": ("Workloads that are not admitted, by reason.", (*_QUEUE, *_CAUSE)),
    "cluster_queue_status": ("1 for the status it has.", (*_QUEUE, "status")),
    "cluster_queue_info": ("Place in the tree.", (*_QUEUE, "parent_cohort", "root_cohort")),
    "cluster_queue_resource_reservation": ("Quota reserved.", _AMOUNT),
    "cluster_queue_resource_usage": ("Quota of admitted workloads.", _AMOUNT),
    "cluster_queue_resource_pending": ("Requests of what waits.", (*_QUEUE, "resource")),
    "cluster_queue_nominal_quota": ("Nominal quota.", _AMOUNT),
    "cluster_queue_borrowing_limit": ("Borrowing limit, +Inf without.", _AMOUNT),
    "cluster_queue_lending_limit": ("Lending limit, +Inf without.", _AMOUNT),
    "cluster_queue_weighted_share": (
        "Weighted share, NaN for weight 0 while borrowing.",
        (*_QUEUE, "cohort"),
    ),
    "cohort_weighted_share": ("Weighted share, NaN for weight 0 while borrowing.", ("cohort",)),
    "cohort_info": ("Place in the tree.", ("cohort", "parent_cohort", "root_cohort")),
    "cohort_subtree_quota": ("Nominal quota of a cohort and all below.", _COHORT_AMOUNT),
    "cohort_subtree_resource_reservations": (
        "Quota reserved in a cohort and all below.",
        _COHORT_AMOUNT,
    ),
    "cohort_subtree_admitted_active_workloads": ("Admitted workloads below.", ("cohort",)),
    "local_queue_pending_workloads": ("Workloads that wait.", (*_LOCAL, "status")),
    "local_queue_finished_workloads": ("Workloads that ended and are still there.", _LOCAL),
    "local_queue_reserving_active_workloads": ("Workloads with a reservation.", _LOCAL),
    "local_queue_admitted_active_workloads": ("Admitted workloads.", _LOCAL),
    "local_queue_unadmitted_workloads": (
        "Workloads that are not admitted, by reason.",
        (*_LOCAL, *_QUEUE, *_CAUSE),
    ),
    "local_queue_status": ("1 for the status of its condition Active.", (*_LOCAL, "active")),
    "local_queue_resource_reservation": ("Quota reserved.", _LOCAL_AMOUNT),
    "local_queue_resource_usage": ("Quota of admitted workloads.", _LOCAL_AMOUNT),
    "local_queue_admission_fair_sharing_usage": (
        "What it used, by which admission fair sharing orders it.",
        (*_LOCAL, *_QUEUE),
    ),
}
