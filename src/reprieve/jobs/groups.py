"""Groups of pods: who stays, who is too many, who is missing, and when it is over.

Pods with one group name are one workload, whose pod sets are the roles: pods of the same shape. A
member that fails or is deleted keeps its finalizer until another of its role is there. Who of a
role stays when there are too many, first to last:

1. pods with our finalizer
2. pods that were ungated already
3. lower ordinals of a StatefulSet, so that those which it makes again replace them
4. older ones
5. the name

Of those that were replaced the ones that were active last stay longest. What is done about a pod
that exceeds the group's size follows from what would make it again: a controller would at once.

Source: specification of the quota plane, section 10.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import parse_instant
from reprieve.jobs.pods import (
    controller_of,
    gone_at,
    has_finalizer,
    is_gated,
    is_missed,
    is_runnable,
    is_serving,
    is_unretriable,
    ordinal_of,
    role_of,
    total_of,
)

__all__ = ["Excess", "Roster", "excess_of", "group_over", "roster", "surplus"]


class Excess(Enum):
    """What is done about a pod that is one too many in its group."""

    HOLD = auto()  # it stays gated: deleted, it would be made again
    DELETE = auto()  # no controller makes it again, or its replacement is gated
    LEAVE = auto()  # it was never gated, nor would the next one be


@dataclass(frozen=True, slots=True)
class Roster:
    """Members of a group beside the pod sets of its Workload.

    `absent` pods are missing, `excess` ones are too many, `replaced` ones have been made up for.
    `fits`: every role that is kept has its pod set; a stranger that is held back while no pod is
    missing is one too many.
    """

    kept: tuple[Json, ...]
    absent: int
    excess: tuple[Json, ...]
    replaced: tuple[Json, ...]
    fits: bool


def roster(pod_sets: Mapping[str, int], members: Sequence[Json], gate: str) -> Roster:
    """Return who of a group stays; `pod_sets` are the counts of the Workload by name."""
    kept: list[Json] = []
    too_many: list[Json] = []
    replaced: list[Json] = []
    absent = 0
    by_role: dict[str, list[Json]] = {}
    for pod in members:
        by_role.setdefault(role_of(pod), []).append(pod)
    for role, count in pod_sets.items():
        pods = by_role.pop(role, [])
        active = sorted(filter(is_runnable, pods), key=_staying)
        others = sorted((pod for pod in pods if not is_runnable(pod)), key=_lingering)
        absent += max(0, count - len(active))
        too_many += active[count:]
        wanted = max(0, count - len(active))
        kept += [*active[:count], *others[:wanted]]
        replaced += others[wanted:]
    strangers = [pod for pods in by_role.values() for pod in pods if is_runnable(pod)]
    if not absent and all(excess_of(pod, gate) is Excess.HOLD for pod in strangers):
        too_many += sorted(strangers, key=_staying)
        strangers = []
    return Roster(
        tuple(kept), absent, tuple(too_many), tuple(replaced), bool(kept) and not strangers
    )


def excess_of(pod: Json, gate: str) -> Excess:
    """Return what is done about a pod that is one too many."""
    if is_missed(pod, gate):
        return Excess.LEAVE
    return Excess.HOLD if is_gated(pod, gate) and controller_of(pod) else Excess.DELETE


def surplus(members: Sequence[Json], total: int) -> list[Json]:
    """Return which of the runnable members are more than a group without a Workload may have."""
    return sorted(filter(is_runnable, members), key=_staying)[total:]


def group_over(members: Sequence[Json]) -> str | None:
    """Return the message about a group that has ended, None while it has not."""
    if any(is_serving(pod) for pod in members):
        return None
    total = max((total_of(pod) for pod in members), default=0)
    succeeded = sum(first(pod, "status.phase") == "Succeeded" for pod in members)
    active = any(not is_over(pod) for pod in members)
    if 0 < total <= succeeded or (not active and any(is_unretriable(pod) for pod in members)):
        return f"Pods succeeded: {succeeded}/{total}."
    return None


def _staying(pod: Json) -> tuple[bool, bool, int, str, str]:
    """Criteria 1 to 5 of the module; any gate holds back."""
    metadata = pod["metadata"]
    return (
        not has_finalizer(pod),
        bool(first(pod, "spec.schedulingGates")),
        ordinal_of(pod) or 0,
        str(metadata.get("creationTimestamp", "")),
        metadata["name"],
    )


def _lingering(pod: Json) -> tuple[bool, int, str, str]:
    metadata = pod["metadata"]
    ended = [
        str(each.get("lastTransitionTime"))
        for each in first(pod, "status.conditions") or ()
        if each.get("type") == "ContainersReady" and each.get("reason") == "PodFailed"
    ]
    times = [parse_instant(text) for text in ended if text != "None"]
    deleted = gone_at(pod)
    last = min([*times, *([] if deleted is None else [deleted])], default=0)
    return (
        not has_finalizer(pod),
        -last,
        str(metadata.get("creationTimestamp", "")),
        metadata["name"],
    )
