"""All scores of a pending pod, with their weights (specification 17.1).

A plugin that has nothing to state about a pod is left out, which adds 0 to every node alike: the
order of nodes is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Score, View
from reprieve.engine.placement.profile import ScoreName
from reprieve.engine.placement.scores.devices import compile_device_score
from reprieve.engine.placement.scores.interpod import compile_inter_pod_affinity
from reprieve.engine.placement.scores.resources import compile_balanced_allocation, compile_fit
from reprieve.engine.placement.scores.spread import compile_spread
from reprieve.engine.placement.scores.static import (
    compile_image_locality,
    compile_node_affinity,
    compile_taint_toleration,
)
from reprieve.engine.placement.scores.volume_binding import compile_volume_binding_score

__all__ = ["compile_scores"]

Compile: TypeAlias = Callable[[View, Pending], Score | None]

_COMPILE: Final[Mapping[ScoreName, Compile]] = MappingProxyType(
    {
        ScoreName.TAINT_TOLERATION: compile_taint_toleration,
        ScoreName.NODE_AFFINITY: compile_node_affinity,
        ScoreName.POD_TOPOLOGY_SPREAD: compile_spread,
        ScoreName.INTER_POD_AFFINITY: compile_inter_pod_affinity,
        ScoreName.DYNAMIC_RESOURCES: compile_device_score,
        ScoreName.NODE_RESOURCES_FIT: compile_fit,
        ScoreName.BALANCED_ALLOCATION: compile_balanced_allocation,
        ScoreName.IMAGE_LOCALITY: compile_image_locality,
        ScoreName.VOLUME_BINDING: compile_volume_binding_score,
    }
)


def compile_scores(view: View, pending: Pending) -> tuple[tuple[Score, int], ...]:
    """Return the scores that can differ, with their weights, in the profile's order."""
    scores: list[tuple[Score, int]] = []
    for name, weight in view.profile.weights:
        score = _COMPILE[name](view, pending)
        if score is not None:
            scores.append((score, weight))
    return tuple(scores)
