"""ResourceQuotas: whom one counts, and how much of each of its names an object uses.

1. A quota with scopes counts pods alone, and those that all its scopes hold for: Terminating,
   NotTerminating, BestEffort, NotBestEffort, PriorityClass and CrossNamespacePodAffinity, in
   `scopes` and `scopeSelector`. One with a scope that is not known here counts nothing.
2. A pod counts until it is over: one of `pods` and `count/pods`, its requests under their own names
   and as `requests.*`, its limits as `limits.*`. BestEffort is decided by CPU and memory.
3. Services count by their type as well, claims by their storage; anything else as `count/*`.

Amounts are thousandths of base units. Source: the evaluators of the ResourceQuota plugin, 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeworld.objects.pods import is_over
from kubeworld.objects.quality import is_best_effort
from kubeworld.objects.requests import pod_amounts
from kubeworld.units.quantities import parse_milli

__all__ = ["in_scope", "source_of", "unspecified", "usage_of"]

_ONE: Final = 1_000
_COUNTED: Final = frozenset(
    (
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    )
)
# Without these in a container it is unknown what a pod uses.
_REQUIRED: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}


def source_of(name: str) -> str:
    """Return the resource whose objects a quota counts or adds up under `name`."""
    if name.startswith("count/"):
        return name.removeprefix("count/").removesuffix(".")
    if name in _COUNTED:
        return name
    if name in ("services.loadbalancers", "services.nodeports"):
        return "services"
    return "persistentvolumeclaims" if name == "requests.storage" else "pods"


def usage_of(resource: str, obj: Mapping[str, Any]) -> dict[str, int]:
    """Return what an object of a resource (`pods`, `jobs.batch`) uses, by the quota's names."""
    spec = obj.get("spec") or {}
    usage = {f"count/{resource}": _ONE}
    if resource in _COUNTED:
        usage[resource] = _ONE
    if resource == "services":
        kind = spec.get("type")
        usage["services.loadbalancers"] = _ONE * (kind == "LoadBalancer")
        usage["services.nodeports"] = (
            _ONE * len(spec.get("ports") or ()) * (kind in ("NodePort", "LoadBalancer"))
        )
    if resource == "persistentvolumeclaims":
        requests = (spec.get("resources") or {}).get("requests") or {}
        usage["requests.storage"] = parse_milli(requests.get("storage", 0))
    if resource == "pods" and not is_over(obj):
        usage["pods"] = _ONE
        for name, amount in pod_amounts(spec).items():
            usage[name] = usage[f"requests.{name}"] = amount
        for name, amount in pod_amounts(spec, "limits").items():
            usage[f"limits.{name}"] = amount
    return usage


def unspecified(names: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return what a pod would have to state for a quota of these names, empty for nothing."""
    parts = []
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for name in sorted(names):
        if name not in _REQUIRED:
            continue
        part, resource = _REQUIRED[name]
        if resource in _stated(spec, part):
            continue
        silent = [one["name"] for one in containers if resource not in _stated(one, part)]
        if silent:
            parts.append(f"{name} for: {','.join(sorted(silent))}")
    return "; ".join(parts)


def in_scope(spec: Mapping[str, Any], resource: str, obj: Mapping[str, Any]) -> bool:
    """Return whether a quota with this spec counts an object of a resource."""
    scopes = list(_scopes(spec))
    if not scopes:
        return True
    return resource == "pods" and all(_matches(scope, obj.get("spec") or {}) for scope in scopes)


def _stated(holder: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    return (holder.get("resources") or {}).get(part) or {}


def _scopes(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in spec.get("scopes") or ():
        yield {"scopeName": name, "operator": "Exists"}
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _matches(scope: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    match scope.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return is_best_effort(spec)
        case "NotBestEffort":
            return not is_best_effort(spec)
        case "PriorityClass":
            return _selects(scope, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return _names_namespaces(spec.get("affinity") or {})
    return False


def _selects(scope: Mapping[str, Any], name: str) -> bool:
    match scope.get("operator"):
        case "In":
            return name in (scope.get("values") or ())
        case "NotIn":
            return name not in (scope.get("values") or ())
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
    return False


def _names_namespaces(affinity: Mapping[str, Any]) -> bool:
    """Return whether a term of pod affinity names namespaces."""
    for kind in ("podAffinity", "podAntiAffinity"):
        said = affinity.get(kind) or {}
        terms = list(said.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = said.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each.get("podAffinityTerm") or {} for each in preferred]
        if any(
            each.get("namespaces") or each.get("namespaceSelector") is not None for each in terms
        ):
            return True
    return False
