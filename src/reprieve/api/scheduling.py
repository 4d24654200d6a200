"""What the scheduling plane reads of Kubernetes objects, decoded from bytes or from plain mappings.

Structs are partial on purpose, as in `core`: unknown fields are skipped, and none of these objects
is ever written back whole. Field names follow the API (camel case in JSON).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from reprieve.api.core import (
    ContainerResources,
    NodeAffinity,
    NodeSpec,
    ObjectMeta,
    PodResourceClaim,
    ResourceClaimStatus,
    SchedulingGroup,
    Struct,
)
from reprieve.api.volumes import Volume

__all__ = [
    "Affinity",
    "Amounts",
    "Condition",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerStatus",
    "LabelSelector",
    "LabelSelectorOwner",
    "LabelSelectorRequirement",
    "LabelSelectorSpec",
    "NodeObject",
    "NodeStatus",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodObject",
    "PodSpec",
    "PodStatus",
    "SelectorOwner",
    "SelectorSpec",
    "Toleration",
    "TopologySpreadConstraint",
    "WeightedPodAffinityTerm",
]

Amounts: TypeAlias = dict[str, str | int | float]


class LabelSelectorRequirement(Struct, frozen=True):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Struct, frozen=True):
    """A label selector; one without contents selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Condition(Struct, frozen=True):
    """A condition of a pod, node or group."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ContainerPort(Struct, frozen=True):
    """A port of a container; `hostPort` uses one of the node."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class RestartRule(Struct, frozen=True):
    """What happens when a container exits."""

    action: str = ""


class VolumeMount(Struct, frozen=True):
    """A mount of a volume, for the options that a node has to know."""

    bind_mount_options: list[str] | None = None


class Container(Struct, frozen=True):
    """A container or init container; `restartPolicy` Always makes the latter a sidecar."""

    name: str = ""
    image: str = ""
    resources: ContainerResources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


class Toleration(Struct, frozen=True):
    """A toleration, as written."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodAffinityTerm(Struct, frozen=True):
    """A term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Struct, frozen=True):
    """A preferred term of pod affinity or anti-affinity."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, frozen=True):
    """Required and preferred pod affinity, or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class Affinity(Struct, frozen=True):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True):
    """A topology spread constraint."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class AllocatableMapping(Struct, frozen=True):
    """How much of a node's resource a claim uses."""

    name: str = ""
    quantity: str | int | float = "0"


class AllocatableClaimStatus(Struct, frozen=True):
    """What a pod's claim uses of its node (gate DRANodeAllocatableResources)."""

    mapping: list[AllocatableMapping] | None = None


class SchedulingGate(Struct, frozen=True):
    """What a pod waits for before it is scheduled."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    """What a pod's spec states to the scheduler."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: ContainerResources | None = None
    overhead: Amounts | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    scheduler_name: str | None = None
    host_network: bool | None = None
    host_users: bool | None = None


class ContainerWaiting(Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str | None = None


class ContainerTerminated(Struct, frozen=True):
    """How a container ended, and when."""

    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(Struct, frozen=True):
    """What a container does, as far as it affects how it fails."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(Struct, frozen=True):
    """What a container has been given: allocated, and actuated; and what it does."""

    name: str = ""
    allocated_resources: Amounts | None = None
    resources: ContainerResources | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(Struct, frozen=True):
    """Where a pod stands."""

    phase: str = ""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None
    node_allocatable_resource_claim_statuses: list[AllocatableClaimStatus] | None = None
    allocated_resources: Amounts | None = None  # of the pod level
    resources: ContainerResources | None = None


class PodObject(Struct, frozen=True):
    """A pod, as the scheduler reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    api_version: str = "v1"
    kind: str = "Pod"


class ContainerImage(Struct, frozen=True):
    """An image on a node."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Struct, frozen=True):
    """What a node offers."""

    allocatable: Amounts | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None
    conditions: list[Condition] | None = None


class NodeObject(Struct, frozen=True):
    """A node, as the scheduler reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    api_version: str = "v1"
    kind: str = "Node"


class BudgetSpec(Struct, frozen=True):
    """The pods that a budget counts."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True):
    """What a budget still allows."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
    api_version: str = "policy/v1"
    kind: str = "PodDisruptionBudget"


class PriorityClass(Struct, frozen=True):
    """A priority of pods, for its value and whether they preempt."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = ""
    global_default: bool = False
    api_version: str = "scheduling.k8s.io/v1"
    kind: str = "PriorityClass"


class SelectorSpec(Struct, frozen=True):
    """A selector that is a set of labels."""

    selector: dict[str, str] | None = None


class SelectorOwner(Struct, frozen=True):
    """A Service or ReplicationController, for the pods that it selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SelectorSpec = SelectorSpec()
    kind: str = "Service"


class LabelSelectorSpec(Struct, frozen=True):
    """A spec with a label selector."""

    selector: LabelSelector | None = None


class LabelSelectorOwner(Struct, frozen=True):
    """A ReplicaSet or StatefulSet, for the pods that it selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()
    kind: str = "ReplicaSet"
