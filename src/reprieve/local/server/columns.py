"""The columns of built-in kinds: name, type, whether `-o wide` is needed, and the cell.

Source: the columns that a 1.37 server gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reprieve.local.server import cells, event_cells
from reprieve.local.server.ages import age
from reprieve.local.server.kinds import Kind
from reprieve.local.server.pod_cells import POD_CELLS
from reprieve.units.instants import Nanos

__all__ = ["ColumnSpec", "columns_of"]

Object = Mapping[str, Any]
Cell = Callable[[Object, Nanos], Any]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column; `priority` 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    description: str = ""


def columns_of(kind: Kind, served: str = "") -> Sequence[ColumnSpec]:
    """Return the columns; a kind without its own has name and age.

    `served`: the kind of the objects where it is another one, as `Scale` is for a subresource.
    """
    if served == "Scale":
        return (_NAME, *_SCALE)
    own = _COLUMNS.get((kind.group, kind.kind), _AGE_ONLY)
    # Events are told apart by what they say: their names come last and wide only.
    return own if own is _EVENT else (_NAME, *own)


def _path(*names: str, default: Any = "") -> Cell:
    """Return a cell that is the field at a path."""

    def cell(obj: Object, now: Nanos) -> Any:
        del now
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return default if value is None else value

    return cell


def _plain(read: Callable[[Object], Any]) -> Cell:
    return lambda obj, now: read(obj)


def _created(obj: Object, now: Nanos) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _wide(name: str, read: Callable[[Object], Any]) -> ColumnSpec:
    return ColumnSpec(name, _plain(read), priority=1)


_NAME: Final = ColumnSpec(
    "Name",
    _path("metadata", "name"),
    description="Name of the object, unique among those of its kind and namespace.",
)
_AGE: Final = ColumnSpec("Age", _created)
_AGE_ONLY: Final = (_AGE,)
_CREATED_AT: Final = ColumnSpec("Created At", _path("metadata", "creationTimestamp"), "date")
_CONTAINERS: Final = (_wide("Containers", cells.container_names), _wide("Images", cells.images))
_SELECTED: Final = (*_CONTAINERS, _wide("Selector", cells.selector))


def _count(name: str, *path: str) -> ColumnSpec:
    return ColumnSpec(name, _path(*path, default=0), "integer")


def _status(*names: tuple[str, str]) -> tuple[ColumnSpec, ...]:
    return tuple(_count(name, "status", word) for name, word in names)


_BINDING: Final = (
    ColumnSpec("Role", _plain(cells.bound_role)),
    _AGE,
    _wide("Users", lambda obj: cells.subjects(obj, "User")),
    _wide("Groups", lambda obj: cells.subjects(obj, "Group")),
    _wide("ServiceAccounts", lambda obj: cells.subjects(obj, "ServiceAccount")),
)
_EVENT: Final = (
    ColumnSpec("Last Seen", event_cells.last_seen),
    ColumnSpec("Type", _path("type")),
    ColumnSpec("Reason", _path("reason")),
    ColumnSpec("Object", _plain(event_cells.regarding)),
    _wide("Subobject", event_cells.subobject),
    _wide("Source", event_cells.event_source),
    ColumnSpec("Message", _plain(event_cells.event_message)),
    ColumnSpec("First Seen", event_cells.first_seen, priority=1),
    ColumnSpec("Count", _plain(event_cells.event_count), priority=1),
    ColumnSpec("Name", _path("metadata", "name"), priority=1),
)
_SCALE: Final = (
    _count("Desired", "spec", "replicas"),
    _count("Available", "status", "replicas"),
    _AGE,
)
_WEBHOOKS: Final = (
    ColumnSpec("Webhooks", _plain(lambda obj: len(obj.get("webhooks") or ())), "integer"),
    _AGE,
)

_COLUMNS: Final[Mapping[tuple[str, str], Sequence[ColumnSpec]]] = {
    ("", "ConfigMap"): (ColumnSpec("Data", _plain(cells.data_count)), _AGE),
    ("", "Endpoints"): (ColumnSpec("Endpoints", _plain(cells.endpoints)), _AGE),
    ("", "Event"): _EVENT,
    ("", "LimitRange"): (_CREATED_AT,),
    ("", "Namespace"): (ColumnSpec("Status", _path("status", "phase")), _AGE),
    ("", "Node"): (
        ColumnSpec("Status", _plain(cells.node_status)),
        ColumnSpec("Roles", _plain(cells.node_roles)),
        _AGE,
        ColumnSpec("Version", _path("status", "nodeInfo", "kubeletVersion")),
        _wide("Internal-IP", lambda obj: cells.node_address(obj, "InternalIP")),
        _wide("External-IP", lambda obj: cells.node_address(obj, "ExternalIP")),
        _wide("OS-Image", lambda obj: cells.node_info(obj, "osImage")),
        _wide("Kernel-Version", cells.node_kernel),
        _wide("Container-Runtime", lambda obj: cells.node_info(obj, "containerRuntimeVersion")),
    ),
    ("", "PersistentVolume"): (
        ColumnSpec("Capacity", _path("spec", "capacity", "storage")),
        ColumnSpec("Access Modes", _plain(cells.access_modes)),
        ColumnSpec("Reclaim Policy", _path("spec", "persistentVolumeReclaimPolicy")),
        ColumnSpec("Status", _plain(cells.volume_phase)),
        ColumnSpec("Claim", _plain(cells.volume_claim)),
        ColumnSpec("StorageClass", _path("spec", "storageClassName")),
        ColumnSpec(
            "VolumeAttributesClass",
            _path("spec", "volumeAttributesClassName", default="<unset>"),
        ),
        ColumnSpec("Reason", _path("status", "reason")),
        _AGE,
        ColumnSpec("VolumeMode", _path("spec", "volumeMode", default="<unset>"), priority=1),
    ),
    ("", "PersistentVolumeClaim"): (
        ColumnSpec("Status", _plain(cells.volume_phase)),
        ColumnSpec("Volume", _path("spec", "volumeName")),
        ColumnSpec("Capacity", _path("status", "capacity", "storage")),
        ColumnSpec("Access Modes", _plain(cells.access_modes)),
        ColumnSpec("StorageClass", _path("spec", "storageClassName")),
        ColumnSpec(
            "VolumeAttributesClass",
            _path("spec", "volumeAttributesClassName", default="<unset>"),
        ),
        _AGE,
        ColumnSpec("VolumeMode", _path("spec", "volumeMode", default="<unset>"), priority=1),
    ),
    ("", "Pod"): (
        *(ColumnSpec(name, cell) for name, cell in POD_CELLS),
        _AGE,
        ColumnSpec("IP", _path("status", "podIP", default="<none>"), priority=1),
        ColumnSpec("Node", _path("spec", "nodeName", default="<none>"), priority=1),
        ColumnSpec(
            "Nominated Node", _path("status", "nominatedNodeName", default="<none>"), priority=1
        ),
        _wide("Readiness Gates", cells.readiness_gates),
    ),
    ("", "PodTemplate"): (
        ColumnSpec("Containers", _plain(cells.container_names)),
        ColumnSpec("Images", _plain(cells.images)),
        ColumnSpec(
            "Pod Labels",
            _plain(cells.template_labels),
        ),
    ),
    ("", "ReplicationController"): (
        _count("Desired", "spec", "replicas"),
        *_status(("Current", "replicas"), ("Ready", "readyReplicas")),
        _AGE,
        *_SELECTED,
    ),
    ("", "ResourceQuota"): (
        ColumnSpec("Request", _plain(lambda obj: cells.quota(obj, limits=False))),
        ColumnSpec("Limit", _plain(lambda obj: cells.quota(obj, limits=True))),
        _AGE,
    ),
    ("", "Secret"): (
        ColumnSpec("Type", _path("type")),
        ColumnSpec("Data", _plain(cells.data_count), "integer"),
        _AGE,
    ),
    ("", "Service"): (
        ColumnSpec("Type", _path("spec", "type")),
        ColumnSpec("Cluster-IP", _path("spec", "clusterIP", default="<none>")),
        ColumnSpec("External-IP", _plain(cells.external_addresses)),
        ColumnSpec("Port(s)", _plain(cells.service_ports)),
        _AGE,
        _wide("Selector", cells.selector),
    ),
    ("", "ServiceAccount"): (
        ColumnSpec("Secrets", _plain(lambda obj: len(obj.get("secrets") or ())), "integer"),
        _AGE,
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): (
        ColumnSpec(
            "Validations",
            _plain(lambda obj: len((obj.get("spec") or {}).get("validations") or ())),
            "integer",
        ),
        ColumnSpec("ParamKind", _plain(cells.parameter_kind)),
        _AGE,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): (
        ColumnSpec("PolicyName", _path("spec", "policyName")),
        ColumnSpec("ParamRef", _path("spec", "paramRef", "name", default="<unset>")),
        _AGE,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (
        ColumnSpec("Scope", _path("spec", "scope")),
        ColumnSpec("Versions", _plain(cells.definition_versions)),
        _CREATED_AT,
    ),
    ("apps", "ControllerRevision"): (
        ColumnSpec("Controller", _plain(cells.controller)),
        ColumnSpec("Revision", _path("revision"), "integer"),
        _AGE,
    ),
    ("apps", "DaemonSet"): (
        *_status(
            ("Desired", "desiredNumberScheduled"),
            ("Current", "currentNumberScheduled"),
            ("Ready", "numberReady"),
            ("Up-to-date", "updatedNumberScheduled"),
            ("Available", "numberAvailable"),
        ),
        ColumnSpec("Node Selector", _plain(cells.node_selector)),
        _AGE,
        *_SELECTED,
    ),
    ("apps", "Deployment"): (
        ColumnSpec("Ready", _plain(cells.ready_of_desired)),
        *_status(("Up-to-date", "updatedReplicas"), ("Available", "availableReplicas")),
        _AGE,
        *_SELECTED,
    ),
    ("apps", "ReplicaSet"): (
        _count("Desired", "spec", "replicas"),
        *_status(("Current", "replicas"), ("Ready", "readyReplicas")),
        _AGE,
        *_SELECTED,
    ),
    ("apps", "StatefulSet"): (
        ColumnSpec("Ready", _plain(cells.ready_of_desired)),
        _AGE,
        *_CONTAINERS,
    ),
    ("batch", "CronJob"): (
        ColumnSpec("Schedule", _path("spec", "schedule")),
        ColumnSpec("Timezone", _path("spec", "timeZone", default="<none>")),
        ColumnSpec("Suspend", _plain(cells.suspended)),
        ColumnSpec(
            "Active",
            _plain(lambda obj: len((obj.get("status") or {}).get("active") or ())),
            "integer",
        ),
        ColumnSpec("Last Schedule", cells.last_schedule),
        _AGE,
        *_SELECTED,
    ),
    ("batch", "Job"): (
        ColumnSpec("Status", _plain(cells.job_status)),
        ColumnSpec("Completions", _plain(cells.job_completions)),
        ColumnSpec("Duration", cells.job_duration),
        _AGE,
        *_SELECTED,
    ),
    ("coordination.k8s.io", "Lease"): (
        ColumnSpec("Holder", _path("spec", "holderIdentity")),
        _AGE,
    ),
    ("discovery.k8s.io", "EndpointSlice"): (
        ColumnSpec("AddressType", _path("addressType")),
        ColumnSpec("Ports", _plain(cells.slice_ports)),
        ColumnSpec("Endpoints", _plain(cells.slice_endpoints)),
        _AGE,
    ),
    ("events.k8s.io", "Event"): _EVENT,
    ("policy", "PodDisruptionBudget"): (
        ColumnSpec("Min Available", _path("spec", "minAvailable", default="N/A")),
        ColumnSpec("Max Unavailable", _path("spec", "maxUnavailable", default="N/A")),
        _count("Allowed Disruptions", "status", "disruptionsAllowed"),
        _AGE,
    ),
    ("rbac.authorization.k8s.io", "ClusterRole"): (_CREATED_AT,),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "Role"): (_CREATED_AT,),
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("resource.k8s.io", "ResourceClaim"): (
        ColumnSpec("State", _plain(cells.claim_state)),
        _AGE,
    ),
    ("resource.k8s.io", "ResourceSlice"): (
        ColumnSpec("Node", _path("spec", "nodeName")),
        ColumnSpec("Driver", _path("spec", "driver")),
        ColumnSpec("Pool", _path("spec", "pool", "name")),
        _AGE,
    ),
    ("scheduling.k8s.io", "PodGroup"): (
        ColumnSpec("Policy", _plain(cells.gang_policy)),
        ColumnSpec("Workload", _plain(cells.group_workload)),
        ColumnSpec("Status", _plain(cells.group_status)),
        _AGE,
    ),
    ("scheduling.k8s.io", "PriorityClass"): (
        ColumnSpec("Value", _path("value", default=0), "integer"),
        ColumnSpec("Global-Default", _plain(lambda obj: bool(obj.get("globalDefault"))), "boolean"),
        _AGE,
        ColumnSpec("PreemptionPolicy", _path("preemptionPolicy")),
    ),
    ("storage.k8s.io", "CSINode"): (
        ColumnSpec(
            "Drivers",
            _plain(lambda obj: len((obj.get("spec") or {}).get("drivers") or ())),
            "integer",
        ),
        _AGE,
    ),
    ("storage.k8s.io", "VolumeAttachment"): (
        ColumnSpec("Attacher", _path("spec", "attacher")),
        ColumnSpec("PV", _path("spec", "source", "persistentVolumeName")),
        ColumnSpec("Node", _path("spec", "nodeName")),
        ColumnSpec("Attached", _path("status", "attached"), "boolean"),
        _AGE,
    ),
    ("storage.k8s.io", "StorageClass"): (
        ColumnSpec("Provisioner", _path("provisioner")),
        ColumnSpec("ReclaimPolicy", _path("reclaimPolicy")),
        ColumnSpec("VolumeBindingMode", _path("volumeBindingMode")),
        ColumnSpec(
            "AllowVolumeExpansion",
            _plain(lambda obj: bool(obj.get("allowVolumeExpansion"))),
            "boolean",
        ),
        _AGE,
    ),
}
