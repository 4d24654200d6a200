"""What a request means on the levels of one topology, and what is wrong with it.

Source: specification of topology-aware scheduling, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.topology.counts import Slicing
from reprieve.engine.topology.model import Layer, PodsWanted, TopologyRequest

__all__ = ["Meant", "TopologyRequestError", "meaning"]


class TopologyRequestError(ValueError):
    """A request that the topology cannot answer; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A request on the levels of a topology.

    `required` states that one domain of `level` has to hold all; `climbs` that wider levels are
    tried; `anywhere` that no level was requested.
    """

    level: int
    required: bool
    climbs: bool
    anywhere: bool
    slicing: Slicing
    layers: tuple[Layer, ...] = ()


def meaning(wanted: PodsWanted, levels: tuple[str, ...]) -> Meant:
    """Return what a pod set's request means.

    Raises:
        TopologyRequestError: it names a level that there is not, or slices that cannot be.
    """
    request = wanted.request or TopologyRequest()
    sizes = [each.size for each in request.layers]
    size = sizes[0] if sizes else 1
    if size <= 0:
        raise TopologyRequestError("slice topology requested, but slice size not provided")
    slices_only = bool(sizes) and not request.required and not request.preferred
    anywhere = wanted.implied or bool(request.unconstrained) or slices_only
    if request.required or request.preferred:
        name = request.required or request.preferred
    elif slices_only:
        name = levels[0]
    elif anywhere:
        name = levels[-1]
    else:
        raise TopologyRequestError("topology level not specified")
    level = _level(levels, name, "no requested topology level")
    slice_level = len(levels) - 1
    if sizes:
        outer = request.layers[0].level
        slice_level = _level(levels, outer, "no requested topology level for slices")
        if slice_level < level:
            raise TopologyRequestError(
                f"podset slice topology {outer} is above the podset topology {name}"
            )
    inner = _inner(request, levels, slice_level)
    return Meant(
        level,
        bool(request.required),
        bool(request.preferred) and not request.required,
        anywhere,
        Slicing(slice_level, size, inner),
        request.layers,
    )


def _inner(request: TopologyRequest, levels: tuple[str, ...], outer: int) -> dict[int, int]:
    """Return the sizes of the finer slices by level, each for its level and those down to it."""
    inner: dict[int, int] = {}
    above = outer
    for previous, each in zip(request.layers, request.layers[1:], strict=False):
        level = _level(levels, each.level, "no requested topology level for additional slice layer")
        if level <= above:
            raise TopologyRequestError(
                f"additional slice layer topology {each.level} must be at a lower level than "
                f"{previous.level}"
            )
        if each.size <= 0 or previous.size % each.size:
            raise TopologyRequestError(
                f"additional slice layer size {each.size} must evenly divide parent layer size "
                f"{previous.size}"
            )
        for between in range(above + 1, level + 1):
            inner[between] = each.size
        above = level
    return inner


def _level(levels: tuple[str, ...], name: str, fault: str) -> int:
    if name not in levels:
        raise TopologyRequestError(f"{fault}: {name}")
    return levels.index(name)
