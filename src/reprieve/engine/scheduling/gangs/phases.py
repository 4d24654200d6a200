"""The PodGroup's status: its phase and the counts of its pods.

| phase | becomes | when |
| --- | --- | --- |
| "" | Pending | at once |
| Pending | PreScheduling | minMember > 0 pods are known |
| any other | Pending | no pod is known |
| any other | Scheduling | fewer than minMember have a node |
| any other | Scheduled | minMember have a node |
| Scheduled | Running | minMember run or have succeeded |
| any other | Failed | one has failed, and minMember run or have ended |
| any other | Finished | minMember have succeeded |

The later rows overwrite the former. The scheduler-plugins API has neither PreScheduling nor
Scheduled, and no count of scheduled pods. Source: specification of gang jobs, sections 2 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

__all__ = ["Phase", "PhasePod", "PodGroupStatus", "is_settled", "next_status", "plain_phase"]

_SETTLED_AFTER: Final = 48 * 3600  # seconds


class Phase(StrEnum):
    """Phases of a PodGroup."""

    NONE = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    """`started`: Unix seconds of scheduleStartTime, None where it is not set."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    started: int | None = None


@dataclass(frozen=True, slots=True)
class PhasePod:
    """What a member's pod states. `owners`: namespace/name of its owner references."""

    phase: str
    node: str = ""
    owners: tuple[str, ...] = ()


def next_status(
    status: PodGroupStatus, minimum: int, pods: Iterable[PhasePod], now: int
) -> PodGroupStatus:
    """Return the status after one sync. `now`: Unix seconds."""
    known = list(pods)
    if status.phase == Phase.NONE:
        return replace(status, phase=Phase.PENDING)
    if status.phase == Phase.PENDING:
        if len(known) < minimum or minimum <= 0:
            return status
        owners = ",".join(sorted(known[0].owners)) if known else ""
        occupied = owners or status.occupied_by
        return replace(status, phase=Phase.PRE_SCHEDULING, occupied_by=occupied)
    if not known:
        return replace(status, phase=Phase.PENDING)
    running = sum(pod.phase == "Running" for pod in known)
    succeeded = sum(pod.phase == "Succeeded" for pod in known)
    failed = sum(pod.phase == "Failed" for pod in known)
    scheduled = sum(bool(pod.node) for pod in known)
    phase, started = Phase.SCHEDULED, status.started
    if scheduled < minimum:
        phase = Phase.SCHEDULING
        started = now if started is None else started
    elif succeeded + running >= minimum:
        phase = Phase.RUNNING
    if failed > 0 and failed + running + succeeded >= minimum:
        phase = Phase.FAILED
    if succeeded >= minimum:
        phase = Phase.FINISHED
    return PodGroupStatus(phase, status.occupied_by, scheduled, running, succeeded, failed, started)


def is_settled(status: PodGroupStatus, minimum: int, created: int) -> bool:
    """Return whether nothing of the PodGroup is looked at any more. `created`: Unix seconds."""
    if status.phase in (Phase.FINISHED, Phase.FAILED):
        return True
    return (
        status.scheduled == minimum
        and status.running == 0
        and status.started is not None
        and status.started - created > _SETTLED_AFTER
    )


def plain_phase(phase: str) -> str:
    """Return the phase in the words of the scheduler-plugins API; other words are left alone."""
    between = (Phase.PRE_SCHEDULING, Phase.SCHEDULED)
    return str(Phase.SCHEDULING if phase in between else phase)
