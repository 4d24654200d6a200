"""API objects as plain dicts into a cluster, by way of intake: for cases that are not ours.

A case is a dict of lists (`nodes`, `pods`, `pending`, `podGroups`, `pdbs`, ...) and `features`;
objects may leave out namespaces and uids, as vectors and random clusters do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from reprieve.api.core import Namespace
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.pod_groups import PodGroup
from reprieve.api.scheduling import NodeObject, PodDisruptionBudget, PodObject, PriorityClass
from reprieve.api.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change
from reprieve.engine.placement.profile import (
    CompositePriority,
    FilterName,
    Gates,
    Policy,
    Profile,
    Protection,
)
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
)
from reprieve.intake.cluster.groups import composite_row, group_row
from reprieve.intake.cluster.idle import idle_entry
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.pod_classes import PodClasses, PodGates
from reprieve.intake.cluster.pods import pod_row
from reprieve.intake.cluster.policies import budget_row, namespace_entry, priority_class_entry
from reprieve.intake.cluster.storage import (
    attachment_entry,
    capacity_entry,
    claim_entry,
    csi_driver_entry,
    csi_node_entry,
    storage_class_entry,
    volume_entry,
)

Json = dict[str, Any]

_NAMESPACED = (
    PodObject,
    PodGroup,
    PodDisruptionBudget,
    PersistentVolumeClaim,
    CsiStorageCapacity,
    ResourceClaim,
    GpuWorkload,
)


def _row(kind: type[Any], made: Callable[[Any], Change]) -> Callable[[Json], Change]:
    def row(given: Json) -> Change:
        metadata = {"namespace": "default", **given["metadata"]}
        if kind not in _NAMESPACED:
            metadata["namespace"] = ""
        return made(msgspec.convert({**given, "metadata": metadata}, kind))

    return row


ROWS: dict[str, Callable[[Json], Change]] = {
    "nodes": _row(NodeObject, node_row),
    "namespaces": _row(Namespace, namespace_entry),
    "podGroups": _row(PodGroup, group_row),
    "compositePodGroups": _row(PodGroup, composite_row),
    "pdbs": _row(PodDisruptionBudget, budget_row),
    "persistentVolumeClaims": _row(PersistentVolumeClaim, claim_entry),
    "persistentVolumes": _row(PersistentVolume, volume_entry),
    "storageClasses": _row(StorageClass, storage_class_entry),
    "csiNodes": _row(CsiNode, csi_node_entry),
    "csiDrivers": _row(CsiDriver, csi_driver_entry),
    "csiStorageCapacities": _row(CsiStorageCapacity, capacity_entry),
    "volumeAttachments": _row(VolumeAttachment, attachment_entry),
    "resourceClaims": _row(ResourceClaim, resource_claim_entry),
    "resourceSlices": _row(ResourceSlice, resource_slice_entry),
    "deviceClasses": _row(DeviceClass, device_class_entry),
    "priorityClasses": _row(PriorityClass, priority_class_entry),
    "gpuWorkloads": _row(GpuWorkload, idle_entry),
    "pods": _row(PodObject, pod_row),
    "pending": _row(PodObject, pod_row),
    "nominated": _row(PodObject, pod_row),
}


def rows_of(case: Json) -> list[Change]:
    """The rows of all lists of the case that we know."""
    features = case.get("features") or {}
    gates = PodGates(
        claims=features.get("DRANodeAllocatableResources", False),
        comparisons=features.get("TaintTolerationComparisonOperators", False),
    )
    classes = PodClasses(gates)
    of_pods = _row(PodObject, lambda pod: pod_row(pod, classes))
    rows = {**ROWS, **dict.fromkeys(("pods", "pending", "nominated"), of_pods)}
    return [row(each) for name, row in rows.items() for each in case.get(name) or ()]


def cluster_of(case: Json, *, validate: bool = False) -> Cluster:
    cluster = Cluster(validate=validate)
    cluster.apply(rows_of(case))
    return cluster


def policy_of(
    case: Json,
    *,
    second_reprieve_pass: bool = False,
    percentage: int = 100,
    absolute: int = 100,
    names: Iterable[str] = ("default-scheduler",),
) -> Policy:
    """The gates and filters of the case."""
    features, plugins = case.get("features") or {}, case.get("plugins")
    filters = tuple(each for each in FilterName if plugins is None or each.value in plugins)
    return Policy(
        profiles=tuple(
            Profile(
                scheduler_name=name,
                filters=filters,
                min_candidate_nodes_percentage=percentage,
                min_candidate_nodes_absolute=absolute,
            )
            for name in names
        ),
        gates=Gates(
            generic_workload=features.get("GenericWorkload", False),
            pod_group_preemption_policy=features.get("PodGroupPreemptionPolicy", False),
            topology_aware=features.get("TopologyAwareWorkloadScheduling", False),
            composite_pod_group=features.get("CompositePodGroup", False),
        ),
        second_reprieve_pass=second_reprieve_pass,
        composite_priority=CompositePriority(case.get("compositePriority", "Root")),
        protection=_protection(case.get("preemptionPriority")),
        **{field: case[key] for key, field in OPTIONS.items() if key in case},
    )


#: Options that stand in a case as in the configuration.
OPTIONS = {
    "simulateClaims": "simulate_claims",
    "binarySearchPriority": "binary_search_priority",
    "maxPlacements": "max_placements",
    "topologyPreemption": "topology_preemption",
    "cascadeAware": "cascade_aware",
    "harmOrder": "harm_order",
    "maxLostWork": "max_lost_work",
    "nonUniformGroups": "non_uniform_groups",
    "maxMinRuntime": "max_min_runtime",
}


def _protection(limits: Json | None) -> Protection | None:
    if not limits:
        return None
    return Protection(limits["cap"], tuple(sorted(limits.get("namespaces", {}).items())))


def key_of(each: Json) -> str:
    metadata = each["metadata"]
    return f"{metadata.get('namespace') or 'default'}/{metadata['name']}"


def uid_of(each: Json) -> str:
    return str(each["metadata"].get("uid") or key_of(each))
