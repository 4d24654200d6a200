"""What a step of a GpuWorkload is given, and what it returns (`lifecycle`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Status
from reprieve.engine.idle.transitions import Action, EventReason
from reprieve.units.ids import Uid

__all__ = [
    "DeleteOutcome",
    "Event",
    "Facts",
    "MetricsHealth",
    "MetricsReason",
    "Missing",
    "Present",
    "RootState",
    "Step",
    "Unreadable",
]


@dataclass(frozen=True, slots=True)
class Present:
    """The root was read. `terminating`: it has a deletion timestamp."""

    uid: Uid
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no object under the root's name."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The root could not be read: forbidden, or the API server did not answer."""

    detail: str = ""


RootState = Present | Missing | Unreadable


class DeleteOutcome(StrEnum):
    """How the deletion (or other eviction) of the root ended."""

    ACCEPTED = "Accepted"
    NOT_FOUND = "NotFound"
    UID_CONFLICT = "UidConflict"
    FORBIDDEN = "Forbidden"
    FAILED = "Failed"


class MetricsHealth(StrEnum):
    """What the scraper knows about the endpoints that report this workload's pods."""

    OK = "Ok"
    UNREACHABLE = "Unreachable"
    INVALID = "Invalid"  # its samples had impossible values
    OLD = "Old"  # its samples had a time on their line that is past the freshness window


class MetricsReason(StrEnum):
    """Reasons of the condition MetricsAvailable; FRESH is the only one with status True."""

    FRESH = "Fresh"
    NO_SAMPLES = "NoSamples"
    STALE = "Stale"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    INVALID_SAMPLE = "InvalidSample"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the caller found out; the samples and pods stand in the workload itself."""

    root: RootState
    metrics: MetricsHealth = MetricsHealth.OK
    quota_short: bool = False
    delete: DeleteOutcome | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the GpuWorkload; `utilization` is percent where the text shows it."""

    reason: EventReason
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from the facts.

    `phase_updated`: write the condition PhaseUpdated. `metrics`: the reason that the condition
    MetricsAvailable shall show (FRESH: status True, only over an existing condition), or None to
    leave it. `requeue`: nanoseconds to the row's timed reconcile. `wake`: the next instant at which
    the same facts may give another result, never later than the requeue. `backed_off`: the caller
    tries again with its error back-off.
    """

    row: int
    status: Status
    gpus: dict[str, int]
    phase_updated: bool = False
    metrics: MetricsReason | None = None
    events: tuple[Event, ...] = ()
    action: Action = Action.NONE
    requeue: int | None = None
    wake: Nanos | None = None
    backed_off: bool = False
