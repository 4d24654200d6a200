"""The words and rows of the idle plane, compatible with Kaiwo GPU preemption.

Facts come in as rows, decisions go out as values; `intake` makes the rows from API objects,
`wording` makes texts from the decisions. Instants are wall nanoseconds, durations nanoseconds,
utilisation is percent 0-100. Source: specification of the idle plane, sections 2, 5, 11 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reprieve.engine.plan import Ref
from reprieve.units.ids import Uid
from reprieve.units.instants import Nanos

__all__ = [
    "Aggregation",
    "Fit",
    "GpuSample",
    "Phase",
    "PodRow",
    "PreemptionPolicy",
    "Settings",
    "Status",
    "TrackedPod",
    "Workload",
]


class Phase(StrEnum):
    """Phases of a GpuWorkload; NEW is one whose first status write was lost."""

    NEW = ""
    PENDING_OTHER = "PendingOther"
    PENDING_GPU = "PendingGpu"
    ACTIVE = "Active"
    IDLE = "Idle"
    PREEMPTING = "Preempting"
    PREEMPTED = "Preempted"
    DELETED = "Deleted"


class PreemptionPolicy(StrEnum):
    """When an idle workload makes way: for a demand, or as soon as its grace period is over."""

    ON_PRESSURE = "OnPressure"
    ALWAYS = "Always"


class Aggregation(StrEnum):
    """How the utilisation of a workload's pods becomes one number."""

    MIN = "Min"
    MAX = "Max"
    AVG = "Avg"


class Fit(StrEnum):
    """What the fit check proves: the sum per resource name, or a node for every pending pod."""

    SUM = "Sum"
    NODE = "Node"


@dataclass(frozen=True, slots=True)
class Settings:
    """The five settings of one workload, resolved through all tiers."""

    threshold: float  # percent; below it the workload is idle
    grace_period: int  # nanoseconds
    policy: PreemptionPolicy
    aggregation: Aggregation
    ttl: int  # nanoseconds; 0 keeps the record for ever


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The last known utilisation of one GPU of one pod."""

    gpu_id: str
    utilization: float  # percent, two decimals
    updated: Nanos  # last change of the value, as written to lastUpdate
    seen: Nanos | None = None  # last poll that contained it; None: not since this process started


@dataclass(frozen=True, slots=True)
class TrackedPod:
    """An owned pod and the samples of its GPUs."""

    name: str
    samples: tuple[GpuSample, ...] = ()


@dataclass(frozen=True, slots=True)
class PodRow:
    """What the idle plane needs to know of a pod.

    `demand`: the scheduler says that a GPU resource is short (section 13). `nodes`: for a pod
    without a node, the names of the nodes that its selectors and tolerations admit; None means all.
    """

    uid: Uid
    name: str
    phase: str
    gpus: Mapping[str, int] = field(default_factory=dict)
    node: str | None = None
    demand: bool = False
    terminating: bool = False
    started: Nanos | None = None
    nodes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a GpuWorkload, without its conditions."""

    phase: Phase = Phase.NEW
    tracked_pods: tuple[TrackedPod, ...] = ()
    aggregated_utilization: float | None = None
    last_metrics_update: Nanos | None = None
    idle_since: Nanos | None = None
    finished_at: Nanos | None = None
    owner_chain: str = ""
    preempted_at: Nanos | None = None
    preempted_for: str = ""
    preemption_reason: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """One GpuWorkload with the settings in force for it.

    `ref` is the GpuWorkload itself, `root` the object that is evicted. `gpus` is the total per GPU
    resource name over all owned pods. `pods`: all and only the owned pods that still exist.
    """

    ref: Ref
    root: Ref
    created: Nanos
    gpus: Mapping[str, int]
    settings: Settings
    status: Status
    pods: tuple[PodRow, ...] = ()
