"""The Workload of a group of pods: what it is made of, and what it shows of the members.

Pure, but for the events about a class that does not exist. Source: specification of the quota
plane, section 10.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import LACKS_PODS, condition_of, is_condition_true, is_true
from reprieve.jobs.groups import Roster
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.pods import (
    GROUP_TOTAL,
    IS_GROUP,
    is_fast,
    is_ready,
    is_runnable,
    is_serving,
    role_of,
    total_of,
)
from reprieve.planes.quota.job_reconciler.composing import Composer, labels_of, owner
from reprieve.planes.quota.job_reconciler.job_lookup import queue_name
from reprieve.planes.quota.workload_status.transitions import pods_ready, reclaimed, with_condition

__all__ = ["admitted_count", "admitted_counts", "observed", "workload_of"]

_MOST_ROLES: Final = 18


def admitted_counts(workload: Workload) -> dict[str, int]:
    """Return how many pods of each pod set may run: those with quota, or all without any.

    No pod beyond that is released, whichever client changed the spec and whenever.
    """
    counts = {each.name: each.count for each in workload.spec.pod_sets}
    admission = workload.status.admission
    for each in admission.pod_set_assignments if admission is not None else ():
        if each.count is not None and each.name in counts:
            counts[each.name] = each.count
    return counts


def admitted_count(workload: Workload) -> int:
    """Return how many pods may run in all."""
    return sum(admitted_counts(workload).values())


def workload_of(
    composer: Composer, kind: JobKind, at: str, members: Sequence[Json]
) -> Json | str | None:
    """Return the Workload of a group, or what prevents it; None: an event reported it."""
    wrong = _disagreement(composer, members, at.partition("/")[2])
    if wrong:
        return wrong
    total, head = total_of(members[0]), members[0]
    counts = {role_of(head): total} if is_fast(head) else Counter(role_of(pod) for pod in members)
    if len(counts) > _MOST_ROLES:
        return f"pod group can't include more than {_MOST_ROLES} roles"
    examples = {role_of(pod): pod for pod in reversed(members)}
    pod_sets = [
        {**pod_sets_of(kind, examples[role])[0], "name": role, "count": count}
        for role, count in sorted(counts.items())
    ]
    owners = [owner(kind, pod, controller=False) for pod in members]
    made = composer.workload(kind, head, at, pod_sets, owners, {IS_GROUP: "true"})
    if made is not None:
        made["metadata"]["labels"] = {
            **{k: v for pod in members for k, v in composer.copied(labels_of(pod)).items()}
        }
    return made


def observed(workload: Workload, here: Roster, now: Nanos, *, waited: bool = True) -> Workload:
    """Show whether members are missing, whether all are ready, and which are not needed more.

    Where nothing waits for pods (`waited`), it is not reported whether they are ready.
    """
    present = [pod for pod in here.kept if is_runnable(pod)]
    admitted = is_condition_true(workload, "Admitted")
    wanted = sum(each.count for each in workload.spec.pod_sets)
    ready = admitted and len(present) >= wanted and all(is_ready(pod) for pod in present)
    fast = any(is_fast(pod) for pod in here.kept)
    # A set may make the next pod only once the one before it runs: of those one pod is enough.
    absent = 0 if fast and any(is_runnable(pod) for pod in here.kept) else here.absent
    if is_condition_true(workload, "Evicted"):
        # Those that still run down do not come back; the quota may be free before they have ended.
        absent += 0 if fast else sum(_runs_down(pod) for pod in here.kept)
    changed = _waiting(workload, absent, now, fast=fast)
    changed = pods_ready(changed, ready, now) if waited else changed
    if any(is_serving(pod) for pod in here.kept):
        return changed
    done = Counter(role_of(pod) for pod in here.kept if first(pod, "status.phase") == "Succeeded")
    return reclaimed(changed, sorted(done.items()))


def _runs_down(pod: Json) -> bool:
    return is_runnable(pod) and bool(first(pod, "metadata.deletionTimestamp"))


def _waiting(workload: Workload, absent: int, now: Nanos, *, fast: bool) -> Workload:
    before = condition_of(workload.status.conditions, LACKS_PODS)
    eviction = condition_of(workload.status.conditions, "Evicted")
    if absent and is_true(eviction):
        said = (True, eviction.reason, eviction.message)
    elif absent and is_true(before):
        return workload
    elif absent and not fast:
        said = (True, "PodsFailed", "Some Failed pods need replacement")
    elif before is None:
        return workload
    else:
        said = (False, "PodsReady", "No pods need replacement")
    if before is not None and (before.status, before.reason, before.message) == (
        str(said[0]),
        *said[1:],
    ):
        return workload
    return with_condition(workload, LACKS_PODS, *said, now)


def _disagreement(composer: Composer, members: Sequence[Json], group: str) -> str:
    """Return what keeps pods from being a group, empty for nothing."""
    head = members[0]
    total = total_of(head)
    if not total:
        return f"failed to extract '{GROUP_TOTAL}' annotation"
    if len(members) < total and not is_fast(head):
        return f"'{group}' group has fewer runnable pods than expected"
    names = head["metadata"]["name"]
    for pod in members[1:]:
        other = pod["metadata"]["name"]
        if queue_name(pod) != queue_name(head):
            queues = f"{queue_name(head)}!={queue_name(pod)}"
            return f"pods '{names}' and '{other}' has different queue names: {queues}"
        if total_of(pod) != total:
            values = f"{total}!={total_of(pod)}"
            return f"pods '{names}' and '{other}' has different '{GROUP_TOTAL}' values: {values}"
    copied = [composer.copied(labels_of(pod)) for pod in members]
    keys = {key for each in copied for key in each}
    if any(len({each[key] for each in copied if key in each}) > 1 for key in keys):
        return "constructing workload: pods have different label values"
    return ""
