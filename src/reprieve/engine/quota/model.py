"""The values that the quota plane decides over: configuration, workloads, settings.

All are immutable and know nothing of the API's objects; `intake` makes them. Amounts are integers
in engine units (`amounts`), instants are nanoseconds.

Source: specification of the quota plane, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.quota.assigning.constraints import (
    LabelSelector,
    NodeExpression,
    Taint,
    Toleration,
)
from reprieve.engine.topology.model import (
    DEFAULT_GATES,
    PreferredTerm,
    Topology,
    TopologyAssignment,
    TopologyGates,
    TopologyRequest,
)
from reprieve.engine.victim_choice import VictimChoice

__all__ = [
    "Admission",
    "AdmittedPodSet",
    "BorrowWithinCohort",
    "Check",
    "ClusterQueue",
    "Cohort",
    "Configuration",
    "Eviction",
    "FlavorFungibility",
    "FlavorQuotas",
    "FlavorResource",
    "Fungibility",
    "Gates",
    "LabelSelector",
    "LocalQueue",
    "NodeExpression",
    "PodSet",
    "Policy",
    "Preemption",
    "Preference",
    "QueueingStrategy",
    "Quota",
    "Reason",
    "ResourceFlavor",
    "ResourceGroup",
    "Settings",
    "StopPolicy",
    "Strategy",
    "Taint",
    "Toleration",
    "Workload",
]


EPOCH: Final = Nanos(0)

#: Selects all.
EVERYTHING: Final = LabelSelector()


class FlavorResource(NamedTuple):
    """What quota is counted in."""

    flavor: str
    resource: str


class Policy(StrEnum):
    """Which workloads may be preempted. `UNSET` exists in memory only; the API defaults it."""

    UNSET = ""
    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Fungibility(StrEnum):
    """What the scan of flavors does after a flavor that would do."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class Preference(StrEnum):
    """Which of two flavors is better."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class QueueingStrategy(StrEnum):
    """Whether a head that does not fit blocks its queue."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """Whether a queue admits, and whether it keeps what it admitted."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class Strategy(StrEnum):
    """The inequality that a victim of fair sharing satisfies."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class Reason(StrEnum):
    """Why a workload is preempted; also the reason of its condition `Preempted`."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Check(StrEnum):
    """State of one admission check of a workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of one flavor and resource; a limit of None is no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quotas of one flavor, by resource."""

    flavor: str
    resources: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that get their flavor together, and the flavors in the order of the scan."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """Whether a queue may preempt others while it borrows itself, and up to which priority."""

    policy: Policy = Policy.NEVER
    max_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whom a ClusterQueue may preempt."""

    within_cluster_queue: Policy = Policy.NEVER
    reclaim_within_cohort: Policy = Policy.NEVER
    borrow_within_cohort: BorrowWithinCohort | None = None

    @property
    def borrows(self) -> bool:
        """Whether preemption while borrowing is allowed."""
        return self.borrow_within_cohort is not None and self.borrow_within_cohort.policy not in (
            Policy.NEVER,
            Policy.UNSET,
        )


@dataclass(frozen=True, slots=True)
class FlavorFungibility:
    """How the scan of flavors continues."""

    when_can_borrow: Fungibility = Fungibility.MAY_STOP_SEARCH
    when_can_preempt: Fungibility = Fungibility.TRY_NEXT_FLAVOR
    preference: Preference | None = None


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A queue with quota. `selector` None matches no namespace.

    `provisioning`: those of its checks that provide nodes, so that places are assigned after them.
    """

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    preemption: Preemption = Preemption()
    fungibility: FlavorFungibility = FlavorFungibility()
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    selector: LabelSelector | None = EVERYTHING
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: float = 1.0
    checks: tuple[str, ...] = ()
    checks_on_flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unready_checks: tuple[str, ...] = ()
    provisioning: tuple[str, ...] = ()
    usage_based: bool = False
    generation: int = 0
    terminating: bool = False

    def group_of(self, resource: str) -> ResourceGroup | None:
        """Return the first group that covers `resource`."""
        for group in self.groups:
            if resource in group.covered:
                return group
        return None

    def provides_nodes(self, flavor: str) -> bool:
        """Return whether nodes of a flavor are provided by a check, after quota is reserved."""
        on = (self.checks_on_flavors.get(name, ()) for name in self.provisioning)
        return any(not flavors or flavor in flavors for flavors in on)


@dataclass(frozen=True, slots=True)
class Cohort:
    """A node above ClusterQueues; its quota comes in addition to that of its members."""

    name: str
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A kind of nodes; `topology` names the tree of them in which pods are placed, if any."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A tenant's door to a ClusterQueue; `key` is `namespace/name`."""

    key: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape.

    `requests` are those of one pod. `affinity` are the required node selector terms, of which one
    must hold; None is no affinity. Pod sets of one `group` get their flavors together, and their
    places if they have `topology`. `pod_requests` are what a pod requests of its node, where that
    is not what quota counts; `preferred` are terms of its affinity that it would rather have met.
    """

    name: str
    count: int
    requests: Mapping[str, int] = field(default_factory=dict)
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[NodeExpression, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    group: str = ""
    topology: TopologyRequest | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    pod_requests: Mapping[str, int] | None = None

    @property
    def on_node(self) -> Mapping[str, int]:
        """Return what one pod requires of its node."""
        return self.requests if self.pod_requests is None else self.pod_requests


@dataclass(frozen=True, slots=True)
class AdmittedPodSet:
    """What a pod set holds: flavors and totals by resource, and its places.

    `delayed`: it gets its places once the workload's checks are ready.
    """

    name: str
    count: int
    flavors: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    topology: TopologyAssignment | None = None
    delayed: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """The quota that a workload holds."""

    cluster_queue: str
    pod_sets: tuple[AdmittedPodSet, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A condition `Evicted` or `Preempted` that is True."""

    reason: str
    at: Nanos


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload, pending or holding quota; `queue` is the key of its LocalQueue.

    `reserved_at` is the transition of `QuotaReserved=True`, None while it is not true. `invalid` is
    why it cannot be considered at all (limit ranges, malformed requests), else empty. `job_uid` is
    the uid of the job behind it, for messages. `replaces` is the key of the workload whose place it
    fills, being a larger slice of the same job. For its minimum runtimes, in seconds since the
    reservation, it is not preempted within its queue, or not reclaimed by others. `idle` states
    that the idle plane knows it to hold GPUs without using them. `participant` is its lineage. It
    states itself up to when its work was saved last (`checkpoint`), and when the next save is to be
    good. `counts_from`: where notice is expected to spare what it has not saved, from when on its
    time counts as lost instead. `unhealthy_nodes` are nodes of its places that failed; `of_one_pod`
    states that a plain pod is all that it is, so that nothing makes it anew elsewhere. Before
    `preempts_from` no work is preempted for it. `rank`: by the order of victims of another
    scheduler; the lower one is evicted first.
    """

    namespace: str
    name: str
    uid: str = ""
    queue: str = ""
    priority: int = 0
    boost: int = 0
    created: Nanos = EPOCH
    pod_sets: tuple[PodSet, ...] = ()
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    admission: Admission | None = None
    reserved_at: Nanos | None = None
    evicted: Eviction | None = None
    preempted: Eviction | None = None
    active: bool = True
    requeued: bool = True
    requeue_at: Nanos | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    admission_gated: bool = False
    closed_gates: tuple[str, ...] = ()
    pods_ready: bool = True
    finished: bool = False
    invalid: str = ""
    job_uid: str = ""
    replaces: str = ""
    preempt_min_runtime_s: int = 0
    reclaim_min_runtime_s: int = 0
    idle: bool = False
    participant: Participant | None = None
    checkpoint: Nanos | None = None
    next_checkpoint: Nanos | None = None
    unhealthy_nodes: tuple[str, ...] = ()
    of_one_pod: bool = False
    preempts_from: Nanos = EPOCH
    counts_from: Nanos | None = None
    rank: int = 0

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates that change decisions, with the reference's defaults."""

    priority_sorting_within_cohort: bool = True
    flavor_fungibility: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = True
    partial_admission: bool = True
    reclaimable_pods: bool = True
    scheduling_equivalence_hashing: bool = True
    admission_fair_sharing: bool = True
    priority_boost: bool = False
    prioritize_preemptor_workloads: bool = False
    concurrent_admission: bool = False
    multi_kueue_orchestrated_preemption: bool = False
    unadmitted_workloads_observability: bool = True
    topology_aware_scheduling: bool = True
    tas_recompute_assignment_within_scheduling_cycle: bool = True
    tas_failed_node_replacement: bool = True
    tas_failed_node_replacement_fail_fast: bool = True
    tas_replace_node_on_node_taints: bool = True
    tas_replace_node_on_pod_termination: bool = True
    tas_replace_node_after_fixed_time: bool = False
    topology: TopologyGates = DEFAULT_GATES


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator chooses. `fair_sharing` None is the classical algorithm.

    `idle_first` prefers those that are idle among candidates that differ in nothing but the uid.
    `harm_order` uses the last save in place of the reservation where that is later (`harm`), and
    makes a preemptor wait for saves for at most `max_save_wait` nanoseconds in all. `profile`
    chooses among the sets of victims that the rules permit (`cheapest`).
    """

    fair_sharing: tuple[Strategy, ...] | None = None
    gates: Gates = Gates()
    eviction_timestamp: bool = True
    ignore_undeclared: bool = False
    admission_fair_sharing: bool = False
    block_admission: bool = False
    idle_first: bool = False
    harm_order: bool = False
    max_save_wait: int = HOUR
    profile: VictimChoice = VictimChoice.COMPATIBLE

    @property
    def preemptors_first(self) -> bool:
        """Whether who waits for its own preemptions is considered before others.

        By the gate, or by profile `best`, where that is for who has places (`cycle`).
        """
        return self.gates.prioritize_preemptor_workloads or self.best

    @property
    def best(self) -> bool:
        """Whether the least costly victims are searched for."""
        return self.profile is VictimChoice.BEST

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Return the strategies in force; none given means both."""
        return self.fair_sharing or (
            Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
            Strategy.LESS_THAN_INITIAL_SHARE,
        )


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything but the workloads. `namespaces` are labels by name."""

    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    local_queues: Mapping[str, LocalQueue] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Settings = Settings()
    topologies: Mapping[str, Topology] = field(default_factory=dict)
