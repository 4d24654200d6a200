"""Kueue's API, `kueue.x-k8s.io/v1beta2`: queues, cohorts, flavors, workloads, classes, checks.

Specs are read and never written back whole, so fields without a use here are left out; pods of a
Workload are read for what they ask for and where they may run. Statuses are whole: what another
controller wrote there survives a write of ours. Instants are RFC 3339 text, quantities text or
numbers as written. Source: specification of the quota plane, section 1.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from reprieve.api.core import (
    Affinity,
    ContainerResources,
    MetaWithFinalizers,
    ObjectMeta,
    PodResourceClaim,
    Toleration,
)

__all__ = [
    "API_VERSION",
    "GROUP",
    "OLD_API_VERSION",
    "RESOURCE_IN_USE",
    "Admission",
    "AdmissionCheck",
    "AdmissionCheckState",
    "AdmissionCheckStatus",
    "Amounts",
    "ClusterQueue",
    "ClusterQueueSpec",
    "ClusterQueueStatus",
    "Cohort",
    "CohortSpec",
    "CohortStatus",
    "Condition",
    "Container",
    "EvictionCount",
    "FairSharing",
    "FairSharingStatus",
    "FlavorQuotas",
    "FlavorUsage",
    "LabelSelector",
    "LocalQueue",
    "LocalQueueSpec",
    "LocalQueueStatus",
    "PodSet",
    "PodSetAssignment",
    "PodSetRequest",
    "PodSpec",
    "PodTemplate",
    "PreemptionGateState",
    "PriorityClassRef",
    "ReclaimablePod",
    "RequeueState",
    "ResourceFlavor",
    "ResourceGroup",
    "ResourceQuota",
    "ResourceUsage",
    "SchedulingStats",
    "SliceConstraint",
    "Topology",
    "TopologyLevel",
    "TopologySpec",
    "Workload",
    "WorkloadPriorityClass",
    "WorkloadSpec",
    "WorkloadStatus",
]

GROUP: Final = "kueue.x-k8s.io"
API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
OLD_API_VERSION: Final = "kueue.x-k8s.io/v1beta1"
# Keeps a Workload, ClusterQueue or ResourceFlavor from going while it is in use.
RESOURCE_IN_USE: Final = "kueue.x-k8s.io/resource-in-use"

Quantity: TypeAlias = str | int | float
Amounts: TypeAlias = dict[str, Quantity]


class _Struct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class Condition(_Struct, frozen=True):
    """A standard condition; without defaults, since the schema wants also an empty message."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int | None = None


class ResourceQuota(_Struct, frozen=True):
    """Quota of one resource in one flavor; a limit of None is no limit."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(_Struct, frozen=True):
    """Quotas of one flavor, in the order of the covered resources."""

    name: str
    resources: list[ResourceQuota] = []


class ResourceGroup(_Struct, frozen=True):
    """Resources that get their flavor together, and the flavors in the order of the scan."""

    covered_resources: list[str] = []
    flavors: list[FlavorQuotas] = []


class LabelRequirement(_Struct, frozen=True):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Struct, frozen=True):
    """A label selector; one without contents selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirement] | None = None


class FlavorFungibility(_Struct, frozen=True):
    """How the scan of flavors continues; values of v1beta2."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str | None = None


class BorrowWithinCohort(_Struct, frozen=True):
    """Preemption while borrowing."""

    policy: str = "Never"
    max_priority_threshold: int | None = None


class Preemption(_Struct, frozen=True):
    """Whom a ClusterQueue may preempt."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None


class AdmissionCheckRule(_Struct, frozen=True):
    """A check, and the flavors that need it (none named: all)."""

    name: str
    on_flavors: list[str] | None = None


class AdmissionChecksStrategy(_Struct, frozen=True):
    """The checks of a ClusterQueue."""

    admission_checks: list[AdmissionCheckRule] = []


class FairSharing(_Struct, frozen=True):
    """Weight in fair sharing."""

    weight: Quantity | None = None


class AdmissionScope(_Struct, frozen=True):
    """Mode of admission fair sharing."""

    admission_mode: str = ""


class ClusterQueueSpec(_Struct, frozen=True):
    """What a queue offers and whom it may preempt; `namespaceSelector` None selects nothing."""

    resource_groups: list[ResourceGroup] = []
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None


class ResourceUsage(_Struct, frozen=True):
    """Quota held of one resource; `borrowed` is absent for LocalQueues."""

    name: str
    total: Quantity | None = None
    borrowed: Quantity | None = None


class FlavorUsage(_Struct, frozen=True):
    """Quota held of one flavor."""

    name: str
    resources: list[ResourceUsage]


class FairSharingStatus(_Struct, frozen=True):
    """The weighted share, rounded up; `admissionFairSharingStatus` of LocalQueues only."""

    weighted_share: int
    admission_fair_sharing_status: dict[str, Any] | None = None


class ClusterQueueStatus(_Struct, frozen=True):
    """Counts are None before the first write, and written also as 0."""

    conditions: list[Condition] | None = None
    flavors_reservation: list[FlavorUsage] | None = None
    flavors_usage: list[FlavorUsage] | None = None
    pending_workloads: int | None = None
    reserving_workloads: int | None = None
    admitted_workloads: int | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(_Struct, frozen=True):
    """A queue with quota."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(_Struct, frozen=True):
    """Place in the tree, and quota beside that of the members."""

    parent_name: str = ""
    resource_groups: list[ResourceGroup] = []
    fair_sharing: FairSharing | None = None


class CohortStatus(_Struct, frozen=True):
    """Share of the cohort."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(_Struct, frozen=True):
    """A node above ClusterQueues."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(_Struct, frozen=True):
    """Which ClusterQueue, and whether the door is open."""

    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None


class LocalQueueStatus(_Struct, frozen=True):
    """Counts are None before the first write, and written also as 0."""

    conditions: list[Condition] | None = None
    pending_workloads: int | None = None
    reserving_workloads: int | None = None
    admitted_workloads: int | None = None
    flavors_reservation: list[FlavorUsage] | None = None
    flavors_usage: list[FlavorUsage] | None = None
    fair_sharing: FairSharingStatus | None = None


class LocalQueue(_Struct, frozen=True):
    """A namespace's door to a ClusterQueue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class Taint(_Struct, frozen=True):
    """A taint of a flavor's nodes."""

    key: str
    effect: str
    value: str = ""


class ResourceFlavorSpec(_Struct, frozen=True):
    """Labels, taints and tolerations of a kind of nodes."""

    node_labels: dict[str, str] | None = None
    node_taints: list[Taint] | None = None
    tolerations: list[Toleration] | None = None
    topology_name: str | None = None


class ResourceFlavor(_Struct, frozen=True):
    """A kind of nodes."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class WorkloadPriorityClass(_Struct, frozen=True):
    """A priority for quota."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    description: str = ""


class AdmissionCheckSpec(_Struct, frozen=True):
    """Whose check it is."""

    controller_name: str = ""


class AdmissionCheckStatus(_Struct, frozen=True):
    """Condition Active: the controller is there."""

    conditions: list[Condition] | None = None


class AdmissionCheck(_Struct, frozen=True):
    """A check by another controller before a workload starts."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class Container(_Struct, frozen=True):
    """A container or init container, for its requests; Always makes the latter a sidecar."""

    name: str = ""
    resources: ContainerResources | None = None
    restart_policy: str | None = None


class PodSpec(_Struct, frozen=True):
    """Pods of a Workload: what they request, and which nodes they can run on."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: ContainerResources | None = None
    overhead: Amounts | None = None
    runtime_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: Affinity | None = None
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    resource_claims: list[PodResourceClaim] | None = None


class PodTemplate(_Struct, frozen=True):
    """Template of the pods of a pod set."""

    spec: PodSpec = PodSpec()


class SliceConstraint(_Struct, frozen=True):
    """Groups of `size` pods, each in one domain of a level."""

    topology: str
    size: int


class TopologyRequest(_Struct, frozen=True):
    """Levels of a topology; pod sets with one group name get their flavors together."""

    pod_set_group_name: str | None = None
    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: list[SliceConstraint] | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None


class TopologyLevel(_Struct, frozen=True):
    """A level: nodes with the same value of a label are one domain."""

    node_label: str


class TopologySpec(_Struct, frozen=True):
    """Levels, from the widest to the narrowest."""

    levels: list[TopologyLevel] = []


class Topology(_Struct, frozen=True):
    """The levels of a tree of nodes."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: TopologySpec = TopologySpec()


class PodSet(_Struct, frozen=True):
    """Pods of one shape."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology_request: TopologyRequest | None = None


class PriorityClassRef(_Struct, frozen=True):
    """The class that a priority comes from."""

    group: str
    kind: str
    name: str


class GateName(_Struct, frozen=True):
    """A preemption gate."""

    name: str


class WorkloadSpec(_Struct, frozen=True):
    """The pods, and how important they are."""

    pod_sets: list[PodSet] = []
    queue_name: str = ""
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: list[GateName] | None = None


class PodSetAssignment(_Struct, frozen=True):
    """What a pod set holds; `resourceUsage` is its total. `count` None is that of the spec."""

    # Without a default: a pod set named `main` is written out.
    name: str
    flavors: dict[str, str] | None = None
    resource_usage: Amounts | None = None
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None
    delayed_topology_request: str | None = None


class Admission(_Struct, frozen=True):
    """The quota that a workload holds."""

    cluster_queue: str
    pod_set_assignments: list[PodSetAssignment]


class RequeueState(_Struct, frozen=True):
    """Backoff after evictions."""

    count: int | None = None
    requeue_at: str | None = None


class ReclaimablePod(_Struct, frozen=True):
    """Pods of a pod set whose quota is not needed any more."""

    name: str
    count: int


class AdmissionCheckState(_Struct, frozen=True):
    """State of one check of a workload."""

    name: str
    state: str
    message: str
    last_transition_time: str = ""
    pod_set_updates: list[dict[str, Any]] | None = None
    retry_count: int | None = None
    requeue_after_seconds: int | None = None


class PodSetRequest(_Struct, frozen=True):
    """What a pod set requested when it was considered."""

    name: str
    resources: Amounts | None = None


class EvictionCount(_Struct, frozen=True):
    """How often a workload was evicted for one reason; all three are always written."""

    reason: str
    underlying_cause: str
    count: int


class SchedulingStats(_Struct, frozen=True):
    """Evictions by reason."""

    evictions: list[EvictionCount] | None = None


class PreemptionGateState(_Struct, frozen=True):
    """Whether a preemption gate is Open or Closed."""

    name: str
    position: str
    last_transition_time: str | None = None


class WorkloadStatus(_Struct, frozen=True):
    """What a workload holds, and what happened to it."""

    conditions: list[Condition] | None = None
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: list[ReclaimablePod] | None = None
    admission_checks: list[AdmissionCheckState] | None = None
    resource_requests: list[PodSetRequest] | None = None
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: list[str] | None = None
    cluster_name: str | None = None
    unhealthy_nodes: list[dict[str, Any]] | None = None
    preemption_gates: list[PreemptionGateState] | None = None


class Workload(_Struct, frozen=True):
    """Pods that get quota together or not at all."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
