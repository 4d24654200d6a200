"""What a pod requests: the one sum over its containers, from which every plane counts.

Per resource: R = sum over containers. S = 0, M = 0. Each init container in order: a restartable one
adds its amount to R and to S, and M = max(M, S); another one makes M = max(M, its amount + S). Then
R = max(R, M); what the pod level requests replaces R for cpu, memory and huge pages; overhead is
added. What a container requests, in which unit, and what counts of the result is each plane's own:
`cluster.requests`, `quota_requests`, and `pods` for GPUs.

Source: specification 21.4; specification of the quota plane, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["ALWAYS", "add", "pod_level", "pod_sum", "raise_to"]

#: The restart policy of an init container that continues beside the others.
ALWAYS: Final = "Always"

_NOTHING: Final[Mapping[str, int]] = {}


def pod_sum(
    containers: Iterable[Mapping[str, int]],
    init: Iterable[tuple[bool, Mapping[str, int]]],
    own: Mapping[str, int] = _NOTHING,
    besides: Mapping[str, int] = _NOTHING,
) -> dict[str, int]:
    """Return what the pod requests, by resource.

    Args:
        containers: what each requests.
        init: whether it is restartable, and what it requests, in order.
        own: what the pod level requests (see `pod_level`).
        besides: overhead and the like.
    """
    total: dict[str, int] = {}
    for asked in containers:
        add(total, asked)
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for restartable, asked in init:
        if restartable:
            add(total, asked)
            add(sidecars, asked)
            raise_to(most, {name: sidecars[name] for name in asked})
        else:
            beside = {name: amount + sidecars.get(name, 0) for name, amount in asked.items()}
            raise_to(most, beside)
    raise_to(total, most)
    total.update(own)
    add(total, besides)
    return total


def pod_level(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return those amounts that a pod itself can request: cpu, memory and huge pages."""
    return {
        name: amount
        for name, amount in amounts.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add each amount to that of its name."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def raise_to(most: dict[str, int], other: Mapping[str, int]) -> None:
    """Keep the larger amount of each name."""
    for name, amount in other.items():
        if name not in most or amount > most[name]:
            most[name] = amount
