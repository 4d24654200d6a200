"""Devices that containers ask for as extended resources, in case a DeviceClass stands for them.

Per resource: every container that runs on (regular or sidecar) makes a request of its own. An init
container that ends uses the devices of those that start with or after it, and asks only for what is
missing; of such requests the largest, the first among equals, serves all. A request is named
`container-I-request-J`: I counts init containers, then containers; J is the place of the resource
among all names that the container requests, sorted. Source: specification 21.4 and 21.9; the names
are those that kube-scheduler 1.37 writes into the claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from reprieve.api.scheduling import Container, PodSpec
from reprieve.engine.cluster.rows import ExtendedRequest
from reprieve.units.quantities import InvalidQuantity, parse_milli

__all__ = ["extended_requests"]

_BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_ALWAYS: Final = "Always"


@dataclass(slots=True)
class _Asked:
    """A request in the making."""

    name: str
    count: int
    containers: list[str] = field(default_factory=list)


def extended_requests(spec: PodSpec) -> tuple[ExtendedRequest, ...]:
    """Return the requests of a pod, by name."""
    init = tuple(spec.init_containers or ())
    containers = (*init, *(spec.containers or ()))
    names = {name for container in containers for name in _amounts(container)}
    found = [
        ExtendedRequest(resource, asked.name, asked.count, tuple(asked.containers))
        for resource in names
        for asked in _of_resource(resource, containers, len(init))
    ]
    return tuple(sorted(found, key=lambda request: request.name))


def _of_resource(resource: str, containers: tuple[Container, ...], init: int) -> tuple[_Asked, ...]:
    lasting: dict[int, _Asked] = {}
    ending = []
    for index, container in enumerate(containers):
        count = _amounts(container).get(resource, 0)
        if count == 0:
            continue
        asked = _Asked(_name(index, container, resource), count, [container.name])
        if index < init and container.restart_policy != _ALWAYS:
            ending.append((index, container.name, asked))
        else:
            lasting[index] = asked
    extra: _Asked | None = None
    short = []
    for index, name, asked in ending:
        for other in (each for place, each in lasting.items() if place >= index):
            if asked.count <= 0:
                break
            other.containers.append(name)
            asked.count -= other.count
        if asked.count > 0:
            short.append(name)
            if extra is None or extra.count < asked.count:
                extra = asked
    if extra is None:
        return tuple(lasting.values())
    extra.containers = short
    return (extra, *lasting.values())


def _name(index: int, container: Container, resource: str) -> str:
    requests = (container.resources.requests if container.resources else None) or {}
    return f"container-{index}-request-{sorted(requests).index(resource)}"


def _amounts(container: Container) -> dict[str, int]:
    """Return whole positive amounts of extended resources."""
    found = {}
    requests = container.resources.requests if container.resources else None
    for name, quantity in (requests or {}).items():
        if "/" not in name or ("kubernetes.io/" in name and not name.startswith(_BY_CLASS)):
            continue
        try:
            milli = parse_milli(quantity)
        except InvalidQuantity:
            continue
        if milli > 0 and milli % 1000 == 0:
            found[name] = milli // 1000
    return found
