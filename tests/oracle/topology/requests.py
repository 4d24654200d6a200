"""What a pod set asks of the levels of a topology, or why it cannot be asked.

Written from the specification alone; imports nothing of the engine.

Source: specification of topology-aware scheduling, sections 1.3 and 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.oracle.topology.domains import Json

__all__ = ["Ask", "Impossible", "ask"]


class Impossible(Exception):
    """A request that no tree with these levels can answer; its text is the reason."""


@dataclass(frozen=True)
class Ask:
    """Where the search begins and how it may go on; `inner` has the sizes of finer slices."""

    level: int
    required: bool
    preferred: bool
    unconstrained: bool
    slice_level: int
    size: int
    inner: dict[int, int]
    layers: tuple[tuple[int, int], ...]

    def with_slices(self, level: int, size: int) -> Ask:
        """Return the same with other slices and none within them."""
        return replace(self, slice_level=level, size=size, inner={}, layers=())


def slices_of(given: Json) -> list[tuple[str, int]]:
    """Return the layers of a request, from the coarsest."""
    constraints = given.get("podsetSliceRequiredTopologyConstraints") or ()
    if given.get("podSetSliceRequiredTopology"):
        return [(given["podSetSliceRequiredTopology"], given.get("podSetSliceSize", 0))]
    return [(each["topology"], each["size"]) for each in constraints]


def ask(wanted: Json, levels: Sequence[str]) -> Ask:
    """Return what is asked.

    Raises:
        Impossible: a level is missing, or the layers do not fit into one another.
    """
    given = wanted.get("topologyRequest") or {}
    layers = slices_of(given)
    size = layers[0][1] if layers else 1
    if size <= 0:
        raise Impossible("slice topology requested, but slice size not provided")
    required, preferred = given.get("required") or "", given.get("preferred") or ""
    only_slices = bool(layers) and not required and not preferred
    anywhere = bool(given.get("unconstrained") or wanted.get("implied") or only_slices)
    name = required or preferred or (levels[0] if only_slices else levels[-1] if anywhere else "")
    if not name:
        raise Impossible("topology level not specified")
    if name not in levels:
        raise Impossible(f"no requested topology level: {name}")
    level, slice_name = levels.index(name), layers[0][0] if layers else levels[-1]
    if slice_name not in levels:
        raise Impossible(f"no requested topology level for slices: {slice_name}")
    slice_level = levels.index(slice_name)
    if slice_level < level:
        raise Impossible(f"podset slice topology {slice_name} is above the podset topology {name}")
    inner: dict[int, int] = {}
    numbered = [(slice_level, size)] if layers else []
    for (above, outer), (finer, each) in pairwise(layers):
        if finer not in levels:
            raise Impossible(f"no requested topology level for additional slice layer: {finer}")
        previous, at = levels.index(above), levels.index(finer)
        if at <= previous:
            raise Impossible(
                f"additional slice layer topology {finer} must be at a lower level than {above}"
            )
        if each <= 0 or outer % each:
            raise Impossible(
                f"additional slice layer size {each} must evenly divide parent layer size {outer}"
            )
        inner |= dict.fromkeys(range(previous + 1, at + 1), each)
        numbered.append((at, each))
    unconstrained = anywhere and not required and not preferred
    return Ask(
        level,
        bool(required),
        bool(preferred) and not required,
        unconstrained,
        slice_level,
        size,
        inner,
        tuple(numbered),
    )
