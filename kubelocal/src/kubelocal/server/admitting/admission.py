"""What the server fills in and refuses when objects are created, beyond their schema.

Priority admission (KEP-less, `plugin/pkg/admission/priority`), the create strategies of pods, jobs,
namespaces and services, default tolerations, and the service account of pods where one exists.
"""

from __future__ import annotations

from typing import Any, Final

from kubelocal.server.admitting import limit_ranges, services
from kubelocal.server.causes import bad
from kubelocal.server.errors import forbidden, invalid
from kubelocal.server.state import State
from kubelocal.server.types.defaults import claim_job
from kubelocal.server.types.kinds import Kind
from kubeworld.admission.pods import (
    complete_whole_pod,
    default_class,
    give_class,
    tolerate_failing_nodes,
)
from kubeworld.objects.quality import quality

__all__ = [
    "SYSTEM_PRIORITY_CLASSES",
    "admit_change",
    "admit_create",
    "complete_update",
    "has_generation",
    "note_gates",
    "prepared",
]

SYSTEM_PRIORITY_CLASSES: Final = {
    "system-cluster-critical": (
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, but can be moved to "
            "another node if necessary."
        ),
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
_STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"

# Built-in kinds whose strategies count generations.
_GENERATIONS: Final = frozenset(
    (
        "pods",
        "replicationcontrollers",
        "deployments.apps",
        "daemonsets.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "jobs.batch",
        "cronjobs.batch",
        "poddisruptionbudgets.policy",
        "priorityclasses.scheduling.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "endpointslices.discovery.k8s.io",
        "resourceslices.resource.k8s.io",
        "deviceclasses.resource.k8s.io",
    )
)
# Kinds with a status subresource whose status a create may set all the same.
_STATUS_ON_CREATE: Final = frozenset(("nodes",))


def has_generation(kind: Kind) -> bool:
    """Return whether objects of `kind` count the changes of what they request."""
    return kind.custom is not None or kind.resource in _GENERATIONS


def prepared(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return what of a new object the client may set."""
    if "status" in kind.subresources and kind.resource not in _STATUS_ON_CREATE:
        return {name: value for name, value in obj.items() if name != "status"}
    return obj


def admit_create(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Complete a valid new object.

    Raises:
        StatusError: 403 or 422 in the words of the admission plugin.
    """
    match kind.resource:
        case "pods":
            limit_ranges.complete(api, obj)
            complete_whole_pod(obj["spec"])
            obj["status"]["qosClass"] = quality(obj["spec"])
            _priority(api, kind, obj, obj["spec"])
            _complete_pod(api, obj)
        case "persistentvolumeclaims":
            _default_storage_class(api, obj)
        case "jobs.batch":
            if isinstance(obj.get("spec"), dict):
                claim_job(obj)
        case "compositepodgroups.scheduling.k8s.io":
            _priority(api, kind, obj, obj.setdefault("spec", {}))
        case "podgroups.scheduling.k8s.io":
            _priority(api, kind, obj, obj.setdefault("spec", {}))
            # Removed when no pod of the group is left: `machines.podgroups`.
            finalizers = obj["metadata"].setdefault("finalizers", [])
            if _PROTECTION not in finalizers:
                finalizers.append(_PROTECTION)
        case "priorityclasses.scheduling.k8s.io":
            admit_change(api, kind, obj)
        case "services":
            services.allocate(api, kind, obj, new=True)


def _priority(api: State, kind: Kind, obj: dict[str, Any], spec: dict[str, Any]) -> None:
    """Resolve `priorityClassName` to a number; pods also get a preemption policy."""
    name = obj["metadata"]["name"]
    class_name = spec.get("priorityClassName")
    if class_name:
        stored = api.store.get(_PRIORITY_CLASSES, "", class_name)
        if stored is None:
            raise forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
        chosen: dict[str, Any] | None = stored.decode()
    else:
        chosen = _default_class(api)
    value = 0 if chosen is None else chosen.get("value", 0)
    given, of_pod = spec.get("priority"), kind.resource == "pods"
    if given is not None and given != value:
        computed = (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name"
            if of_pod
            else f"priority set in the pod group ({given}) must match the priority computed "
            f"({value}) based on the priority class set in the spec"
        )
        raise forbidden(kind, name, computed)
    if given is not None and given > HIGHEST_USER_PRIORITY and not of_pod:
        text = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        raise invalid(kind, name, [bad("spec.priority", given, text)])
    with_policy = of_pod or "PodGroupPreemptionPolicy" in kind.features
    if with_policy:
        policy = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        asked = spec.get("preemptionPolicy")
        if asked is not None and asked != policy:
            raise forbidden(
                kind,
                name,
                f"the string value of PreemptionPolicy ({asked}) must not be provided in "
                f"{'pod' if of_pod else 'pod group'} spec; priority admission controller computed "
                f"{policy} from the given PriorityClass name",
            )
    give_class(spec, chosen, with_policy=with_policy)


def _default_storage_class(api: State, claim: dict[str, Any]) -> None:
    """Give a claim that names no class the newest of those that are marked as the default."""
    spec = claim.setdefault("spec", {})
    if "storageClassName" in spec or spec.get("volumeName"):
        return
    classes = [stored.decode()["metadata"] for stored in api.store.range(_STORAGE_CLASSES, None)]
    marked = [one for one in classes if (one.get("annotations") or {}).get(_DEFAULT) == "true"]
    if marked:
        newest = max(marked, key=lambda one: (one["creationTimestamp"], one["name"]))
        spec["storageClassName"] = newest["name"]


def _default_class(api: State) -> dict[str, Any] | None:
    """Return the global default with the lowest value."""
    defaults = [
        obj
        for stored in api.store.range(_PRIORITY_CLASSES, None)
        # Checked for each new pod, and true of one class at most: searched for before it is
        # decoded.
        if b'"globalDefault":true' in stored.body and (obj := stored.decode()).get("globalDefault")
    ]
    return default_class(defaults)


def admit_change(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Refuse a second default priority class, and what Services have of others.

    Raises:
        StatusError: 403 or 422.
    """
    if kind.resource == "services":
        services.allocate(api, kind, obj, new=False)
    if kind.resource != _PRIORITY_CLASSES:
        return
    name = obj["metadata"]["name"]
    default = _default_class(api)
    if obj.get("globalDefault") and default is not None and default["metadata"]["name"] != name:
        raise forbidden(
            kind,
            name,
            f"PriorityClass {default['metadata']['name']} is already marked as default. "
            "Only one default can exist",
        )


def complete_update(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Fill in what an update of a pod or service leaves out and a create was given."""
    if kind.resource == "services" and isinstance(new.get("spec"), dict):
        services.keep_addresses(old.get("spec") or {}, new["spec"])
    if kind.resource != "pods" or not isinstance(new.get("spec"), dict):
        return
    for word in ("priority", "preemptionPolicy"):
        if word in old["spec"]:
            new["spec"].setdefault(word, old["spec"][word])
    tolerate_failing_nodes(new["spec"])


def _complete_pod(api: State, obj: dict[str, Any]) -> None:
    spec, metadata = obj["spec"], obj["metadata"]
    tolerate_failing_nodes(spec)
    if (
        "serviceAccountName" not in spec
        and api.store.get("serviceaccounts", metadata["namespace"], "default") is not None
    ):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"


def note_gates(kind: Kind, obj: dict[str, Any]) -> None:
    """State of a new pod that it is gated, whatever gave it its gates."""
    if kind.resource == "pods" and obj["spec"].get("schedulingGates"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": None,
            }
        ]
