"""What the address of a page asks for: namespaces, a resource, a search."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.resources import DEFAULT_VENDORS, is_gpu
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.tables import InvalidParameter, Parameters, Viewer

__all__ = ["Asked", "asked_of", "one", "whole"]

_MOST_NAMESPACES: Final = 50
_LONGEST: Final = 253
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be shown.

    Attributes:
        resource: what is counted.
        resources: what could be counted, GPUs first.
        namespaces: only the work of these; empty for all.
    """

    resource: str
    resources: tuple[str, ...]
    namespaces: frozenset[str]

    def shows(self, viewer: Viewer, namespace: str) -> bool:
        """Return whether work of a namespace is to be shown, and may be."""
        return viewer.sees(namespace) and (not self.namespaces or namespace in self.namespaces)


def asked_of(mirror: Mirror, parameters: Parameters) -> Asked:
    """Return what an address asks for.

    Raises:
        InvalidParameter: a resource that no node has, or namespaces that cannot be.
    """
    resources = _resources(mirror)
    resource = one(parameters, "resource") or resources[0]
    if resource not in resources:
        raise InvalidParameter(f"resource {resource!r}: accepted: {', '.join(resources)}")
    namespaces = parameters.get("ns", ())
    if len(namespaces) > _MOST_NAMESPACES or any(len(each) > _LONGEST for each in namespaces):
        raise InvalidParameter(f"ns: accepted: up to {_MOST_NAMESPACES} names of namespaces")
    return Asked(resource, resources, frozenset(filter(None, namespaces)))


def one(parameters: Parameters, name: str) -> str:
    """Return the only value of a parameter, empty where it is not given.

    Raises:
        InvalidParameter: it is given more than once, or is longer than any name.
    """
    given = parameters.get(name, ())
    if len(given) > 1 or any(len(each) > _LONGEST for each in given):
        raise InvalidParameter(f"{name}: accepted: one value of at most {_LONGEST} characters")
    return given[0] if given else ""


def whole(resource: str, amount: int) -> int | float:
    """Return an amount as people count it: cores of cpu, pieces of everything else."""
    if resource != _CPU:
        return amount
    return amount // 1000 if amount % 1000 == 0 else amount / 1000


def _resources(mirror: Mirror) -> tuple[str, ...]:
    """Return what nodes offer, that of most nodes first: GPUs, other devices, cpu."""
    counts: Counter[str] = Counter()
    for node in mirror.nodes:
        counts.update(name for name, amount in node.amounts.items() if amount)
    if not counts:
        # Who may not see nodes sees what pods ask for.
        for unit in mirror.units():
            counts.update({*unit.held, *unit.waiting})
    counts[_CPU] += 0

    def order(name: str) -> tuple[int, int, str]:
        rank = 0 if is_gpu(name, DEFAULT_VENDORS) else 2 if "/" not in name else 1
        return (rank, -counts[name], name)

    return tuple(sorted((name for name in counts if name != "memory"), key=order))
