"""VolumeBinding's score: how well the volumes that a node offers suit what the pod requests.

Per storage class the requests are summed and compared with the capacity that serves them; the shape
turns the utilization into 0..100, and classes count alike. Volumes that exist come first: only when
a node has none for the pod do reported storage capacities count. Source: specification 17.2.
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.volume_binding import VolumeBinding, compile_volume_binding
from reprieve.engine.placement.profile import ScoreName
from reprieve.engine.placement.scores.shape import shape_scores

__all__ = ["VolumeScore", "compile_volume_binding_score"]


class VolumeScore:
    """The score of one pending pod that still lacks volumes."""

    name = ScoreName.VOLUME_BINDING

    def __init__(self, binding: VolumeBinding, shape: tuple[tuple[int, int], ...]) -> None:
        self._binding = binding
        self._shape = shape_scores(shape)

    def values(self, nodes: I64) -> I64:
        sizes = self._binding.sizes(nodes)
        any_static = np.zeros(len(nodes), np.bool_)
        for _, _, _, static in sizes:
            any_static |= static
        zero = np.zeros(len(nodes), np.int64)
        requested: dict[str, I64] = {}
        offered: dict[str, I64] = {}
        present: dict[str, Mask] = {}
        for storage_class, request, capacity, static in sizes:
            counts = (static == any_static) & (capacity >= 0)
            known = np.where(counts, capacity, 0)
            requested[storage_class] = requested.get(storage_class, zero) + request * counts
            offered[storage_class] = offered.get(storage_class, zero) + known
            present[storage_class] = present.get(storage_class, zero > 0) | counts
        total = np.zeros(len(nodes), np.int64)
        classes = np.zeros(len(nodes), np.int64)
        for storage_class, asked in requested.items():
            room = offered[storage_class]
            over = (room == 0) | (asked > room)
            used = np.where(over, 100, asked * 100 // np.maximum(room, 1))
            total += np.where(present[storage_class], self._shape[used], 0)
            classes += present[storage_class]
        return np.where(classes > 0, (2 * total + classes) // np.maximum(2 * classes, 1), 0)

    def add(self, pod: Placed) -> Reach:
        return self._binding.add(pod)

    def remove(self, pod: Placed) -> Reach:
        return self._binding.remove(pod)


def compile_volume_binding_score(view: View, pending: Pending) -> VolumeScore | None:
    """Return the score of a pod that still lacks volumes."""
    found = compile_volume_binding(view, pending)
    if not isinstance(found, VolumeBinding) or not found.lacking:
        return None
    return VolumeScore(found, view.profile.volume_shape)
