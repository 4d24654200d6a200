"""EndpointSlices of Services with a selector: the addresses of the pods that it matches.

Source: the EndpointSlice controller: at most 100 endpoints in a slice, ready as the pod's condition
states, a named target port read from the pod's containers; finished pods and those without an
address are left out. Services without a selector are handled elsewhere (`exposure`). Not imitated:
topology hints, several address families.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.selections import Selections
from kubeworld.objects.owners import child, template_hash
from kubeworld.objects.pods import is_over, is_ready

__all__ = ["EndpointsController"]

_SERVICES: Final = "services"
_SLICES: Final = "endpointslices.discovery.k8s.io"
_MOST: Final = 100
_LABELS: Final = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


class EndpointsController:
    """Keeps the slices of every Service that has a selector."""

    name = "endpointslices"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._selections = Selections(informer, _SERVICES, _selector)

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _SLICES and change.type is not ChangeType.ADDED:
            labels = change.object["metadata"].get("labels") or {}
            if labels.items() >= _LABELS.items():
                namespace = change.object["metadata"].get("namespace", "")
                return [Key(_SERVICES, namespace, labels["kubernetes.io/service-name"])]
        return self._selections.observe(change, before)

    async def reconcile(self, key: Key) -> None:
        service = self._informer.at(key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            return
        if _selector(service) is None:
            return
        wanted = _slices(service, self._selections.pods(key))
        names = {obj["metadata"]["name"] for obj in wanted}
        for found in list(self._informer.controlled(service["metadata"]["uid"], _SLICES)):
            if found["metadata"]["name"] not in names:
                await self._informer.delete(_SLICES, found)
        for obj in wanted:
            present = self._informer.get(_SLICES, key.namespace, obj["metadata"]["name"])
            if present is None:
                await self._informer.create(_SLICES, obj)
            elif any(present.get(part) != obj[part] for part in ("ports", "endpoints")):
                parts = {"ports": obj["ports"], "endpoints": obj["endpoints"]}
                await self._informer.update(_SLICES, {**present, **parts})


def _selector(service: Object) -> dict[str, Any] | None:
    labels = (service.get("spec") or {}).get("selector")
    return {"matchLabels": labels} if labels else None


def _slices(service: Object, pods: list[Object]) -> list[Object]:
    """Return the wanted slices: pods with the same ports together, the first one may be empty."""
    groups: dict[tuple[tuple[str, int, str], ...], list[dict[str, Any]]] = {}
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        status = pod.get("status") or {}
        if status.get("podIP") and not is_over(pod):
            groups.setdefault(_ports(service, pod), []).append(_endpoint(pod))
    name, made = service["metadata"]["name"], list[Object]()
    for ports, endpoints in (groups or {(): []}).items():
        for first in range(0, max(1, len(endpoints)), _MOST):
            unique = template_hash([service["metadata"]["uid"], len(made)])[:5]
            body = {
                "addressType": "IPv4",
                "ports": [{"name": n, "port": p, "protocol": protocol} for n, p, protocol in ports],
                "endpoints": endpoints[first : first + _MOST],
            }
            labels = {**_LABELS, "kubernetes.io/service-name": name}
            title = f"{name}-{unique}"
            made.append(
                child(service, "discovery.k8s.io/v1", "EndpointSlice", title, body, labels=labels)
            )
    return made


def _ports(service: Object, pod: Object) -> tuple[tuple[str, int, str], ...]:
    """Return name, number and protocol of each port, but for names that the pod does not know."""
    named = {
        port["name"]: port["containerPort"]
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("name")
    }
    found = []
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort") or port["port"]
        number = target if isinstance(target, int) else named.get(target)
        if number is not None:
            found.append((port.get("name", ""), number, port.get("protocol", "TCP")))
    return tuple(found)


def _endpoint(pod: Object) -> dict[str, Any]:
    metadata, leaving = pod["metadata"], bool(pod["metadata"].get("deletionTimestamp"))
    ready = is_ready(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": ready and not leaving, "serving": ready, "terminating": leaving},
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
