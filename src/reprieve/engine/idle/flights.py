"""What a GpuWorkload's own row states of it, for decisions, records and texts alike.

How long it has been idle, and for which demand its GPUs are freed after its eviction.
Source: specification of the idle plane, sections 9 and 12.
"""

from __future__ import annotations

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import IdleSnapshot, Phase, PodRow, Policy, Workload

__all__ = ["idle_for", "in_flight", "overdue_from"]


def idle_for(workload: Workload, now: Nanos) -> int:
    """Return nanoseconds since the idle stretch began; a start in the future counts as now."""
    since = workload.status.idle_since
    return 0 if since is None else max(0, now - since)


def in_flight(workload: Workload, snapshot: IdleSnapshot, policy: Policy, now: Nanos) -> str | None:
    """Return for whom this workload's GPUs are on their way, None when they are not.

    A key is `namespace/name`; a bare name (no slash) is all that a status states; "" is no demand
    (policy Always).
    """
    phase = workload.status.phase
    claimed = workload.root.uid in snapshot.claims
    if phase is Phase.PREEMPTED:
        if policy.literal.preempted_not_in_flight or not _settling(workload, policy, now):
            return None
    elif phase is Phase.DELETED or (phase is not Phase.PREEMPTING and not claimed):
        return None
    if claimed:
        return snapshot.claims[workload.root.uid] or ""
    return workload.status.preempted_for


def overdue_from(pod: PodRow, evicted: Nanos | None, policy: Policy) -> Nanos | None:
    """Return after when a pod of a root that was evicted is planned around, None for never."""
    if evicted is None:
        return None if pod.ends is None else Nanos(pod.ends + policy.slack)
    longest = Nanos(evicted + policy.longest_grace)
    end = evicted + policy.unended if pod.ends is None else min(pod.ends, longest)
    return Nanos(end + policy.slack)


def _settling(workload: Workload, policy: Policy, now: Nanos) -> bool:
    if workload.pods:
        since = workload.status.preempted_at
        ends = [overdue_from(pod, since, policy) for pod in workload.pods]
        return any(end is None or now <= end for end in ends)
    since = workload.released if workload.released is not None else workload.status.preempted_at
    return since is not None and 0 <= now - since < policy.settling
