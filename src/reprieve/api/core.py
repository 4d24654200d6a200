"""Kubernetes objects with the fields in use and nothing else, decoded from bytes.

Structs are partial on purpose: unknown fields are skipped while decoding, and none of these objects
is ever written back whole. Field names follow the API (camel case in JSON).
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "KUEUE_MANAGED",
    "Affinity",
    "Container",
    "ContainerResources",
    "KueuePodSet",
    "KueuePodSpec",
    "KueuePodTemplate",
    "KueueWorkload",
    "KueueWorkloadSpec",
    "MetaWithFinalizers",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "OwnedObject",
    "OwnerReference",
    "Pod",
    "PodCondition",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "ResourceClaimStatus",
    "SchedulingGroup",
    "Struct",
    "Taint",
    "TemplatedObject",
    "TemplatedSpec",
    "Toleration",
    "WorkloadCondition",
    "WorkloadStatus",
]

KUEUE_MANAGED: Final = "kueue.x-k8s.io/managed"


class Struct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class OwnerReference(Struct, frozen=True):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, frozen=True):
    """The part of object metadata that is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class MetaWithFinalizers(ObjectMeta, frozen=True):
    """Metadata of the few objects whose finalizers are read."""

    finalizers: list[str] | None = None


class OwnedObject(Struct, frozen=True):
    """Any object, read for the sake of its owners and annotations.

    What it states of its children stands in spec or status, which have another form in each kind.
    """

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")


class ContainerResources(Struct, frozen=True):
    """`resources` of a container; quantities as text, or as numbers where the manifest has them."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Struct, frozen=True):
    """A container, for its requests."""

    resources: ContainerResources | None = None
    restart_policy: str | None = None


class Toleration(Struct, frozen=True):
    """A toleration of a pod; with `toleration_seconds` the pod is evicted after that time."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Struct, frozen=True):
    """One expression of a node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Struct, frozen=True):
    """Expressions that must all hold."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Struct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredNodeTerm(Struct, frozen=True):
    """Nodes that a pod would rather run on."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """Required and preferred node affinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class Affinity(Struct, frozen=True):
    """Affinity of a pod, nodes only."""

    node_affinity: NodeAffinity | None = None


class SchedulingGroup(Struct, frozen=True):
    """The group that a pod is scheduled with."""

    pod_group_name: str | None = None


class PodResourceClaim(Struct, frozen=True):
    """An entry of `spec.resourceClaims` of a pod or group: a claim, or a template for one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    pod_group_resource_claim: str | None = None


class ResourceClaimStatus(Struct, frozen=True):
    """The claim that was made from a template; no name when none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(Struct, frozen=True):
    """What decides where a pod may run and how many GPUs it requests."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: Affinity | None = None
    scheduling_group: SchedulingGroup | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: ContainerResources | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None


class PodTemplate(Struct, frozen=True):
    """The pods that an object makes."""

    spec: PodSpec = PodSpec()


class TemplatedSpec(PodSpec, frozen=True, rename="camel"):
    """A spec with a pod template, or one that is a pod's own."""

    template: PodTemplate | None = None


class TemplatedObject(Struct, frozen=True):
    """Any object, read for the GPUs of the pods that it will make."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplatedSpec = TemplatedSpec()


class PodCondition(Struct, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(Struct, frozen=True):
    """Phase and conditions of a pod, and the node where its scheduler preempts for it."""

    phase: str = ""
    conditions: list[PodCondition] | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None


class Pod(Struct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    api_version: str = "v1"
    kind: str = "Pod"


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Struct, frozen=True):
    """What keeps pods off a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Struct, frozen=True):
    """What a node offers."""

    allocatable: dict[str, str | int | float] | None = None


class Node(Struct, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    api_version: str = "v1"
    kind: str = "Node"


class Namespace(Struct, frozen=True):
    """A namespace, for its annotations."""

    metadata: ObjectMeta = ObjectMeta()
    api_version: str = "v1"
    kind: str = "Namespace"


class WorkloadCondition(Struct, frozen=True):
    """A condition of a Kueue Workload."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class WorkloadStatus(Struct, frozen=True):
    """Conditions of a Kueue Workload."""

    conditions: list[WorkloadCondition] | None = None


class KueuePodSpec(Struct, frozen=True):
    """What pods of a Kueue Workload request."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodResourceClaim] | None = None


class KueuePodTemplate(Struct, frozen=True):
    """The pods of a pod set."""

    spec: KueuePodSpec = KueuePodSpec()


class KueuePodSet(Struct, frozen=True):
    """Pods of one shape."""

    count: int = 1
    template: KueuePodTemplate = KueuePodTemplate()


class KueueWorkloadSpec(Struct, frozen=True):
    """What a Kueue Workload requests."""

    pod_sets: list[KueuePodSet] = []
    priority: int | None = None


class KueueWorkload(Struct, frozen=True):
    """A Kueue Workload, for whether it lacks GPU quota, how many GPUs it requests, and its turn."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KueueWorkloadSpec = KueueWorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
