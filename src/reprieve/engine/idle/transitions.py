"""The phases of a GpuWorkload as one table, from which the documentation is made.

`TRANSITIONS` holds the rows of the specification's section 11 under their numbers, in the order in
which they are tried, and the rows that the recommended handling of hazards H1, H2, H10 and H13 and
the actions beyond deletion add (16 and above). `lifecycle.step` reads it; nothing else decides
about phases, except that an evaluation marks a victim (`lifecycle.marked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.idle.model import Phase

__all__ = [
    "LIVING",
    "TRANSITIONS",
    "Action",
    "Condition",
    "Effect",
    "EventReason",
    "Requeue",
    "Transition",
]


class EventReason(StrEnum):
    """Reasons of the events on a GpuWorkload (section 12); texts are made by wording."""

    WORKLOAD_IDLE = "WorkloadIdle"
    WORKLOAD_ACTIVE = "WorkloadActive"
    WORKLOAD_PENDING_GPU = "WorkloadPendingGpu"
    WORKLOAD_PENDING = "WorkloadPending"
    PREEMPTION_STARTED = "PreemptionStarted"
    WORKLOAD_PREEMPTED = "WorkloadPreempted"
    PREEMPTION_FAILED = "PreemptionFailed"
    WORKLOAD_DELETED = "WorkloadDeleted"


class Action(StrEnum):
    """What the caller does after the status is written."""

    NONE = "None"
    DELETE_ROOT = "DeleteRoot"
    DELETE_GPU_WORKLOAD = "DeleteGpuWorkload"
    EVALUATE = "Evaluate"


class Condition(StrEnum):
    """When a row applies."""

    UNDECIDED = "the root has not been deleted yet"
    ROOT_DELETED = "delete of the root accepted, or root not found, or found with another uid"
    DELETE_FORBIDDEN = "delete forbidden"
    DELETE_FAILED = "delete failed for another reason"
    REVIVED = "the root still exists and new pods of it have appeared"
    KEPT_FOREVER = "TTL is 0, or finishedAt is unset"
    TTL_OVER = "now - finishedAt >= TTL"
    TTL_RUNNING = "else"
    ROOT_GONE = "root not found, or found with another uid"
    ROOT_UNREADABLE = "root cannot be read for another reason"
    NO_POD = "no owned pod"
    NO_POD_QUOTA_SHORT = "no owned pod; Kueue reports a GPU quota shortage for the root"
    NO_LIVE_POD = "no owned pod that is neither finished nor being deleted"
    NO_POD_LITERAL = "no owned pod (literal switches podlessIdleStays, podlessDemandStays)"
    DEMAND = "some owned pod is Pending and a GPU demand"
    NOT_RUNNING = "no owned pod is Running"
    BUSY = "aggregate of the fresh samples >= threshold"
    IDLE = "all running GPU pods have fresh samples, and the aggregate < threshold"
    SILENT_FIRST = "no fresh samples, and none since the pods run"
    SILENT_LONG = "no fresh samples for two freshness windows, and an idle timer runs"
    SILENT = "no fresh samples"


class Effect(StrEnum):
    """What a row changes in the status, besides the phase."""

    SET_PREEMPTED_AT = "set preemptedAt"
    SET_FINISHED_AT = "set finishedAt"
    CLEAR_FINISHED = "clear finishedAt and preemptedAt"
    CLEAR_TIMER = "clear idleSince"
    START_TIMER = "set idleSince unless set"
    CLEAR_METRICS = "clear aggregatedUtilization and trackedPods"
    CLEAR_PREEMPTION = "clear preemptedFor and preemptionReason"
    SET_UTILIZATION = "set aggregatedUtilization"


class Requeue(StrEnum):
    """The next timed reconcile of a row."""

    NONE = "none"
    MINUTE = "60 s"
    IF_IDLE = "60 s if Idle"
    REMAINDER = "the remainder"
    BACK_OFF = "error back-off"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row. `to` None keeps the phase; `event` is sent when the phase changes, or `always`."""

    number: int
    phases: tuple[Phase, ...]
    condition: Condition
    to: Phase | None
    effects: tuple[Effect, ...] = ()
    event: EventReason | None = None
    requeue: Requeue = Requeue.NONE
    action: Action = Action.NONE
    always: bool = False


_TERMINAL: Final = (Phase.PREEMPTED, Phase.DELETED)
LIVING: Final = (
    Phase.NEW,
    Phase.PENDING_OTHER,
    Phase.PENDING_GPU,
    Phase.ACTIVE,
    Phase.IDLE,
)
_BEFORE_FIRST_DECISION: Final = (Phase.NEW, Phase.PENDING_OTHER, Phase.PENDING_GPU)

TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(
        1,
        (Phase.PREEMPTING,),
        Condition.ROOT_DELETED,
        Phase.PREEMPTED,
        (
            Effect.SET_PREEMPTED_AT,
            Effect.SET_FINISHED_AT,
            Effect.CLEAR_TIMER,
            Effect.CLEAR_METRICS,
        ),
        EventReason.WORKLOAD_PREEMPTED,
        Requeue.MINUTE,
    ),
    Transition(
        2,
        (Phase.PREEMPTING,),
        Condition.DELETE_FORBIDDEN,
        Phase.IDLE,
        (Effect.CLEAR_PREEMPTION, Effect.CLEAR_TIMER),
        EventReason.PREEMPTION_FAILED,
        Requeue.MINUTE,
    ),
    Transition(3, (Phase.PREEMPTING,), Condition.DELETE_FAILED, None, requeue=Requeue.BACK_OFF),
    Transition(16, (Phase.PREEMPTING,), Condition.UNDECIDED, None, action=Action.DELETE_ROOT),
    Transition(
        17,
        (Phase.PREEMPTED,),
        Condition.REVIVED,
        Phase.PENDING_OTHER,
        (Effect.CLEAR_FINISHED, Effect.CLEAR_PREEMPTION),
        EventReason.WORKLOAD_PENDING,
    ),
    Transition(4, _TERMINAL, Condition.KEPT_FOREVER, None),
    Transition(5, _TERMINAL, Condition.TTL_OVER, None, action=Action.DELETE_GPU_WORKLOAD),
    Transition(6, _TERMINAL, Condition.TTL_RUNNING, None, requeue=Requeue.REMAINDER),
    Transition(
        7,
        LIVING,
        Condition.ROOT_GONE,
        Phase.DELETED,
        (Effect.SET_FINISHED_AT, Effect.CLEAR_TIMER, Effect.CLEAR_METRICS),
        EventReason.WORKLOAD_DELETED,
        Requeue.MINUTE,
    ),
    Transition(8, LIVING, Condition.ROOT_UNREADABLE, None, requeue=Requeue.BACK_OFF),
    Transition(
        9,
        (Phase.NEW,),
        Condition.NO_POD,
        Phase.PENDING_OTHER,
        (),
        EventReason.WORKLOAD_PENDING,
    ),
    Transition(
        10,
        LIVING,
        Condition.NO_POD_QUOTA_SHORT,
        Phase.PENDING_GPU,
        (Effect.CLEAR_TIMER,),
        EventReason.WORKLOAD_PENDING_GPU,
        action=Action.EVALUATE,
    ),
    Transition(11, LIVING, Condition.NO_POD_LITERAL, None, requeue=Requeue.IF_IDLE),
    Transition(
        18,
        LIVING,
        Condition.NO_LIVE_POD,
        Phase.PENDING_OTHER,
        (Effect.CLEAR_TIMER,),
        EventReason.WORKLOAD_PENDING,
    ),
    Transition(
        12,
        LIVING,
        Condition.DEMAND,
        Phase.PENDING_GPU,
        (Effect.CLEAR_TIMER,),
        EventReason.WORKLOAD_PENDING_GPU,
        action=Action.EVALUATE,
    ),
    Transition(
        13,
        LIVING,
        Condition.NOT_RUNNING,
        Phase.PENDING_OTHER,
        (Effect.CLEAR_TIMER,),
        EventReason.WORKLOAD_PENDING,
    ),
    Transition(
        14,
        LIVING,
        Condition.BUSY,
        Phase.ACTIVE,
        (Effect.SET_UTILIZATION, Effect.CLEAR_TIMER),
        EventReason.WORKLOAD_ACTIVE,
        action=Action.EVALUATE,
    ),
    Transition(
        15,
        LIVING,
        Condition.IDLE,
        Phase.IDLE,
        (Effect.SET_UTILIZATION, Effect.START_TIMER),
        EventReason.WORKLOAD_IDLE,
        Requeue.MINUTE,
        Action.EVALUATE,
    ),
    Transition(
        19,
        _BEFORE_FIRST_DECISION,
        Condition.SILENT_FIRST,
        Phase.ACTIVE,
        (Effect.CLEAR_TIMER,),
        EventReason.WORKLOAD_ACTIVE,
        action=Action.EVALUATE,
    ),
    Transition(
        20, LIVING, Condition.SILENT_LONG, None, (Effect.CLEAR_TIMER,), requeue=Requeue.IF_IDLE
    ),
    Transition(21, LIVING, Condition.SILENT, None, requeue=Requeue.IF_IDLE),
)
