"""What a pod's status states of its failing: when a container ended badly, or cannot start.

The last bad end counts, of those that the status reports: the one that stands, and the one before
the last start. A container that waits for one of the reasons below was never at work. What a pod
loses while it is evicted is no failure of its own. Source: specification of disruptions, section
4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reprieve.api.scheduling import ContainerStatus, ContainerTerminated, PodObject
from reprieve.intake.cluster.metadata import seconds_of

__all__ = ["disrupted_by", "failed_at", "is_stuck"]

_CANNOT_START: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "PostStartHookError",
        "RunContainerError",
    }
)


def failed_at(pod: PodObject) -> int:
    """Return when a container ended with an error for the last time, in Unix seconds; 0: none."""
    last = 0
    for each in _statuses(pod):
        if (state := each.state) is not None and state.terminated is not None:
            last = max(last, _failed(state.terminated))
        if (state := each.last_state) is not None and state.terminated is not None:
            last = max(last, _failed(state.terminated))
    return last


def is_stuck(pod: PodObject) -> bool:
    """Return whether a container waits because it cannot be started."""
    for each in _statuses(pod):
        waiting = None if (state := each.state) is None else state.waiting
        if waiting is not None and waiting.reason in _CANNOT_START:
            return True
    return False


def disrupted_by(pod: PodObject) -> str:
    """Return the reason of an eviction by another actor, whose end is not its own; or none."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return condition.reason or "unknown"
    return ""


def _failed(ended: ContainerTerminated) -> int:
    return (seconds_of(ended.finished_at) or 0) if ended.exit_code else 0


def _statuses(pod: PodObject) -> Sequence[ContainerStatus]:
    # Plain loops and lists: this is called for every pod of a cluster.
    usual, init = pod.status.container_statuses or (), pod.status.init_container_statuses
    return [*usual, *init] if init else usual
