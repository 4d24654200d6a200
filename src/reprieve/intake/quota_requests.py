"""What one pod of a Workload asks for, in the quota plane's units.

Per resource: R = sum over containers. Each init container in order: a restartable one adds its
amount to R and to the sidecars S, and M = max(M, S); another one makes M = max(M, its amount + S).
Then R = max(R, M); pod-level requests replace R for cpu, memory and huge pages; overhead is added.
A container that names a limit and no request asks for the limit. Every resource counts, also those
that no node could have: quota may be given for them.

Source: specification of the quota plane, section 2; the API's rules for pod requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reprieve.api.core import ContainerResources
from reprieve.api.kueue import Amounts, PodSpec
from reprieve.engine.quota.amounts import SMALLEST, UNLIMITED, clamp
from reprieve.units.quantities import InvalidQuantity, parse_milli, parse_quantity
from reprieve.units.untrusted import Form

__all__ = ["UnreadableRequest", "amount_of", "amounts_of", "pod_requests"]

_HUGE: Final = Form(r"([+-]?+)0*+[1-9.][0-9.]*+[eE]\+?+[0-9]++")
_LARGEST_MILLI: Final = UNLIMITED * 1_000


class UnreadableRequest(ValueError):
    """A quantity of a pod cannot be read; the message starts with its path below the pod's spec."""


def amount_of(resource: str, quantity: str | int | float) -> int:
    """Return a quantity in engine units: cpu in milli units, others whole, at most int64.

    Raises:
        InvalidQuantity: not a quantity.
    """
    try:
        return clamp(parse_milli(quantity) if resource == "cpu" else parse_quantity(quantity))
    except InvalidQuantity:
        # More digits than any cluster has of anything: the API takes it, and means the largest.
        huge = _HUGE.fullmatch(str(quantity))
        if huge is None:
            raise
        return SMALLEST if huge.group(1) == "-" else UNLIMITED


def amounts_of(amounts: Amounts | None) -> dict[str, int]:
    """Return quantities by resource in engine units.

    Raises:
        InvalidQuantity: one of them is not a quantity.
    """
    return {name: amount_of(name, quantity) for name, quantity in (amounts or {}).items()}


def pod_requests(spec: PodSpec, overhead: Amounts | None = None) -> dict[str, int]:
    """Return what one pod asks for, by resource, in engine units.

    Args:
        spec: of the pod.
        overhead: of its runtime class, where the pod names none itself.

    Raises:
        UnreadableRequest: a quantity cannot be read.
    """
    total: dict[str, int] = {}
    for index, container in enumerate(spec.containers or ()):
        _add(total, _asked(container.resources, f"containers[{index}].resources"))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for index, container in enumerate(spec.init_containers or ()):
        asked = _asked(container.resources, f"initContainers[{index}].resources")
        if container.restart_policy == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            _raise(most, sidecars)
        else:
            _add(asked, sidecars)
            _raise(most, asked)
    _raise(total, most)
    own = _asked(spec.resources, "resources")
    total.update({name: amount for name, amount in own.items() if _is_pod_level(name)})
    more = overhead if spec.overhead is None else spec.overhead
    _add(total, _milli(more, "overhead"))
    return {name: _rounded(name, amount) for name, amount in total.items()}


def _asked(resources: ContainerResources | None, path: str) -> dict[str, int]:
    if resources is None:
        return {}
    limits = _milli(resources.limits, f"{path}.limits") if resources.limits else {}
    return {**limits, **_milli(resources.requests, f"{path}.requests")}


def _milli(amounts: Amounts | None, path: str) -> dict[str, int]:
    """Return thousandths of the unit by resource."""
    found = {}
    for name, quantity in (amounts or {}).items():
        try:
            found[name] = parse_milli(quantity)
        except InvalidQuantity as error:
            if _HUGE.fullmatch(str(quantity)) is None:
                raise UnreadableRequest(f"{path}[{name}]: {error}") from None
            found[name] = _LARGEST_MILLI
    return found


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(most: dict[str, int], other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        most[name] = max(most[name], amount) if name in most else amount


def _rounded(name: str, milli: int) -> int:
    return clamp(milli if name == "cpu" else -(-milli // 1_000))


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")
