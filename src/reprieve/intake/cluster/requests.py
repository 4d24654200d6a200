"""What a pod requests of a node, for the filter and for the scores.

Per resource (specification 21.4):

1. R = sum over containers. S = 0, M = 0. Each init container in order: a restartable one adds its
   amount to R and to S, and M = max(M, S); another one makes M = max(M, its amount + S).
   Then R = max(R, M).
2. Pod-level requests replace R for cpu, memory and huge pages.
3. Overhead is added, and behind the gate DRANodeAllocatableResources what the pod's claims take of
   its node, as the status says.

A container, and the pod level, counts the maximum of spec, allocated and actuated, as far as the
status tells; the spec is left out while a resize is infeasible. For scores a container without
a request for cpu or memory counts a default (17.2). Amounts are exact until the end, then cpu is
rounded up to milli-CPU and everything else to whole units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.api.core import Container as PlainContainer
from reprieve.api.core import ContainerResources, PodSpec
from reprieve.api.scheduling import Amounts, Container, ContainerStatus, PodObject
from reprieve.engine.cluster.columns import LIMIT, MOST_REQUESTED
from reprieve.engine.cluster.rows import CPU, MEMORY, STORAGE
from reprieve.units.quantities import InvalidQuantity, parse_milli

__all__ = ["NOTHING", "Requests", "amount_in_base_units", "plain_requests", "requests_of"]

_DEFAULTS: Final = {CPU: 100, MEMORY: 200 * 2**20 * 1000}  # thousandths of the unit
_ALWAYS: Final = "Always"

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

    `with_claims`: also what its claims take of the node.
    """
    spec = pod.spec
    statuses = _statuses(pod)
    infeasible = _resize_is_infeasible(pod)
    containers = [_asked(each, statuses, infeasible) for each in spec.containers or ()]
    init = [
        (each.restart_policy == _ALWAYS, _asked(each, statuses, infeasible))
        for each in spec.init_containers or ()
    ]
    own = {} if spec.resources is None else _milli(spec.resources.requests)
    if own:
        status = pod.status
        own = _resized(own, status.allocated_resources, status.resources, infeasible)
        own = {name: amount for name, amount in own.items() if _is_pod_level(name)}
    besides = _milli(spec.overhead)
    if with_claims:
        for claim in pod.status.node_allocatable_resource_claim_statuses or ():
            for each in claim.mapping or ():
                _add(besides, _milli({each.name: each.quantity}))

    def total(defaults: Mapping[str, int]) -> _Milli:
        found = _aggregate(containers, init, defaults)
        found.update(own)
        _add(found, besides)
        return found

    true = total({})
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


def plain_requests(spec: PodSpec) -> dict[str, int]:
    """Return what a pod's spec requests of a node, without the amounts of a resize or of claims."""
    containers = [_of_container(each) for each in spec.containers or ()]
    init = [
        (each.restart_policy == _ALWAYS, _of_container(each)) for each in spec.init_containers or ()
    ]
    total = _aggregate(containers, init, {})
    if spec.resources is not None:
        own = _milli(spec.resources.requests)
        total.update((name, amount) for name, amount in own.items() if _is_pod_level(name))
    _add(total, _milli(spec.overhead))
    return {
        name: _rounded(name, amount)
        for name, amount in total.items()
        if _counts(name) and amount > 0
    }


def _of_container(container: PlainContainer) -> _Milli:
    return {} if container.resources is None else _milli(container.resources.requests)


def amount_in_base_units(name: str, quantity: str | int | float) -> int:
    """Return a quantity of a resource: cpu in milli-CPU, others in whole units, rounded up.

    Raises:
        InvalidQuantity: not a quantity.
    """
    milli = parse_milli(quantity)
    return min(milli if name == CPU else -(-milli // 1000), LIMIT)


def _aggregate(
    containers: Iterable[_Milli],
    init: Sequence[tuple[bool, _Milli]],
    defaults: Mapping[str, int],
) -> _Milli:
    total: _Milli = {}
    for asked in containers:
        _add(total, {**defaults, **asked})
    sidecars: _Milli = {}
    most: _Milli = {}
    for restartable, asked in init:
        asked = {**defaults, **asked}
        if restartable:
            _add(total, asked)
            _add(sidecars, asked)
            _raise(most, sidecars)
        else:
            _add(asked, sidecars)
            _raise(most, asked)
    _raise(total, most)
    return total


def _asked(
    container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool
) -> _Milli:
    asked = {} if container.resources is None else _milli(container.resources.requests)
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
        _raise(given, _milli(actuated.requests))
    if given and infeasible:
        return given
    _raise(asked, given)
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


def _add(total: _Milli, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(most: _Milli, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > most.get(name, -1):
            most[name] = amount


def _rounded(name: str, milli: int) -> int:
    """Return an amount in base units, up to the most that counts of one pod."""
    return min(milli if name == CPU else -(-milli // 1000), MOST_REQUESTED)


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _counts(name: str) -> bool:
    """Return whether nodes are asked for it: the native resources, extended ones, huge pages."""
    return (
        name in (CPU, MEMORY, STORAGE)
        or "/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
    )
