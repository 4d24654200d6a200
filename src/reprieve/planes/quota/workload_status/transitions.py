"""What each step writes into the status of a Workload. Pure: status in, status out.

Every condition carries the generation; its instant changes only with its status. Source:
specification of the quota plane, sections 1.6, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.kueue import (
    Admission,
    AdmissionCheckState,
    Condition,
    EvictionCount,
    PodSetAssignment,
    PodSetRequest,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    Workload,
)
from reprieve.engine.quota import model
from reprieve.engine.quota.holdings.amounts import text
from reprieve.engine.topology.encoding import encoded
from reprieve.intake.quota_workloads import (
    condition_of,
    is_condition_true,
    is_place_delayed,
    is_true,
)
from reprieve.wording import kueue

__all__ = [
    "DEACTIVATED",
    "DEACTIVATED_MESSAGE",
    "TOO_LONG",
    "admitted_by_checks",
    "backed_off",
    "checks_kept",
    "deactivated",
    "deactivation_asked",
    "evicted",
    "evictions_of",
    "finished",
    "pending",
    "pods_ready",
    "preempted",
    "reclaimed",
    "released",
    "requeued",
    "reserved",
    "unreserved",
    "with_condition",
]

DEACTIVATED: Final = "Deactivated"
#: Why a Workload is deactivated that ran for longer than it may.
TOO_LONG: Final = "MaximumExecutionTimeExceeded"
DEACTIVATED_MESSAGE: Final = "The workload is deactivated"
_NO_RESERVATION: Final = ("NoReservation", "The workload has no reservation")
_PLACES_DELAYED: Final = (
    "PendingDelayedTopologyRequests",
    "There are pending delayed topology requests",
)
#: The API accepts no longer message.
_LONGEST: Final = 32 * 1024
_CUT: Final = " ..."


def with_condition(
    workload: Workload, kind: str, status: bool, reason: str, message: str, now: Nanos
) -> Workload:
    """Return the Workload with this condition."""
    conditions = list(workload.status.conditions or ())
    found = condition_of(conditions, kind)
    word = str(status)
    if len(message) > _LONGEST:
        message = message[: _LONGEST - len(_CUT)] + _CUT
    kept = found is not None and found.status == word
    condition = Condition(
        kind,
        word,
        reason,
        message,
        found.last_transition_time if found is not None and kept else format_instant(now),
        workload.metadata.generation or None,
    )
    if found is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(found)] = condition
    return replace(workload, status=replace(workload.status, conditions=conditions))


def _status(workload: Workload, **changes: object) -> Workload:
    return replace(workload, status=replace(workload.status, **changes))


def pending(
    workload: Workload,
    reason: str,
    message: str,
    requests: Sequence[PodSetRequest],
    now: Nanos,
    *,
    gated: bool = False,
) -> Workload:
    """A head got no quota."""
    workload = with_condition(workload, "QuotaReserved", False, reason, message, now)
    if gated:
        workload = with_condition(
            workload, "BlockedOnPreemptionGates", True, "PreemptionGated", message, now
        )
    workload = with_condition(workload, "Admitted", False, *_NO_RESERVATION, now)
    return _status(workload, resource_requests=list(requests))


def reserved(
    workload: Workload,
    admission: model.Admission,
    required: Collection[str],
    now: Nanos,
    *,
    by_prefix: bool = True,
) -> Workload:
    """Return a head with its quota.

    `required` are the checks of its ClusterQueue. `by_prefix`: host names that share prefixes may
    have slices of their own in its topology assignment.
    """
    given = Admission(
        admission.cluster_queue,
        [
            PodSetAssignment(
                name=each.name,
                flavors=dict(each.flavors) or None,
                resource_usage={name: text(name, n) for name, n in each.usage.items()} or None,
                count=each.count,
                topology_assignment=(
                    None if each.topology is None else encoded(each.topology, by_prefix)
                ),
                delayed_topology_request="Pending" if each.delayed else None,
            )
            for each in admission.pod_sets
        ],
    )
    workload = _status(workload, admission=given, resource_requests=None)
    workload = with_condition(
        workload,
        "QuotaReserved",
        True,
        "QuotaReserved",
        kueue.quota_reserved_message(admission.cluster_queue),
        now,
    )
    for kind in ("Evicted", "Preempted", "BlockedOnPreemptionGates"):
        before = condition_of(workload.status.conditions, kind)
        if is_true(before):
            message = f"Previously: {before.message}"
            workload = with_condition(workload, kind, False, "QuotaReserved", message, now)
    return admitted_by_checks(workload, required, now)


def admitted_by_checks(workload: Workload, required: Collection[str], now: Nanos) -> Workload:
    """Quota is reserved: admitted once every check is ready, and all pods have their places."""
    states = {each.name: each.state for each in workload.status.admission_checks or ()}
    if set(required) <= states.keys() and all(state == "Ready" for state in states.values()):
        held = workload.status.admission
        if held and any(is_place_delayed(each) for each in held.pod_set_assignments):
            return with_condition(workload, "Admitted", False, *_PLACES_DELAYED, now)
        return with_condition(
            workload, "Admitted", True, "Admitted", "The workload is admitted", now
        )
    message = "The workload has not all checks ready"
    return with_condition(workload, "Admitted", False, "UnsatisfiedAdmissionChecks", message, now)


def checks_kept(workload: Workload, required: Collection[str], now: Nanos) -> Workload:
    """The list of checks follows the ClusterQueue."""
    have = {each.name: each for each in workload.status.admission_checks or ()}
    if have.keys() == set(required):
        return workload
    kept = [
        have.get(name) or AdmissionCheckState(name, "Pending", "", format_instant(now))
        for name in sorted(required)
    ]
    return _status(workload, admission_checks=kept or None)


def preempted(workload: Workload, reason: model.Reason | str, message: str, now: Nanos) -> Workload:
    """The Workload is preempted for another."""
    workload = evicted(workload, "Preempted", message, now)
    return with_condition(workload, "Preempted", True, str(reason), message, now)


def evicted(workload: Workload, reason: str, message: str, now: Nanos, cause: str = "") -> Workload:
    """The Workload has to give its quota back, whatever for.

    `cause` is what lies behind the reason; a deactivation names it in its condition as well.
    """
    word = f"{reason}DueTo{cause}" if reason == DEACTIVATED and cause else reason
    workload = with_condition(workload, "Evicted", True, word, message, now)
    if is_condition_true(workload, "BlockedOnPreemptionGates"):
        workload = with_condition(workload, "BlockedOnPreemptionGates", False, word, message, now)
    at = format_instant(now)
    stats = workload.status.scheduling_stats or SchedulingStats()
    counts = list(stats.evictions or ())
    for index, count in enumerate(counts):
        if (count.reason, count.underlying_cause) == (reason, cause):
            counts[index] = replace(count, count=count.count + 1)
            break
    else:
        counts.append(EvictionCount(reason, cause, 1))
    gates = [
        replace(gate, position="Closed", last_transition_time=at)
        for gate in workload.status.preemption_gates or ()
    ]
    return _status(
        workload,
        admission_checks=[_reset(each, at) for each in workload.status.admission_checks or ()]
        or None,
        preemption_gates=gates or None,
        scheduling_stats=SchedulingStats(counts),
        cluster_name=None,
        nominated_cluster_names=None,
        unhealthy_nodes=None,
    )


def _reset(check: AdmissionCheckState, at: str) -> AdmissionCheckState:
    """Return a check that has to be passed again; what it requested of the pods is forgotten."""
    if check.state == "Pending":
        return check
    return AdmissionCheckState(
        name=check.name,
        state="Pending",
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        last_transition_time=at,
        retry_count=(check.retry_count or 0) + 1 if check.state == "Retry" else None,
        requeue_after_seconds=check.requeue_after_seconds,
    )


def evictions_of(workload: Workload, reason: str, cause: str = "") -> int:
    """Return how often a Workload was evicted for a reason and cause."""
    stats = workload.status.scheduling_stats
    for count in (stats.evictions if stats is not None else None) or ():
        if (count.reason, count.underlying_cause) == (reason, cause):
            return count.count
    return 0


def deactivation_asked(workload: Workload, reason: str, message: str, now: Nanos) -> Workload:
    """The Workload is to be made inactive; `reason` is what its eviction will name as its cause."""
    if is_condition_true(workload, "DeactivationTarget"):
        return workload
    return with_condition(workload, "DeactivationTarget", True, reason, message, now)


def deactivated(workload: Workload, now: Nanos) -> Workload:
    """An inactive Workload is evicted, once, and its backoff is over."""
    asked = condition_of(workload.status.conditions, "DeactivationTarget")
    if not is_condition_true(workload, "Evicted"):
        cause, message = "", DEACTIVATED_MESSAGE
        if is_true(asked):
            cause, message = asked.reason, f"{message} due to {asked.message}"
        workload = evicted(workload, DEACTIVATED, message, now, cause)
    if asked is not None:
        conditions = [each for each in workload.status.conditions or () if each != asked]
        workload = _status(workload, conditions=conditions)
    return _status(workload, requeue_state=None)


def backed_off(workload: Workload, until: Nanos, *, count: bool) -> Workload:
    """The Workload waits until an instant, or longer where it has to; `count` the retry."""
    before = workload.status.requeue_state or RequeueState()
    at = before.requeue_at
    if at is None or parse_instant(at) < until:
        at = format_instant(until)
    return _status(
        workload,
        requeue_state=RequeueState((before.count or 0) + 1 if count else before.count, at),
    )


def released(workload: Workload, *, requeued: bool, now: Nanos) -> Workload:
    """An evicted Workload's pods are deleted: its quota is free."""
    eviction = condition_of(workload.status.conditions, "Evicted")
    reason, message = "Pending", "The workload has no quota"
    if is_true(eviction):
        reason, message = eviction.reason, eviction.message
    spent = workload.status.accumulated_past_execution_time_seconds or 0
    admitted = condition_of(workload.status.conditions, "Admitted")
    if is_true(admitted):
        spent += max(0, now - parse_instant(admitted.last_transition_time)) // SECOND
    if reason == f"{DEACTIVATED}DueTo{TOO_LONG}":
        spent = 0  # activated again it has all of its time
    workload = with_condition(workload, "QuotaReserved", False, "PendingEvaluation", message, now)
    workload = with_condition(workload, "Admitted", False, *_NO_RESERVATION, now)
    workload = with_condition(workload, "Requeued", requeued, reason, message, now)
    return _status(workload, admission=None, accumulated_past_execution_time_seconds=spent or None)


def requeued(workload: Workload, reason: str, message: str, now: Nanos) -> Workload:
    """What was delayed, or held back, is queued again."""
    workload = with_condition(workload, "Requeued", True, reason, message, now)
    state = workload.status.requeue_state
    if state is None:
        return workload
    left = None if state.count is None else RequeueState(state.count)
    return _status(workload, requeue_state=left)


def unreserved(workload: Workload, reason: str, message: str, now: Nanos) -> Workload:
    """The Workload has no quota, or loses what was only reserved, and states why."""
    workload = with_condition(workload, "QuotaReserved", False, reason, message, now)
    workload = with_condition(workload, "Admitted", False, *_NO_RESERVATION, now)
    return _status(workload, admission=None)


def finished(workload: Workload, reason: str, message: str, now: Nanos) -> Workload:
    """The job is over, or there is none."""
    return with_condition(workload, "Finished", True, reason, message, now)


def pods_ready(workload: Workload, ready: bool, now: Nanos) -> Workload:
    """The pods are ready, are not yet, or are not any more."""
    before = condition_of(workload.status.conditions, "PodsReady")
    lost = before is not None and before.reason in ("Started", "Recovered", "WaitForRecovery")
    admitted = is_condition_true(workload, "Admitted")
    if ready:
        recovered = before is not None and before.reason in ("WaitForRecovery", "Recovered")
        reason = "Recovered" if recovered else "Started"
        message = "All pods reached readiness and the workload is running"
    elif lost and admitted:
        reason = "WaitForRecovery"
        message = "At least one pod has failed, waiting for recovery"
    else:
        reason, message = "WaitForStart", "Not all pods are ready or succeeded"
    if before is not None and (before.status, before.reason) == (str(ready), reason):
        return workload
    return with_condition(workload, "PodsReady", ready, reason, message, now)


def reclaimed(workload: Workload, counts: Sequence[tuple[str, int]]) -> Workload:
    """Some pods will not be needed any more."""
    pods = [ReclaimablePod(name, count) for name, count in counts if count]
    return (
        workload
        if pods == (workload.status.reclaimable_pods or [])
        else _status(workload, reclaimable_pods=pods or None)
    )
