"""DynamicResources' score: the earlier the chosen alternatives of firstAvailable, the better.

Alternative number i (from 0) adds 8 - i; the sum is set against the best node's. Source:
specification 17.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.devices import AllocatedDevice, Request
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.dynamic.devices import DynamicResources, compile_devices
from reprieve.engine.placement.profile import ScoreName

__all__ = ["AlternativeScore", "compile_device_score"]

_ALTERNATIVES: Final = 8  # at most, of one request


class AlternativeScore:
    """The score of one pending pod with alternatives."""

    name = ScoreName.DYNAMIC_RESOURCES

    def __init__(self, devices: DynamicResources) -> None:
        self._devices = devices

    def values(self, nodes: I64) -> I64:
        requests = self._devices.open_requests
        raw = np.array(
            [
                sum(map(_preference, requests, self._devices.results_at(node)))
                for node in nodes.tolist()
            ],
            np.int64,
        )
        best = int(raw.max(initial=0))
        return raw * 100 // best if best else raw

    def add(self, pod: Placed) -> Reach:
        return self._devices.add(pod)

    def remove(self, pod: Placed) -> Reach:
        return self._devices.remove(pod)


def _preference(requests: Iterable[Request], devices: Iterable[AllocatedDevice]) -> int:
    chosen = {device.request for device in devices}
    return sum(
        _ALTERNATIVES - place
        for request in requests
        if request.first_available
        for place, each in enumerate(request.alternatives)
        if f"{request.name}/{each.name}" in chosen
    )


def compile_device_score(view: View, pending: Pending) -> AlternativeScore | None:
    """Return the score of a pod whose unallocated claims have alternatives."""
    if not pending.row.claims:
        return None
    found = compile_devices(view, pending)
    if not isinstance(found, DynamicResources):
        return None
    if not any(request.first_available for claim in found.open_requests for request in claim):
        return None
    return AlternativeScore(found)
