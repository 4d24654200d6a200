"""ResourceQuotas: what a namespace may hold, counted and added up when something is created.

`status.used` is what counts, as in a real cluster; the server itself keeps it, and counts it anew
from the objects with every write that changes it, so it cannot drift. Source: the ResourceQuota
admission plugin and its evaluators; texts of a 1.37 server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubelocal.server.admitting import amounts
from kubelocal.server.errors import forbidden
from kubelocal.server.types.kinds import Kind
from kubeworld.units.quantities import parse_milli

if TYPE_CHECKING:
    from kubelocal.server.api import Api

__all__ = ["check", "written"]

_QUOTAS: Final = "resourcequotas"
_COUNTED: Final = frozenset(
    (
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        _QUOTAS,
        "secrets",
        "services",
    )
)
# Without these in a container nobody could tell what a pod uses.
_REQUIRED: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
_ONE: Final = 1_000


def check(api: Api, kind: Kind, obj: dict[str, Any]) -> None:
    """Refuse a new object for which a quota leaves no room.

    Raises:
        StatusError: 403, exceeded, or not said how much it needs.
    """
    metadata = obj["metadata"]
    for quota in _quotas(api, metadata.get("namespace", "")):
        if not (api.controllers or quota.get("status", {}).get("hard")):
            continue
        hard = _hard(quota)
        if not _in_scope(quota, kind.resource, obj):
            continue
        name = quota["metadata"]["name"]
        if kind.resource == "pods":
            missing = _missing(hard, obj["spec"])
            if missing:
                why = f"failed quota: {name}: must specify {missing}"
                raise forbidden(kind, metadata["name"], why)
        asked = {one: amount for one, amount in _usage(kind.resource, obj).items() if one in hard}
        used = _known(quota, asked) or _used(api, quota, asked)
        over = sorted(one for one in asked if asked[one] and used[one] + asked[one] > hard[one])
        if over:
            raise forbidden(
                kind,
                metadata["name"],
                f"exceeded quota: {name}, requested: {_texts(asked, over)}, "
                f"used: {_texts(used, over)}, limited: {_texts(hard, over)}",
            )


def written(
    api: Api, kind: Kind, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None
) -> None:
    """Write the status of the quotas that a write or removal concerns."""
    if not api.controllers:
        return
    obj = new or old or {}
    if new is not None and old is not None and not _counts_otherwise(kind, new, old):
        return
    for quota in _quotas(api, obj["metadata"].get("namespace", "")):
        if kind.resource != _QUOTAS and not any(
            _source(name) == kind.resource for name in _hard(quota)
        ):
            continue
        hard = _hard(quota)
        status = {
            "hard": quota["spec"]["hard"],
            "used": {name: _text(name, n) for name, n in sorted(_used(api, quota, hard).items())},
        }
        if quota.get("status") != status:
            api.store.put(_QUOTAS, {**quota, "status": status})


def _counts_otherwise(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if kind.resource == _QUOTAS:
        return bool(new.get("spec") != old.get("spec"))
    return kind.resource == "pods" and _is_over(new) != _is_over(old)


def _quotas(api: Api, namespace: str) -> list[dict[str, Any]]:
    if not namespace or not api.store.count(_QUOTAS):
        return []
    found = [stored.decode() for stored in api.store.range(_QUOTAS, namespace)]
    return [quota for quota in found if (quota.get("spec") or {}).get("hard")]


def _hard(quota: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse_milli(amount) for name, amount in quota["spec"]["hard"].items()}


def _known(quota: Mapping[str, Any], names: Iterable[str]) -> dict[str, int] | None:
    """Return what the status says is used, None if it is about something else."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    if status.get("hard") != quota["spec"]["hard"] or not all(name in used for name in names):
        return None
    return {name: parse_milli(used[name]) for name in names}


def _used(api: Api, quota: Mapping[str, Any], names: Iterable[str]) -> Counter[str]:
    """Return what the objects of the quota's namespace use, in thousandths."""
    used: Counter[str] = Counter(dict.fromkeys(names, 0))
    for resource in {_source(name) for name in used}:
        for stored in api.store.range(resource, quota["metadata"]["namespace"]):
            obj = stored.decode()
            if _in_scope(quota, resource, obj):
                for name, amount in _usage(resource, obj).items():
                    if name in used:
                        used[name] += amount
    return used


def _source(name: str) -> str:
    """Return the resource whose objects a quota counts or adds up under `name`."""
    if name.startswith("count/"):
        return name.removeprefix("count/").removesuffix(".")
    if name in _COUNTED:
        return name
    if name in ("services.loadbalancers", "services.nodeports"):
        return "services"
    return "persistentvolumeclaims" if name == "requests.storage" else "pods"


def _usage(resource: str, obj: Mapping[str, Any]) -> dict[str, int]:
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
    if resource == "pods" and not _is_over(obj):
        usage["pods"] = _ONE
        for name, amount in _effective(spec, "requests").items():
            usage[name] = usage[f"requests.{name}"] = amount
        for name, amount in _effective(spec, "limits").items():
            usage[f"limits.{name}"] = amount
    return usage


def _effective(spec: Mapping[str, Any], part: str) -> Counter[str]:
    """Return what a pod needs at its peak: beside its sidecars, an init container or the rest."""

    def of(container: Mapping[str, Any]) -> Counter[str]:
        given = (container.get("resources") or {}).get(part) or {}
        return Counter({name: parse_milli(amount) for name, amount in given.items()})

    sidecars, peak = Counter[str](), Counter[str]()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars += of(container)
            peak |= sidecars
        else:
            peak |= sidecars + of(container)
    total = sum((of(one) for one in spec.get("containers") or ()), sidecars) | peak
    overhead = spec.get("overhead") or {}
    return total + Counter({name: parse_milli(amount) for name, amount in overhead.items()})


def _is_over(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _missing(hard: Mapping[str, int], spec: Mapping[str, Any]) -> str:
    parts = []
    for name in sorted(hard):
        if name not in _REQUIRED:
            continue
        part, resource = _REQUIRED[name]
        containers = [
            one["name"]
            for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
            if resource not in ((one.get("resources") or {}).get(part) or {})
        ]
        if containers:
            parts.append(f"{name} for: {','.join(sorted(containers))}")
    return "; ".join(parts)


def _in_scope(quota: Mapping[str, Any], resource: str, obj: Mapping[str, Any]) -> bool:
    scopes = list(_scopes(quota["spec"]))
    if not scopes:
        return True
    if resource != "pods":
        return False
    return all(_matches(scope, obj["spec"]) for scope in scopes)


def _scopes(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in spec.get("scopes") or ():
        yield {"scopeName": name, "operator": "Exists"}
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _matches(scope: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    if scope["scopeName"] == "PriorityClass":
        given, values = spec.get("priorityClassName"), scope.get("values") or ()
        match scope.get("operator"):
            case "In":
                return given in values
            case "NotIn":
                return given not in values
            case "DoesNotExist":
                return not given
        return bool(given)
    ending = spec.get("activeDeadlineSeconds") is not None
    effort = any(_effective(spec, part) for part in ("requests", "limits"))
    return {
        "Terminating": ending,
        "NotTerminating": not ending,
        "BestEffort": not effort,
        "NotBestEffort": effort,
    }.get(scope["scopeName"], False)


def _texts(values: Mapping[str, int], names: Iterable[str]) -> str:
    return ",".join(f"{name}={_text(name, values[name])}" for name in names)


def _text(name: str, milli: int) -> str:
    """Return an amount as it is written: bytes in binary units where they come out even."""
    if any(part in name for part in ("memory", "storage")) and milli and milli % 1_024_000 == 0:
        return amounts.canonical(f"{milli // 1_024_000}Ki")
    return amounts.canonical(f"{milli}m")
