"""Workloads of Kueue's API: what they request, what they were given, their evictions.

Pods of a Workload are read for what they request and where they may run. Its status is whole: what
another controller wrote there survives a write of ours. Source: specification of the quota plane,
section 1.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from reprieve.api.core import (
    Affinity,
    ContainerResources,
    ObjectMeta,
    PodResourceClaim,
    Toleration,
)

__all__ = [
    "Admission",
    "AdmissionCheckState",
    "Amounts",
    "Condition",
    "Container",
    "EvictionCount",
    "GateName",
    "KueueStruct",
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
    "SchedulingStats",
    "SliceConstraint",
    "TopologyRequest",
    "Workload",
    "WorkloadSpec",
    "WorkloadStatus",
]

Quantity: TypeAlias = str | int | float
Amounts: TypeAlias = dict[str, Quantity]


class KueueStruct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class Condition(KueueStruct, frozen=True):
    """A standard condition; without defaults, since the schema wants also an empty message."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int | None = None


class Container(KueueStruct, frozen=True):
    """A container or init container, for its requests; Always makes the latter a sidecar."""

    name: str = ""
    resources: ContainerResources | None = None
    restart_policy: str | None = None


class PodSpec(KueueStruct, frozen=True):
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


class PodTemplate(KueueStruct, frozen=True):
    """Template of the pods of a pod set."""

    spec: PodSpec = PodSpec()


class SliceConstraint(KueueStruct, frozen=True):
    """Groups of `size` pods, each in one domain of a level."""

    topology: str
    size: int


class TopologyRequest(KueueStruct, frozen=True):
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


class PodSet(KueueStruct, frozen=True):
    """Pods of one shape."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology_request: TopologyRequest | None = None


class PriorityClassRef(KueueStruct, frozen=True):
    """The class that a priority comes from."""

    group: str
    kind: str
    name: str


class GateName(KueueStruct, frozen=True):
    """A preemption gate."""

    name: str


class WorkloadSpec(KueueStruct, frozen=True):
    """The pods, and how important they are."""

    pod_sets: list[PodSet] = []
    queue_name: str = ""
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: list[GateName] | None = None


class PodSetAssignment(KueueStruct, frozen=True):
    """What a pod set holds; `resourceUsage` is its total. `count` None is that of the spec."""

    # Without a default: a pod set named `main` is written out.
    name: str
    flavors: dict[str, str] | None = None
    resource_usage: Amounts | None = None
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None
    delayed_topology_request: str | None = None


class Admission(KueueStruct, frozen=True):
    """The quota that a workload holds."""

    cluster_queue: str
    pod_set_assignments: list[PodSetAssignment]


class RequeueState(KueueStruct, frozen=True):
    """Backoff after evictions."""

    count: int | None = None
    requeue_at: str | None = None


class ReclaimablePod(KueueStruct, frozen=True):
    """Pods of a pod set whose quota is not needed any more."""

    name: str
    count: int


class AdmissionCheckState(KueueStruct, frozen=True):
    """State of one check of a workload."""

    name: str
    state: str
    message: str
    last_transition_time: str = ""
    pod_set_updates: list[dict[str, Any]] | None = None
    retry_count: int | None = None
    requeue_after_seconds: int | None = None


class PodSetRequest(KueueStruct, frozen=True):
    """What a pod set requested when it was considered."""

    name: str
    resources: Amounts | None = None


class EvictionCount(KueueStruct, frozen=True):
    """How often a workload was evicted for one reason; all three are always written."""

    reason: str
    underlying_cause: str
    count: int


class SchedulingStats(KueueStruct, frozen=True):
    """Evictions by reason."""

    evictions: list[EvictionCount] | None = None


class PreemptionGateState(KueueStruct, frozen=True):
    """Whether a preemption gate is Open or Closed."""

    name: str
    position: str
    last_transition_time: str | None = None


class WorkloadStatus(KueueStruct, frozen=True):
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


class Workload(KueueStruct, frozen=True):
    """Pods that get quota together or not at all."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
