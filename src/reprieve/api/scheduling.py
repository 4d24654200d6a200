"""What the scheduling plane reads of Kubernetes objects, decoded from bytes or from plain mappings.

Structs are partial on purpose, as in `core`: unknown fields are skipped, and none of these objects
is ever written back whole. PodGroups are read in all three versions of `scheduling.k8s.io`; their
shapes of `disruptionMode` differ. Field names follow the API (camel case in JSON).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from reprieve.api.core import (
    ContainerResources,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    ObjectMeta,
    PodResourceClaim,
    ResourceClaimStatus,
)

__all__ = [
    "Affinity",
    "Amounts",
    "Condition",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerStatus",
    "DisruptionMode",
    "LabelSelector",
    "LabelSelectorOwner",
    "LabelSelectorRequirement",
    "LabelSelectorSpec",
    "NodeObject",
    "NodeStatus",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodGroup",
    "PodObject",
    "PodSpec",
    "PodStatus",
    "SelectorOwner",
    "SelectorSpec",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "WeightedPodAffinityTerm",
]

Amounts: TypeAlias = dict[str, str | int | float]


class _Struct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class LabelSelectorRequirement(_Struct, frozen=True):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(_Struct, frozen=True):
    """A label selector; one without contents selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Condition(_Struct, frozen=True):
    """A condition of a pod or group."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ContainerPort(_Struct, frozen=True):
    """A port of a container; `hostPort` takes one of the node."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class RestartRule(_Struct, frozen=True):
    """What happens when a container exits."""

    action: str = ""


class VolumeMount(_Struct, frozen=True):
    """A mount of a volume, for the options that a node has to know."""

    bind_mount_options: list[str] | None = None


class Container(_Struct, frozen=True):
    """A container or init container; `restartPolicy` Always makes the latter a sidecar."""

    name: str = ""
    image: str = ""
    resources: ContainerResources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


class Toleration(_Struct, frozen=True):
    """A toleration, as written."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PreferredNodeTerm(_Struct, frozen=True):
    """A preferred term of node affinity."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(_Struct, frozen=True):
    """Required and preferred node affinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class PodAffinityTerm(_Struct, frozen=True):
    """A term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(_Struct, frozen=True):
    """A preferred term of pod affinity or anti-affinity."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(_Struct, frozen=True):
    """Required and preferred pod affinity, or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class Affinity(_Struct, frozen=True):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Struct, frozen=True):
    """A topology spread constraint."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ClaimSource(_Struct, frozen=True):
    """The claim of a volume."""

    claim_name: str = ""


class GcePersistentDisk(_Struct, frozen=True):
    """A disk of Google's."""

    pd_name: str = ""
    read_only: bool = False


class VolumeById(_Struct, frozen=True):
    """A disk that has a `volumeID`: of Amazon's, Cinder's, Portworx's."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class Iscsi(_Struct, frozen=True):
    """An iSCSI target."""

    iqn: str = ""
    read_only: bool = False


class Rbd(_Struct, frozen=True):
    """A Ceph block device."""

    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class AzureDisk(_Struct, frozen=True):
    """A disk of Azure's."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class AzureFile(_Struct, frozen=True):
    """A share of Azure's."""

    share_name: str = ""


class VsphereVolume(_Struct, frozen=True):
    """A disk of vSphere's."""

    volume_path: str = ""


class ImageSource(_Struct, frozen=True):
    """An image that is mounted."""

    reference: str = ""


class Volume(_Struct, frozen=True):
    """A volume of a pod, for the kinds that decide where it may run."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: VolumeById | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: VolumeById | None = None
    portworx_volume: VolumeById | None = None
    vsphere_volume: VsphereVolume | None = None
    image: ImageSource | None = None


class AllocatableMapping(_Struct, frozen=True):
    """How much of a node's resource a claim takes."""

    name: str = ""
    quantity: str | int | float = "0"


class AllocatableClaimStatus(_Struct, frozen=True):
    """What a pod's claim takes of its node (gate DRANodeAllocatableResources)."""

    mapping: list[AllocatableMapping] | None = None


class SchedulingGate(_Struct, frozen=True):
    """What a pod waits for before it is scheduled."""

    name: str = ""


class SchedulingGroup(_Struct, frozen=True):
    """The group that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(_Struct, frozen=True):
    """What a pod's spec says to the scheduler."""

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
    priority: int | None = None
    preemption_policy: str | None = None
    scheduler_name: str | None = None
    host_network: bool | None = None
    host_users: bool | None = None


class ContainerWaiting(_Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str | None = None


class ContainerTerminated(_Struct, frozen=True):
    """How a container ended, and when."""

    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(_Struct, frozen=True):
    """What a container does, of what tells how it fails."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(_Struct, frozen=True):
    """What a container has been given: allocated, and actuated; and what it does."""

    name: str = ""
    allocated_resources: Amounts | None = None
    resources: ContainerResources | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(_Struct, frozen=True):
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


class PodObject(_Struct, frozen=True):
    """A pod, as the scheduler reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    api_version: str = "v1"
    kind: str = "Pod"


class ContainerImage(_Struct, frozen=True):
    """An image on a node."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(_Struct, frozen=True):
    """What a node offers."""

    allocatable: Amounts | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None


class NodeObject(_Struct, frozen=True):
    """A node, as the scheduler reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    api_version: str = "v1"
    kind: str = "Node"


class GangPolicy(_Struct, frozen=True):
    """All or nothing for `minCount` pods, or `minGroupCount` child groups."""

    min_count: int = 1
    min_group_count: int = 1


class SchedulingPolicy(_Struct, frozen=True):
    """One of basic and gang."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class DisruptionMode(_Struct, frozen=True):
    """One of single and all (v1alpha3, v1beta1); v1alpha2 has the words Pod and PodGroup."""

    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class TopologyConstraint(_Struct, frozen=True):
    """The label whose value all pods of the group have to share."""

    key: str = ""


class SchedulingConstraints(_Struct, frozen=True):
    """At most one topology."""

    topology: list[TopologyConstraint] | None = None


class PodGroupSpec(_Struct, frozen=True):
    """The spec of a PodGroup, as the scheduler reads it."""

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | DisruptionMode | None = None
    resource_claims: list[PodResourceClaim] | None = None
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroupStatus(_Struct, frozen=True):
    """The status of a PodGroup, as the scheduler reads it."""

    conditions: list[Condition] | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None


class PodGroup(_Struct, frozen=True):
    """A PodGroup of any version, or a CompositePodGroup, which has the same fields for groups."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
    api_version: str = "scheduling.k8s.io/v1beta1"
    kind: str = "PodGroup"


class BudgetSpec(_Struct, frozen=True):
    """The pods that a budget counts."""

    selector: LabelSelector | None = None


class BudgetStatus(_Struct, frozen=True):
    """What a budget still allows."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(_Struct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
    api_version: str = "policy/v1"
    kind: str = "PodDisruptionBudget"


class PriorityClass(_Struct, frozen=True):
    """A priority of pods, for its value and whether they preempt."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = ""
    global_default: bool = False
    api_version: str = "scheduling.k8s.io/v1"
    kind: str = "PriorityClass"


class SelectorSpec(_Struct, frozen=True):
    """A selector that is a set of labels."""

    selector: dict[str, str] | None = None


class SelectorOwner(_Struct, frozen=True):
    """A Service or ReplicationController, for the pods that it selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SelectorSpec = SelectorSpec()
    kind: str = "Service"


class LabelSelectorSpec(_Struct, frozen=True):
    """A spec with a label selector."""

    selector: LabelSelector | None = None


class LabelSelectorOwner(_Struct, frozen=True):
    """A ReplicaSet or StatefulSet, for the pods that it selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()
    kind: str = "ReplicaSet"
