"""What the address of a page requests: namespaces, a resource, a search."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.resources import DEFAULT_VENDORS, is_gpu
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.tables import InvalidParameter, Parameters, Viewer

__all__ = ["Asked", "asked_of", "one", "rank_of", "whole"]

_MOST_NAMESPACES: Final = 50
_LONGEST: Final = 253
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be shown.

    Attributes:
        resource: what is counted.
        chosen: it was requested; else what waits for anything is to be shown.
        resources: what could be counted, GPUs first.
        namespaces: only the work of these; empty for all.
    """

    resource: str
    resources: tuple[str, ...]
    namespaces: frozenset[str]
    chosen: bool = False

    def shows(self, viewer: Viewer, namespace: str) -> bool:
        """Return whether work of a namespace is to be shown, and may be."""
        return viewer.sees(namespace) and (not self.namespaces or namespace in self.namespaces)


def asked_of(mirror: Mirror, parameters: Parameters, viewer: Viewer | None = None) -> Asked:
    """Return what an address requests; with a viewer also what work that he sees waits for.

    Raises:
        InvalidParameter: a resource that no node has and no work waits for, or namespaces that
            cannot be.
    """
    resources = _resources(mirror, viewer)
    wanted = one(parameters, "resource")
    resource = wanted or resources[0]
    if resource not in resources:
        raise InvalidParameter(f"resource {resource!r}: accepted: {', '.join(resources)}")
    namespaces = parameters.get("ns", ())
    if len(namespaces) > _MOST_NAMESPACES or any(len(each) > _LONGEST for each in namespaces):
        raise InvalidParameter(f"ns: accepted: up to {_MOST_NAMESPACES} names of namespaces")
    return Asked(resource, resources, frozenset(filter(None, namespaces)), bool(wanted))


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


def rank_of(resource: str) -> int:
    """Return what is shown first of several resources: GPUs, other devices, cpu."""
    return 0 if is_gpu(resource, DEFAULT_VENDORS) else 2 if "/" not in resource else 1


def _resources(mirror: Mirror, viewer: Viewer | None) -> tuple[str, ...]:
    """Return what can be counted: GPUs, other devices, cpu; then what no node has.

    Of each that of most nodes comes first.
    """
    counts: Counter[str] = Counter()
    for node in mirror.node_sums():
        counts.update(name for name, amount in node.total.items() if amount)
    if not counts:
        # Who may not see nodes sees what pods request.
        for unit in mirror.units():
            counts.update({*unit.held, *unit.waiting})
    counts[_CPU] += 0
    for unit in mirror.units():
        if viewer is not None and unit.waiting and viewer.sees(unit.namespace):
            for name in unit.waiting:
                counts.setdefault(name, 0)

    def order(name: str) -> tuple[bool, int, int, str]:
        absent = not counts[name] and name != _CPU
        return (absent, rank_of(name), -counts[name], name)

    return tuple(sorted((name for name in counts if name != "memory"), key=order))
