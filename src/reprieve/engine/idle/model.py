"""The words and rows of the idle plane, compatible with Kaiwo GPU preemption.

Facts come in as rows, decisions are returned as values; `intake` makes the rows from API objects,
`wording` makes texts from the decisions. Instants are wall nanoseconds, durations nanoseconds,
utilisation is percent 0-100. Source: specification of the idle plane, sections 2, 5, 11 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kubeworld.objects.pods import OVER
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.plan import Plane
from reprieve.engine.victim_choice import VictimChoice
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

__all__ = [
    "Aggregation",
    "Debt",
    "Fit",
    "GpuSample",
    "IdleSnapshot",
    "Mixed",
    "NodeRow",
    "Phase",
    "PodRow",
    "Policy",
    "PreemptionPolicy",
    "Reservation",
    "Settings",
    "Status",
    "TrackedPod",
    "Workload",
]

EPOCH: Final = Nanos(0)


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
    """When an idle workload is preempted: for a demand, or as soon as its grace period is over."""

    ON_PRESSURE = "OnPressure"
    ALWAYS = "Always"


class Aggregation(StrEnum):
    """How the utilisation of a workload's pods becomes one number."""

    MIN = "Min"
    MAX = "Max"
    AVG = "Avg"


class Fit(StrEnum):
    """What the fit check proves: a node for every pending pod, or the sum per resource name.

    SUM is what the compatible system does: it knows no nodes, no free capacity and GPUs only.
    """

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
    partition: str | None = None  # gpu_partition_id; None: no such label, or not known any more


@dataclass(frozen=True, slots=True)
class TrackedPod:
    """An owned pod and the samples of its GPUs."""

    name: str
    samples: tuple[GpuSample, ...] = ()


@dataclass(frozen=True, slots=True)
class PodRow:
    """What the idle plane needs to know of a pod.

    `demand`: the scheduler states that a GPU resource is short (section 13). `nodes`: for a pod
    without a node, the names of the nodes that its selectors and tolerations admit; None means all.
    `started`: when it was accepted by its kubelet; `created`: when the object was made; `ends`:
    when the graceful end of a pod that is being deleted should be over. `group`: the pods of one
    namespace with one group, empty for none, start together. `asks`: what it requests of a node
    beside GPUs (cpu in milli-CPU, `pods` one), where placements are proven. `gated`: it waits for
    quota, not yet for a node.
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
    created: Nanos | None = None
    ends: Nanos | None = None
    group: str = ""
    asks: Mapping[str, int] = field(default_factory=dict)
    gated: bool = False

    @property
    def amounts(self) -> dict[str, int]:
        """All that it requests of a node, GPUs among it."""
        return {**self.asks, **self.gpus}

    @property
    def live(self) -> bool:
        """Whether it is neither finished nor being deleted."""
        return not self.terminating and self.phase not in OVER


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
    `released`: when the last of them ended, None while one exists or when that was not seen.
    `unit`: the group, `namespace/name`, with which it is evicted as a whole; empty for none.
    `precedence`: the priority of a demand to which another plane of the process gives its capacity,
    and of idle work where a debt applies to it; `queued` then: that of its Kueue Workload, if it
    has one. Before `preempts_from` no work is evicted for it; `spaced`: because other work uses the
    capacity that plans for it freed. `rank`: by the order of victims of another scheduler; the
    lower one is evicted first.
    """

    ref: Reference
    root: Reference
    created: Nanos
    gpus: Mapping[str, int]
    settings: Settings
    status: Status
    pods: tuple[PodRow, ...] = ()
    released: Nanos | None = None
    unit: str = ""
    precedence: int = 0
    preempts_from: Nanos = EPOCH
    spaced: bool = False
    rank: int = 0
    queued: int | None = None

    @property
    def key(self) -> GpuWorkloadKey:
        """`namespace/name` of the GpuWorkload."""
        return GpuWorkloadKey(f"{self.ref.namespace}/{self.ref.name}")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node that accepts pods: what is free, allocatable minus what all pods on it request.

    Of every resource, in base units (cpu in milli-CPU). Pods that are being deleted still count as
    there. `free` may be negative.
    """

    name: str
    free: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity on a node that an earlier plan gave to a pod which is not bound yet."""

    demand: GpuWorkloadKey
    pod: Uid
    node: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Released:
    """Idle work that holds what a demand lacks; `placed`: its pods have nodes then.

    `mixed`: they have nodes once work of lower priority has been evicted for them as well.
    """

    roots: tuple[Uid, ...]
    placed: bool = False
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Mixed:
    """Idle work that is evicted for a demand together with pods of lower priority.

    `placement`: a node for each pod of the demand, with all of them evicted.
    """

    roots: tuple[Uid, ...]
    placement: tuple[tuple[Uid, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Debt:
    """What may be evicted for work that returns after it was displaced.

    `devices`: no more than it lost. `since`: only what could not be evicted yet then; None: all
    idle work. `above`: what has a lower priority than this could have been evicted then, and stays;
    `of_quota`: likewise what holds quota, by the priority of its Workload.
    """

    devices: int
    since: Nanos | None = None
    above: int | None = None
    of_quota: int | None = None

    def allows(self, workload: Workload) -> bool:
        """Whether idle work may be evicted for the return at all."""
        if self.above is not None and workload.precedence < self.above:
            return False
        held = workload.queued
        if self.of_quota is not None and held is not None and held < self.of_quota:
            return False
        idle = workload.status.idle_since
        if self.since is None or idle is None:
            return idle is not None
        return idle + workload.settings.grace_period > self.since


@dataclass(frozen=True, slots=True)
class IdleSnapshot:
    """Everything one evaluation looks at.

    `claims`: for roots that a committed plan evicts, the demand it serves (None: policy Always).
    They hold from the commit on, whether or not the victim's status shows it already. `served`:
    GpuWorkloads with a pod on a node; what was freed for them they may have. `holds`: roots that
    the governor of disruptions holds, by the demand from which it does, or the empty text where
    they would be evicted for no work. `owned`: demands for which another plane of the process
    evicts. `displaced`: demands that were preempted for others lately, where planes decide
    together; `debts`: what may be evicted for the return of each, no workload where it has none.
    `busy_units`: groups that are evicted as a whole, of which some pod is not idle, or has not
    opted in. `released`: for demands that the quota plane owns, the roots of idle work with whose
    eviction the demand gets its quota, as that plane has worked out. `mixed`: for demands for which
    no idle work suffices, what is evicted beside work of lower priority, as the scheduling plane
    has worked out. `refused`: ids of plans that the scheduling plane has not confirmed; their
    victims are left to other demands.
    """

    revision: int
    workloads: tuple[Workload, ...]
    nodes: tuple[NodeRow, ...] = ()
    claims: Mapping[Uid, GpuWorkloadKey | None] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    served: frozenset[GpuWorkloadKey] = frozenset()
    holds: Mapping[str, Mapping[Uid, Hold]] = field(default_factory=dict)
    owned: Mapping[GpuWorkloadKey, Plane] = field(default_factory=dict)
    displaced: frozenset[GpuWorkloadKey] = frozenset()
    busy_units: frozenset[str] = frozenset()
    released: Mapping[GpuWorkloadKey, Released] = field(default_factory=dict)
    mixed: Mapping[GpuWorkloadKey, Mixed] = field(default_factory=dict)
    debts: Mapping[GpuWorkloadKey, Debt] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    def held_until(self, demand: str, root: Uid, now: Nanos) -> Nanos | None:
        """Return until when a root is held from a demand, None where it may be evicted."""
        hold = self.holds.get(demand, {}).get(root)
        return None if hold is None or hold.until <= now else hold.until


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for the whole plane: options, intervals (nanoseconds) and literal switches.

    `fewest`: of two sets, that of the oldest and that of the smallest, the one with fewer GPUs is
    chosen; where the scheduling plane decides beside this one. `choice` BEST: irreducible, and the
    fewest devices that a search finds (`least`). `settling`: how long after the end
    of a victim's last pod its GPUs still count as on their way to the demand, which the scheduler
    needs to place the pods (hazard H4). `slack`: how long after its graceful end a pod that is
    still there counts as leaving; then it is planned around. So is one whose graceful end is later
    than `longest_grace` after the eviction of its root, and one that is not even being deleted
    `unended` after it, as where a finalizer keeps the root.
    """

    polling_interval: int = 15 * SECOND
    fit: Fit = Fit.SUM
    irreducible: bool = False
    fewest: bool = False
    choice: VictimChoice = VictimChoice.COMPATIBLE
    settling: int = 15 * SECOND
    slack: int = 60 * SECOND
    longest_grace: int = HOUR
    unended: int = 5 * MINUTE
    literal: LiteralSwitches = field(default_factory=LiteralSwitches)

    @property
    def best(self) -> bool:
        """Whether the fewest devices are searched for."""
        return self.choice is VictimChoice.BEST

    @property
    def trims(self) -> bool:
        """Whether victims are reprieved that a sum does not need."""
        return self.irreducible or self.best

    @property
    def freshness(self) -> int:
        """How long after a poll its samples count as fresh."""
        return max(3 * self.polling_interval, 60 * SECOND)

    @property
    def own_freshness(self) -> int | None:
        """How old a sample may be by the time on its line, None where that is not looked at."""
        return None if self.literal.sample_times_ignored else self.freshness

    def fingerprint(self) -> str:
        """Return a text that differs whenever a plan may differ because of the policy."""
        switches = ",".join(sorted(self.literal.switched_on()))
        fewest = ";fewest" if self.fewest else ""
        fewest += ";best" if self.best else ""
        return f"fit={self.fit};irreducible={self.irreducible};literal={switches}{fewest}"
