"""Kueue's API, `kueue.x-k8s.io/v1beta2`: queues, cohorts, flavors, classes, checks, workloads.

Workloads are in `kueue_workloads`; all names can be had here. Specs are read and never written back
whole, so fields without a use here are left out. Statuses are whole: what another controller wrote
there survives a write of ours. Instants are RFC 3339 text, quantities text or
numbers as written. Source: specification of the quota plane, section 1.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from reprieve.api.core import (
    MetaWithFinalizers,
    ObjectMeta,
    Toleration,
)
from reprieve.api.kueue_workloads import (
    Admission,
    AdmissionCheckState,
    Amounts,
    Condition,
    Container,
    EvictionCount,
    KueueStruct,
    PodSet,
    PodSetAssignment,
    PodSetRequest,
    PodSpec,
    PodTemplate,
    PreemptionGateState,
    PriorityClassRef,
    Quantity,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    SliceConstraint,
    TopologyRequest,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
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
    "Quantity",
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
    "TopologyRequest",
    "TopologySpec",
    "Workload",
    "WorkloadPriorityClass",
    "WorkloadSpec",
    "WorkloadStatus",
]

GROUP: Final = "kueue.x-k8s.io"
API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
OLD_API_VERSION: Final = "kueue.x-k8s.io/v1beta1"
# Keeps a Workload, ClusterQueue or ResourceFlavor from being deleted while it is in use.
RESOURCE_IN_USE: Final = "kueue.x-k8s.io/resource-in-use"


class ResourceQuota(KueueStruct, frozen=True):
    """Quota of one resource in one flavor; a limit of None is no limit."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(KueueStruct, frozen=True):
    """Quotas of one flavor, in the order of the covered resources."""

    name: str
    resources: list[ResourceQuota] = msgspec.field(default_factory=list)


class ResourceGroup(KueueStruct, frozen=True):
    """Resources that get their flavor together, and the flavors in the order of the scan."""

    covered_resources: list[str] = msgspec.field(default_factory=list)
    flavors: list[FlavorQuotas] = msgspec.field(default_factory=list)


class LabelRequirement(KueueStruct, frozen=True):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(KueueStruct, frozen=True):
    """A label selector; one without contents selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirement] | None = None


class FlavorFungibility(KueueStruct, frozen=True):
    """How the scan of flavors continues; values of v1beta2."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str | None = None


class BorrowWithinCohort(KueueStruct, frozen=True):
    """Preemption while borrowing."""

    policy: str = "Never"
    max_priority_threshold: int | None = None


class Preemption(KueueStruct, frozen=True):
    """Whom a ClusterQueue may preempt."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None


class AdmissionCheckRule(KueueStruct, frozen=True):
    """A check, and the flavors that need it (none named: all)."""

    name: str
    on_flavors: list[str] | None = None


class AdmissionChecksStrategy(KueueStruct, frozen=True):
    """The checks of a ClusterQueue."""

    admission_checks: list[AdmissionCheckRule] = msgspec.field(default_factory=list)


class FairSharing(KueueStruct, frozen=True):
    """Weight in fair sharing."""

    weight: Quantity | None = None


class AdmissionScope(KueueStruct, frozen=True):
    """Mode of admission fair sharing."""

    admission_mode: str = ""


class ClusterQueueSpec(KueueStruct, frozen=True):
    """What a queue offers and whom it may preempt; `namespaceSelector` None selects nothing."""

    resource_groups: list[ResourceGroup] = msgspec.field(default_factory=list)
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None


class ResourceUsage(KueueStruct, frozen=True):
    """Quota held of one resource; `borrowed` is absent for LocalQueues."""

    name: str
    total: Quantity | None = None
    borrowed: Quantity | None = None


class FlavorUsage(KueueStruct, frozen=True):
    """Quota held of one flavor."""

    name: str
    resources: list[ResourceUsage]


class FairSharingStatus(KueueStruct, frozen=True):
    """The weighted share, rounded up; `admissionFairSharingStatus` of LocalQueues only."""

    weighted_share: int
    admission_fair_sharing_status: dict[str, Any] | None = None


class ClusterQueueStatus(KueueStruct, frozen=True):
    """Counts are None before the first write, and written also as 0."""

    conditions: list[Condition] | None = None
    flavors_reservation: list[FlavorUsage] | None = None
    flavors_usage: list[FlavorUsage] | None = None
    pending_workloads: int | None = None
    reserving_workloads: int | None = None
    admitted_workloads: int | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(KueueStruct, frozen=True):
    """A queue with quota."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(KueueStruct, frozen=True):
    """Place in the tree, and quota beside that of the members."""

    parent_name: str = ""
    resource_groups: list[ResourceGroup] = msgspec.field(default_factory=list)
    fair_sharing: FairSharing | None = None


class CohortStatus(KueueStruct, frozen=True):
    """Share of the cohort."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(KueueStruct, frozen=True):
    """A node above ClusterQueues."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(KueueStruct, frozen=True):
    """Which ClusterQueue, and whether the door is open."""

    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None


class LocalQueueStatus(KueueStruct, frozen=True):
    """Counts are None before the first write, and written also as 0."""

    conditions: list[Condition] | None = None
    pending_workloads: int | None = None
    reserving_workloads: int | None = None
    admitted_workloads: int | None = None
    flavors_reservation: list[FlavorUsage] | None = None
    flavors_usage: list[FlavorUsage] | None = None
    fair_sharing: FairSharingStatus | None = None


class LocalQueue(KueueStruct, frozen=True):
    """A namespace's door to a ClusterQueue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class Taint(KueueStruct, frozen=True):
    """A taint of a flavor's nodes."""

    key: str
    effect: str
    value: str = ""


class ResourceFlavorSpec(KueueStruct, frozen=True):
    """Labels, taints and tolerations of a kind of nodes."""

    node_labels: dict[str, str] | None = None
    node_taints: list[Taint] | None = None
    tolerations: list[Toleration] | None = None
    topology_name: str | None = None


class ResourceFlavor(KueueStruct, frozen=True):
    """A kind of nodes."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class WorkloadPriorityClass(KueueStruct, frozen=True):
    """A priority for quota."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    description: str = ""


class AdmissionCheckSpec(KueueStruct, frozen=True):
    """Whose check it is."""

    controller_name: str = ""


class AdmissionCheckStatus(KueueStruct, frozen=True):
    """Condition Active: the controller is there."""

    conditions: list[Condition] | None = None


class AdmissionCheck(KueueStruct, frozen=True):
    """A check by another controller before a workload starts."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class TopologyLevel(KueueStruct, frozen=True):
    """A level: nodes with the same value of a label are one domain."""

    node_label: str


class TopologySpec(KueueStruct, frozen=True):
    """Levels, from the widest to the narrowest."""

    levels: list[TopologyLevel] = msgspec.field(default_factory=list)


class Topology(KueueStruct, frozen=True):
    """The levels of a tree of nodes."""

    metadata: MetaWithFinalizers = MetaWithFinalizers()
    spec: TopologySpec = TopologySpec()
