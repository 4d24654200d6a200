"""Tells people whose annotation `reprieve.dev/preemption-priority-class` has no effect, and why.

Looked at are those that have just said something, once all classes are known: a class that is not
there, a pod that is in a group, a value that is no higher than the priority it has anyway. Source:
KEP-5710, "Future extensions"; `engine.scheduling.protection`.
"""

from __future__ import annotations

from reprieve.controllers.scheduling.context import SchedulingContext
from reprieve.controllers.scheduling.references import group_reference, pod_reference
from reprieve.controllers.scheduling.state import ClusterState
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.placement.profile import Protection
from reprieve.wording.kube_scheduler import protection_ignored

__all__ = ["tell_ignored"]


def tell_ignored(context: SchedulingContext, state: ClusterState) -> None:
    """Announce what was said for nothing since the last call."""
    protection = context.policy.protection
    said, state.said_protection = state.said_protection, {}
    if protection is None:
        return
    name = next(iter(sorted(context.scheduler_names)), "")
    for row in said.values():
        why = _why(row, state, protection)
        if why:
            reference = (
                group_reference(row, context.group_version)
                if isinstance(row, GroupRow)
                else pod_reference(row)
            )
            context.announce(reference, protection_ignored(row.protection, why), name)


def _why(row: PodRow | GroupRow, state: ClusterState, protection: Protection) -> str:
    if isinstance(row, PodRow) and row.group:
        return f"the pod is in group {row.group}, whose own annotation counts"
    value = state.priority_class(row.protection)
    if value is None:
        return "there is no such PriorityClass; accepted: the name of one"
    limit = protection.limit(row.namespace)
    if min(value, limit) <= row.priority:
        return (
            f"its value {value}, of which at most {limit} count here, is not above the priority "
            f"{row.priority}; accepted: a class of a higher value"
        )
    return ""
