"""Subresources: status, scale, finalize, binding and eviction.

Which part of an object each of them may change is the update strategy of the generic registry;
scale paths of custom kinds come from their CRD; eviction follows `policy/v1`.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from kubelocal.server.errors import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    too_many_requests,
)
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.schema import Cause
from kubelocal.server.writing.options import DeleteOptions, parse_delete_options
from kubeworld.objects.pods import OVER
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.instants import format_instant
from kubeworld.writes.changes import bound, with_condition
from kubeworld.writes.refusals import Refused

__all__ = ["WRITTEN", "bind", "evict", "merged", "scale_of", "with_scale"]

WRITTEN: Final = frozenset(("status", "scale", "finalize", "resize", "ephemeralcontainers"))
"""Subresources that an update or a patch may change."""

_EPHEMERAL: Final = "ephemeralContainers"
_DISRUPTION_BUDGETS: Final = "poddisruptionbudgets.policy"


def merged(
    kind: Kind, old: dict[str, Any], new: dict[str, Any], subresource: str
) -> dict[str, Any]:
    """Return `old` with what an update through `subresource` may change, read from `new`."""
    if subresource == "status":
        result = {key: value for key, value in old.items() if key != "status"}
        if "status" in new:
            result["status"] = new["status"]
        result["metadata"] = dict(old["metadata"])
        if "managedFields" in new["metadata"]:
            result["metadata"]["managedFields"] = new["metadata"]["managedFields"]
        if kind.custom is None:
            for name in ("labels", "annotations", "finalizers"):
                result["metadata"].pop(name, None)
                if name in new["metadata"]:
                    result["metadata"][name] = new["metadata"][name]
        return result
    if subresource == "finalize":
        return {**old, "spec": new.get("spec") or {}, "metadata": dict(old["metadata"])}
    if subresource == "resize":
        return {**old, "spec": _resized(old["spec"], new.get("spec") or {})}
    if subresource == "ephemeralcontainers":
        debugging = (new.get("spec") or {}).get(_EPHEMERAL)
        return {**old, "spec": {**old["spec"], _EPHEMERAL: debugging}}
    if "status" in kind.subresources:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if kind.resource == "namespaces" and "spec" in old:
        new["spec"] = old["spec"]
    return new


def _resized(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's spec with the resources of its containers read from `new`."""
    resized = dict(old)
    for group in ("containers", "initContainers"):
        given = {one.get("name"): one for one in new.get(group) or () if isinstance(one, dict)}
        if group in old:
            resized[group] = [
                {**one, "resources": given.get(one["name"], one).get("resources") or {}}
                for one in old[group]
            ]
    return resized


def scale_of(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the autoscaling/v1 Scale of an object."""
    replicas, ready, selector = _scale_paths(kind)
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _at(obj, ready) or 0}
    found = _at(obj, selector)
    if isinstance(found, dict):
        found = ",".join(
            f"{key}={value}" for key, value in sorted((found.get("matchLabels") or {}).items())
        )
    if found:
        status["selector"] = found
    count = _at(obj, replicas)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {} if count is None else {"replicas": count},
        "status": status,
    }


def with_scale(kind: Kind, old: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """Return `old` with the replica count that `scale` requests.

    Raises:
        StatusError: 400, 409 or 422.
    """
    name = old["metadata"]["name"]
    if not isinstance(scale.get("spec"), dict) or not isinstance(scale.get("metadata", {}), dict):
        raise bad_request("the object provided is not a Scale")
    count = scale["spec"].get("replicas", 0)
    if type(count) is not int:
        raise bad_request("Scale.spec.replicas is not a number")
    if count < 0:
        raise invalid(
            kind,
            name,
            [
                Cause(
                    "FieldValueInvalid",
                    f"Invalid value: {count}: must be greater than or equal to 0",
                    "spec.replicas",
                )
            ],
        )
    version = scale.get("metadata", {}).get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(kind, name)
    scaled = copy.deepcopy(old)
    target = scaled
    *parents, last = _scale_paths(kind)[0].split(".")
    for part in parents:
        target = target.setdefault(part, {})
    target[last] = count
    return scaled


def _scale_paths(kind: Kind) -> tuple[str, str, str]:
    """Return the dotted paths of wanted count, counted replicas and selector."""
    if kind.custom is not None and kind.custom.scale is not None:
        wanted, counted, selector = (path.lstrip(".") for path in kind.custom.scale)
        return wanted, counted, selector
    return "spec.replicas", "status.replicas", "spec.selector"


def _at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _pods(api: State) -> Kind:
    pods = api.registry.find("", "v1", "pods")
    assert pods is not None
    return pods


def bind(api: State, namespace: str, name: str, binding: dict[str, Any]) -> dict[str, Any]:
    """Assign a pod to a node, as the scheduler does."""
    kind = _pods(api)
    target = binding.get("target")
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise StatusError(
            422,
            "Invalid",
            f'Binding "{name}" is invalid: target.name: Required value',
            {
                "name": name,
                "kind": "Binding",
                "causes": [
                    {
                        "reason": "FieldValueRequired",
                        "message": "Required value",
                        "field": "target.name",
                    }
                ],
            },
        )
    kept = api.stored(kind, namespace, name).decode()
    given = binding.get("metadata") or {}
    if not isinstance(given, dict) or not all(
        _is_text_map(given.get(part) or {}) for part in ("annotations", "labels")
    ):
        raise bad_request("Binding.metadata cannot be decoded")
    try:
        kept = bound(kept, binding, api.clock.wall())
    except Refused as refusal:
        raise conflict(kind, name, refusal.message, "binding") from None
    api.store.put("pods", kept)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )


def evict(api: State, namespace: str, name: str, eviction: dict[str, Any]) -> dict[str, Any]:
    """Delete a pod with the budget's consent."""
    kind = _pods(api)
    given = eviction.get("deleteOptions") or {}
    if not isinstance(given, dict):
        raise bad_request("Eviction.deleteOptions is not an object")
    options: DeleteOptions = parse_delete_options({}, given)
    pod = api.stored(kind, namespace, name).decode()
    phase = pod.get("status", {}).get("phase")
    if phase not in OVER and phase != "Pending" and "deletionTimestamp" not in pod["metadata"]:
        _ask_budgets(api, namespace, pod, options.dry_run)
        if not options.dry_run and pod["spec"].get("nodeName"):
            status = with_condition(pod.get("status") or {}, _target_of_eviction(api))
            api.store.put("pods", {**pod, "status": status})
    api.delete_now(kind, namespace, name, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _target_of_eviction(api: State) -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": format_instant(api.clock.wall()),
    }


def _ask_budgets(api: State, namespace: str, pod: dict[str, Any], dry_run: bool) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        obj
        for stored in api.store.range(_DISRUPTION_BUDGETS, namespace)
        if matches_labels((obj := stored.decode())["spec"].get("selector"), labels)
    ]
    if len(budgets) > 1:
        raise StatusError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    for budget in budgets:
        status = budget.setdefault("status", {})
        name = budget["metadata"]["name"]
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
            message = f"The disruption budget {name} is still being processed by the server."
            raise _disruption(message, 10)
        if status.get("disruptionsAllowed", 0) <= 0:
            message = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy "
                f"pods and has {status.get('currentHealthy', 0)} currently"
            )
            raise _disruption(message, 0)
        if dry_run:
            return
        status["disruptionsAllowed"] -= 1
        disrupted = status.setdefault("disruptedPods", {})
        disrupted[pod["metadata"]["name"]] = format_instant(api.clock.wall())
        if not status["disruptionsAllowed"]:
            status = with_condition(status, _insufficient(api, budget))
        api.store.put(_DISRUPTION_BUDGETS, {**budget, "status": status})


def _insufficient(api: State, budget: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": budget["status"].get("observedGeneration", 0),
        "lastTransitionTime": format_instant(api.clock.wall()),
    }


def _disruption(message: str, seconds: int) -> StatusError:
    return too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        seconds,
        [{"reason": "DisruptionBudget", "message": message}],
    )
