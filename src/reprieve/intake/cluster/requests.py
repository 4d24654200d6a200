"""What a pod requests of a node, for the filter and for the scores.

The sum is that of `objects.pod_sum` (specification 21.4); beside overhead, behind the gate
DRANodeAllocatableResources, what the pod's claims use of its node is added, as the status states.

A container, and the pod level, counts the maximum of spec, allocated and actuated, as far as the
status states them; the spec is left out while a resize is infeasible. For scores a container
without a request for cpu or memory counts a default (17.2). Amounts are exact until the end, then
cpu is rounded up to milli-CPU and everything else to whole units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kubeworld.objects.pod_sum import ALWAYS, add, pod_level, pod_sum, raise_to
from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.core import ContainerResources, PodSpec
from reprieve.api.kueue import PodSpec as KueuePodSpec
from reprieve.api.scheduling import Amounts, Container, ContainerStatus, PodObject
from reprieve.engine.cluster.limits import LIMIT, MOST_REQUESTED
from reprieve.engine.cluster.rows import CPU, MEMORY, STORAGE

__all__ = ["NOTHING", "Requests", "amount_in_base_units", "plain_requests", "requests_of"]

_DEFAULTS: Final = {CPU: 100, MEMORY: 200 * 2**20 * 1000}  # thousandths of the unit

_Milli = dict[str, int]  # thousandths of the unit, per resource


@dataclass(frozen=True, slots=True)
class Requests:
    """`amounts` above zero by name; cpu and memory for scores, placed and while being placed.

    The two differ only for a pod with requests of its own (pod level), some of whose containers
    name a resource that others do not.
    """

    amounts: tuple[tuple[str, int], ...]
    scored: tuple[int, int]
    scored_incoming: tuple[int, int]


NOTHING: Final = Requests((), (0, 0), (0, 0))


def requests_of(pod: PodObject, *, with_claims: bool = False) -> Requests:
    """Return what the pod requests; a quantity that cannot be read counts as not named.

    `with_claims`: also what its claims use of the node.
    """
    spec = pod.spec
    statuses = _statuses(pod)
    infeasible = _resize_is_infeasible(pod)
    containers = [_asked(each, statuses, infeasible) for each in spec.containers or ()]
    init = [
        (each.restart_policy == ALWAYS, _asked(each, statuses, infeasible))
        for each in spec.init_containers or ()
    ]
    own = _named(spec.resources)
    if own:
        status = pod.status
        own = pod_level(_resized(own, status.allocated_resources, status.resources, infeasible))
    besides = _milli(spec.overhead)
    if with_claims:
        for claim in pod.status.node_allocatable_resource_claim_statuses or ():
            for each in claim.mapping or ():
                add(besides, _milli({each.name: each.quantity}))

    def total(defaults: Mapping[str, int]) -> _Milli:
        return pod_sum(
            ({**defaults, **asked} for asked in containers),
            ((restartable, {**defaults, **asked}) for restartable, asked in init),
            own,
            besides,
        )

    true = pod_sum(containers, init, own, besides)
    incoming = total(_DEFAULTS)
    placed = incoming
    if own:
        placed = total({name: each for name, each in _DEFAULTS.items() if name not in true})
    amounts = {name: _rounded(name, amount) for name, amount in true.items() if _counts(name)}
    return Requests(
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0)),
        (_rounded(CPU, placed.get(CPU, 0)), _rounded(MEMORY, placed.get(MEMORY, 0))),
        (_rounded(CPU, incoming.get(CPU, 0)), _rounded(MEMORY, incoming.get(MEMORY, 0))),
    )


def plain_requests(spec: PodSpec | KueuePodSpec) -> dict[str, int]:
    """Return what a pod's spec requests of a node, without the amounts of a resize or of claims."""
    total = pod_sum(
        (_named(each.resources) for each in spec.containers or ()),
        (
            (each.restart_policy == ALWAYS, _named(each.resources))
            for each in spec.init_containers or ()
        ),
        pod_level(_named(spec.resources)),
        _milli(spec.overhead),
    )
    return {
        name: _rounded(name, amount)
        for name, amount in total.items()
        if _counts(name) and amount > 0
    }


def _named(resources: ContainerResources | None) -> _Milli:
    return {} if resources is None else _milli(resources.requests)


def amount_in_base_units(name: str, quantity: str | int | float) -> int:
    """Return a quantity of a resource: cpu in milli-CPU, others in whole units, rounded up.

    Raises:
        InvalidQuantity: not a quantity.
    """
    milli = parse_milli(quantity)
    return min(milli if name == CPU else -(-milli // 1000), LIMIT)


def _asked(
    container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool
) -> _Milli:
    asked = _named(container.resources)
    status = statuses.get(container.name)
    if status is None:
        return asked
    return _resized(asked, status.allocated_resources, status.resources, infeasible)


def _resized(
    asked: _Milli,
    allocated: Amounts | None,
    actuated: ContainerResources | None,
    infeasible: bool,
) -> _Milli:
    given = _milli(allocated)
    if actuated is not None:
        raise_to(given, _milli(actuated.requests))
    if given and infeasible:
        return given
    raise_to(asked, given)
    return asked


def _statuses(pod: PodObject) -> dict[str, ContainerStatus]:
    status = pod.status
    known = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return {each.name: each for each in known}


def _resize_is_infeasible(pod: PodObject) -> bool:
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _milli(amounts: Amounts | None) -> _Milli:
    found: _Milli = {}
    for name, quantity in (amounts or {}).items():
        try:
            found[name] = parse_milli(quantity)
        except InvalidQuantity:
            continue
    return found


def _rounded(name: str, milli: int) -> int:
    """Return an amount in base units, up to the most that counts of one pod."""
    return min(milli if name == CPU else -(-milli // 1000), MOST_REQUESTED)


def _counts(name: str) -> bool:
    """Return whether nodes have to offer it: the native resources, extended ones, huge pages."""
    return (
        name in (CPU, MEMORY, STORAGE)
        or "/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
    )
