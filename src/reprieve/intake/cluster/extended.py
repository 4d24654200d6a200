"""Devices that containers request as extended resources, in case a DeviceClass stands for them.

Per resource: every container that runs on (regular or sidecar) makes a request of its own. An init
container that ends uses the devices of those that start with or after it, and requests only what is
missing; of such requests the largest, the first among equals, serves all. A request is named
`container-I-request-J`: I counts init containers, then containers; J is the place of the resource
among all names that the container requests, sorted. Source: specification 21.4 and 21.9; the names
are those that kube-scheduler 1.37 writes into the claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.scheduling import PodSpec
from reprieve.engine.cluster.rows import ExtendedRequest

__all__ = ["extended_requests"]

_BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_ALWAYS: Final = "Always"
_MOST_SHARING: Final = 1_000  # containers of one resource; a claim holds 32 requests


@dataclass(slots=True)
class _Asked:
    """A request in the making."""

    name: str
    count: int
    containers: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Asker:
    """A container that requests a resource; `lasts`: it runs on."""

    index: int
    lasts: bool
    asked: _Asked


def extended_requests(spec: PodSpec) -> tuple[ExtendedRequest, ...]:
    """Return the requests of a pod, by name."""
    init = len(spec.init_containers or ())
    askers: dict[str, list[_Asker]] = {}
    for index, container in enumerate((*(spec.init_containers or ()), *(spec.containers or ()))):
        lasts = index >= init or container.restart_policy == _ALWAYS
        requests = (container.resources.requests if container.resources else None) or {}
        for place, resource in enumerate(sorted(requests)):
            count = _count(resource, requests[resource])
            if count:
                asked = _Asked(f"container-{index}-request-{place}", count, [container.name])
                askers.setdefault(resource, []).append(_Asker(index, lasts, asked))
    found = [
        ExtendedRequest(resource, asked.name, asked.count, tuple(asked.containers))
        for resource, each in askers.items()
        for asked in _of_resource(each)
    ]
    return tuple(sorted(found, key=lambda request: request.name))


def _of_resource(askers: list[_Asker]) -> tuple[_Asked, ...]:
    lasting = [each for each in askers if each.lasts]
    ending = [each for each in askers if not each.lasts]
    extra: _Asked | None = None
    short = []
    for each in ending:
        asked, name = each.asked, each.asked.containers[0]
        # Beyond what any claim can hold nothing is shared: the time is that number squared.
        for other in lasting if len(askers) <= _MOST_SHARING else ():
            if other.index < each.index:
                continue
            if asked.count <= 0:
                break
            other.asked.containers.append(name)
            asked.count -= other.asked.count
        if asked.count > 0:
            short.append(name)
            if extra is None or extra.count < asked.count:
                extra = asked
    if extra is None:
        return tuple(each.asked for each in lasting)
    extra.containers = short
    return (extra, *(each.asked for each in lasting))


def _count(resource: str, quantity: str | int | float) -> int:
    """Return the amount of an extended resource; 0 where it is none, or no whole positive one."""
    if "/" not in resource:
        return 0
    if "kubernetes.io/" in resource and not resource.startswith(_BY_CLASS):
        return 0
    try:
        milli = parse_milli(quantity)
    except InvalidQuantity:
        return 0
    return milli // 1000 if milli > 0 and milli % 1000 == 0 else 0
