"""What one pod of a Workload requests, in the quota plane's units.

The sum is that of `objects.pod_sum`. A container that names a limit and no request requests the
limit. Every resource counts, also those that no node could have: quota may be given for them.

Source: specification of the quota plane, section 2; the API's rules for pod requests.
"""

from __future__ import annotations

from typing import Final

from kubeworld.objects.pod_sum import ALWAYS, pod_level, pod_sum
from kubeworld.units.quantities import InvalidQuantity, parse_milli, parse_quantity
from kubeworld.units.untrusted import Form
from reprieve.api.core import ContainerResources
from reprieve.api.kueue import Amounts, PodSpec
from reprieve.engine.quota.holdings.amounts import SMALLEST, UNLIMITED, clamp

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
        # More digits than any cluster has of anything: the API accepts it, and means the largest.
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
    """Return what one pod requests, by resource, in engine units.

    Args:
        spec: of the pod.
        overhead: of its runtime class, where the pod names none itself.

    Raises:
        UnreadableRequest: a quantity cannot be read.
    """
    total = pod_sum(
        [
            _asked(each.resources, f"containers[{index}].resources")
            for index, each in enumerate(spec.containers or ())
        ],
        [
            (
                each.restart_policy == ALWAYS,
                _asked(each.resources, f"initContainers[{index}].resources"),
            )
            for index, each in enumerate(spec.init_containers or ())
        ],
        pod_level(_asked(spec.resources, "resources")),
        _milli(overhead if spec.overhead is None else spec.overhead, "overhead"),
    )
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


def _rounded(name: str, milli: int) -> int:
    return clamp(milli if name == "cpu" else -(-milli // 1_000))
