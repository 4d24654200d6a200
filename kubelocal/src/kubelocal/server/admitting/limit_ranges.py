"""LimitRanges: the resources that containers get by default, and the bounds of their requests.

Source: the LimitRanger admission plugin; defaults among the values of one LimitRange are set with
the object itself (`defaults`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server.errors import forbidden
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind
from kubeworld.admission.pods import range_containers
from kubeworld.units.canonical import canonical
from kubeworld.units.quantities import parse_milli

__all__ = ["check", "complete"]

_ANNOTATION: Final = "kubernetes.io/limit-ranger"


def complete(api: State, pod: dict[str, Any]) -> None:
    """Give containers the default requests and limits of their namespace."""
    notes = range_containers(pod["spec"], _items(api, pod["metadata"]["namespace"], "Container"))
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def check(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Refuse a pod or claim beyond the bounds of its namespace.

    Raises:
        StatusError: 403 with everything that is beyond.
    """
    if kind.resource not in ("pods", "persistentvolumeclaims"):
        return
    found = list(dict.fromkeys(_excesses(api, kind, obj)))
    if found:
        text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise forbidden(kind, obj["metadata"]["name"], text)


def _excesses(api: State, kind: Kind, obj: dict[str, Any]) -> Iterator[str]:
    namespace, spec = obj["metadata"]["namespace"], obj.get("spec") or {}
    if kind.resource != "pods":
        for item in _items(api, namespace, "PersistentVolumeClaim"):
            requests = (spec.get("resources") or {}).get("requests") or {}
            yield from _bounds(item, requests, requests)
        return
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for item in _items(api, namespace, "Container"):
        for container in containers:
            resources = container.get("resources") or {}
            yield from _bounds(item, resources.get("requests") or {}, resources.get("limits") or {})
    for item in _items(api, namespace, "Pod"):
        yield from _bounds(item, *(_summed(spec, part) for part in ("requests", "limits")))


def _bounds(
    item: Mapping[str, Any], requests: Mapping[str, Any], limits: Mapping[str, Any]
) -> Iterator[str]:
    where = item["type"]
    for name, bound in sorted((item.get("min") or {}).items()):
        text = f"minimum {name} usage per {where} is {bound}"
        if name not in requests:
            yield f"{text}.  No request is specified"
        elif _milli(requests[name]) < _milli(bound):
            yield f"{text}, but request is {requests[name]}"
        elif name in limits and _milli(limits[name]) < _milli(bound):
            yield f"{text}, but limit is {limits[name]}"
    for name, bound in sorted((item.get("max") or {}).items()):
        text = f"maximum {name} usage per {where} is {bound}"
        if name not in limits:
            yield f"{text}.  No limit is specified"
        elif _milli(limits[name]) > _milli(bound):
            yield f"{text}, but limit is {limits[name]}"
        elif name in requests and _milli(requests[name]) > _milli(bound):
            yield f"{text}, but request is {requests[name]}"
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        text = f"{name} max limit to request ratio per {where} is {bound}"
        request, limit = _milli(requests.get(name, 0)), _milli(limits.get(name, 0))
        if not request:
            yield f"{text}, but no request is specified or request is 0"
        elif not limit:
            yield f"{text}, but no limit is specified or limit is 0"
        elif limit * 1000 > _milli(bound) * request:
            yield f"{text}, but provided ratio is {limit / request:f}"


def _summed(spec: Mapping[str, Any], part: str) -> dict[str, str]:
    """Return the sum over containers, at least what the greatest init container has."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = total.get(name, 0) + _milli(amount)
    for container in spec.get("initContainers") or ():
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = max(total.get(name, 0), _milli(amount))
    return {name: canonical(f"{amount}m") for name, amount in total.items()}


def _items(api: State, namespace: str, what: str) -> Iterator[Mapping[str, Any]]:
    if not api.store.count("limitranges"):
        return
    for stored in api.store.range("limitranges", namespace):
        for item in stored.decode()["spec"].get("limits") or ():
            if item.get("type") == what:
                yield item


def _milli(amount: str | int) -> int:
    return parse_milli(amount)
