"""Reports to users which annotations for preemption have no effect, and why.

Looked at are those that have just stated something, once all classes are known: a class that is not
there, a pod that is in a group, a value that is no higher than the priority it has anyway; of the
annotations about disruption and minimum runtimes, values that are not accepted; of the latter also
those that are cut. Source: KEP-5710, "Future extensions"; `protection`, `floors` and
`min_runtime` of `engine.scheduling.victims`.
"""

from __future__ import annotations

from kubeworld.units.durations import SECOND, format_duration
from reprieve.api.reprieve import NOTICE, PREEMPT_MIN_RUNTIME
from reprieve.engine.cluster.rows import WITH_GROUP, Entry, GroupRow, PodRow
from reprieve.engine.placement.profile import Protection
from reprieve.intake.cluster.metadata import DISRUPTION, DISRUPTION_FLOOR
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.declared import Declared
from reprieve.planes.scheduling.references import (
    entry_reference,
    group_reference,
    pod_reference,
)
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.references import Reference
from reprieve.wording.kube_scheduler import (
    disruption_ignored,
    min_runtime_note,
    notice_ignored,
    protection_ignored,
)

__all__ = ["report_ignored"]


def report_ignored(context: SchedulingContext, state: ClusterState) -> None:
    """Announce what was stated for nothing since the last call."""
    declared, state.declared = state.declared, Declared()
    _report_disruptions(context, declared)
    _report_runtimes(context, declared)
    _report_notices(context, declared)
    protection = context.policy.protection
    if protection is None:
        return
    name = next(iter(sorted(context.scheduler_names)), "")
    for row in declared.protection.values():
        why = _why(row, state, protection)
        if why:
            context.announce(
                _reference(context, row), protection_ignored(row.protection, why), name
            )


def _report_disruptions(context: SchedulingContext, declared: Declared) -> None:
    if not context.policy.non_uniform_groups:
        return
    name = next(iter(sorted(context.scheduler_names)), "")
    for row in declared.disruption.values():
        why = _why_not_together(row)
        if why:
            context.announce(_reference(context, row), disruption_ignored(why), name)


def _report_runtimes(context: SchedulingContext, declared: Declared) -> None:
    most = context.policy.max_min_runtime
    if not most:
        return
    name = next(iter(sorted(context.scheduler_names)), "")
    for row in declared.runtime.values():
        found: int = row.row.min_runtime if isinstance(row, Entry) else row.min_runtime or 0
        ignored = True
        if isinstance(row, PodRow) and row.group and context.policy.gates.generic_workload:
            why = f"ignored: the pod is in group {row.group}, whose own annotation counts"
        elif found < 0:
            why = "ignored; accepted: durations from 0s on, such as 90s, 5m or 1h"
        elif found > most:
            ignored = False
            limit = format_duration(most * SECOND)
            why = f"cut to {limit}, the most that scheduling.maxMinRuntime allows"
        else:
            continue
        text = min_runtime_note(f"{PREEMPT_MIN_RUNTIME} is {why}", ignored=ignored)
        context.announce(_reference(context, row), text, name)


def _report_notices(context: SchedulingContext, declared: Declared) -> None:
    if not context.settings.notice.most:
        return
    name = next(iter(sorted(context.scheduler_names)), "")
    for row in declared.notice.values():
        context.announce(_reference(context, row), notice_ignored(NOTICE), name)


def _why_not_together(row: PodRow | GroupRow) -> str:
    if isinstance(row, GroupRow):
        if row.floor >= 0:
            return ""
        return f"{DISRUPTION_FLOOR} is ignored; accepted: a whole number from 1 on"
    if row.disruption != WITH_GROUP:
        return f"{DISRUPTION}: {row.disruption} is ignored; accepted: {WITH_GROUP}"
    if not row.group:
        return f"{DISRUPTION} is ignored: the pod is in no group; accepted: on pods of a group"
    return ""


def _reference(context: SchedulingContext, row: PodRow | GroupRow | Entry) -> Reference:
    if isinstance(row, Entry):
        return entry_reference(row)
    if isinstance(row, GroupRow):
        return group_reference(row, context.group_version)
    return pod_reference(row)


def _why(row: PodRow | GroupRow, state: ClusterState, protection: Protection) -> str:
    if isinstance(row, PodRow) and row.group:
        return f"the pod is in group {row.group}, whose own annotation counts"
    value = state.objects.priority_class(row.protection)
    if value is None:
        return "there is no such PriorityClass; accepted: the name of one"
    limit = protection.limit(row.namespace)
    if min(value, limit) <= row.priority:
        return (
            f"its value {value}, of which at most {limit} count here, is not above the priority "
            f"{row.priority}; accepted: a class of a higher value"
        )
    return ""
