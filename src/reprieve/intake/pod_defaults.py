"""What the API server fills in of a pod's requests and limits, for pods that are not there yet.

The order is the server's, and decides what counts:

1. The container's own limit stands in for a request that it lacks.
2. LimitRanges give each container what it still lacks: the default request, the default limit.
3. Where the whole pod has limits, each of its requests for cpu and memory that is missing is what
   its containers request by then, or the pod's limit where no container requests any.

Source: the API's defaults of pods (KEP-2837 for those of the whole pod) and the admission plugin
LimitRanger; `tests/integration/test_requests.py` holds it against a real API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from kubeworld.objects.pod_sum import ALWAYS, pod_level, pod_sum
from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.core import ContainerResources
from reprieve.api.kueue import Amounts, Container, PodSpec

if TYPE_CHECKING:
    from reprieve.intake.quota_limits import ContainerLimits

__all__ = ["completed"]


def completed(spec: PodSpec, limits: ContainerLimits) -> PodSpec:
    """Return the pod's spec with what the server and its namespace give it by default."""
    spec = _of_containers(spec, _requests_from_limits)
    if limits.default or limits.default_request:
        spec = _of_containers(spec, lambda given: _ranged(given, limits))
    return msgspec.structs.replace(spec, resources=_of_the_pod(spec))


def _of_containers(
    spec: PodSpec, change: Callable[[ContainerResources | None], ContainerResources | None]
) -> PodSpec:
    def changed(containers: Sequence[Container] | None) -> list[Container]:
        return [
            msgspec.structs.replace(each, resources=change(each.resources))
            for each in containers or ()
        ]

    return msgspec.structs.replace(
        spec, containers=changed(spec.containers), init_containers=changed(spec.init_containers)
    )


def _requests_from_limits(given: ContainerResources | None) -> ContainerResources | None:
    if given is None or not given.limits:
        return given
    return _resources({**given.limits, **(given.requests or {})}, given.limits)


def _ranged(given: ContainerResources | None, limits: ContainerLimits) -> ContainerResources:
    requests = (given and given.requests) or {}
    own = (given and given.limits) or {}
    return _resources({**limits.default_request, **requests}, {**limits.default, **own})


def _of_the_pod(spec: PodSpec) -> ContainerResources | None:
    given = spec.resources
    if given is None or not given.limits:
        return given
    limits = {name: given.limits[name] for name in pod_level(dict.fromkeys(given.limits, 0))}
    try:
        asked = _asked_of_containers(spec)
    except InvalidQuantity:
        # What cannot be read is reported where it is counted, with its path.
        asked = {}
    return _resources({**limits, **asked, **(given.requests or {})}, given.limits)


def _asked_of_containers(spec: PodSpec) -> Amounts:
    """Return what the containers request together, of what a whole pod is given by default.

    Raises:
        InvalidQuantity: a container's.
    """
    total = pod_sum(
        [_milli(each.resources) for each in spec.containers or ()],
        [
            (each.restart_policy == ALWAYS, _milli(each.resources))
            for each in spec.init_containers or ()
        ],
    )
    return {name: f"{amount}m" for name, amount in total.items() if name in ("cpu", "memory")}


def _milli(resources: ContainerResources | None) -> Mapping[str, int]:
    requests = (resources.requests if resources is not None else None) or {}
    return {name: parse_milli(quantity) for name, quantity in requests.items()}


def _resources(requests: Amounts, limits: Amounts) -> ContainerResources:
    return ContainerResources(requests=requests, limits=limits)
