"""NodeResourcesFit: the node fits one more pod and all that the pod requests.

A resource that the pod does not request is never checked, so that an over-committed node still
accepts pods that request nothing. A request above what the node offers when empty cannot be
resolved by removing pods. Source: specification 16 ("NodeResourcesFit in detail") and 21.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.devices import extended_classes
from reprieve.engine.cluster.rows import CPU, MEMORY, STORAGE, PodClass
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.profile import FilterName, Profile
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["ResourcesFilter", "checked_resources", "compile_resources"]

_FIRST: Final = (CPU, MEMORY, STORAGE)  # whose texts come first, in this order
_FULL: Final = int(Rejection.RESOURCES)
_TOO_SMALL: Final = int(Rejection.RESOURCES_EXCEED_NODE)
_LIMIT: Final = 2**62 - 1  # what amounts in columns saturate at


@dataclass(frozen=True, slots=True)
class _Check:
    """One resource on all nodes; passes where `used` is at most `room`. `used` is the view's."""

    name: str
    column: int  # -1 where it has none
    used: I64  # (nodes,)
    room: I64  # (nodes,) allocatable less the request


class ResourcesFilter:
    """Free capacity of each node against the requests of one pod.

    `columns`: indices of the resources that are checked besides the number of pods.
    """

    def __init__(
        self, columns: tuple[int, ...], pods: _Check, checks: tuple[_Check, ...], too_small: Mask
    ) -> None:
        """`too_small`: (nodes,) nodes that could not hold the pod if they were empty."""
        self.name = FilterName.NODE_RESOURCES_FIT
        self.columns = columns
        self._pods = pods
        self._checks = checks
        self._pairs = tuple((check.used.item, check.room.item) for check in (pods, *checks))
        self._refusal: U8 = np.where(too_small, np.uint8(_TOO_SMALL), np.uint8(_FULL))
        self._codes = self._everywhere()
        self._stale: set[int] = set()

    def codes(self) -> U8:
        if self._stale:
            if len(self._stale) * 16 > len(self._codes):
                self._codes = self._everywhere()
            else:
                for node in self._stale:
                    self._codes[node] = self.code_at(node)
            self._stale.clear()
        return self._codes

    def code_at(self, node: int) -> int:
        for used, room in self._pairs:
            if used(node) > room(node):
                return self._refusal.item(node)
        return 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        reasons = [
            Reason(Rejection.INSUFFICIENT, check.name)
            for check in self._checks
            if check.used[node] > check.room[node]
        ]
        if self._pods.used[node] > self._pods.room[node]:
            reasons.insert(0, Reason(Rejection.TOO_MANY_PODS))
        return tuple(reasons)

    def left(self) -> I64:
        """Return what is left on each node with the pod there: (nodes, 1 + columns).

        First of the number of pods, then of `columns`. Nothing is lacking of what something else
        provides where the node does not offer it (21.4).
        """
        checks = (self._pods, *(check for check in self._checks if check.column >= 0))
        return np.stack([check.room - check.used for check in checks], axis=1)

    def tally(self, nodes: I64) -> dict[Reason, int]:
        """Return how many of these nodes, all refused, give each reason."""
        found = {Reason(Rejection.TOO_MANY_PODS): self._short(self._pods, nodes)}
        for check in self._checks:
            found[Reason(Rejection.INSUFFICIENT, check.name)] = self._short(check, nodes)
        return {reason: count for reason, count in found.items() if count}

    def _short(self, check: _Check, nodes: I64) -> int:
        return int(np.count_nonzero(check.used[nodes] > check.room[nodes]))

    def add(self, pod: Placed) -> Reach:
        self._stale.add(pod.node)
        return Reach.NODE

    def remove(self, pod: Placed) -> Reach:
        self._stale.add(pod.node)
        return Reach.NODE

    def _everywhere(self) -> U8:
        refused = self._pods.used > self._pods.room
        for check in self._checks:
            refused |= check.used > check.room
        return np.where(refused, self._refusal, np.uint8(0))


def checked_resources(profile: Profile, entry: PodClass) -> tuple[tuple[str, int], ...]:
    """Return the requests that are checked, in the order of their texts."""
    amounts = {
        name: amount
        for name, amount in entry.requests
        if amount > 0 and not (_extended(name) and _ignored(profile, name))
    }
    first = [(name, amounts.pop(name)) for name in _FIRST if name in amounts]
    return (*first, *amounts.items())


def compile_resources(view: View, pending: Pending) -> ResourcesFilter:
    """Return the filter; every pod needs it, since all count as one pod."""
    snapshot = view.snapshot
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None
    nodes = len(snapshot.nodes)
    asked = checked_resources(view.profile, entry)
    by_devices = FilterName.DYNAMIC_RESOURCES in view.profile.filters
    qualified = by_devices and any("/" in name for name, _ in asked)
    stands_for = extended_classes(snapshot.tables) if qualified else {}
    too_small = np.zeros(nodes, np.bool_)
    columns: list[int] = []
    checks: list[_Check] = []
    for name, amount in asked:
        request = min(amount, _LIMIT)
        if name in snapshot.resources:
            column = snapshot.resources.index(name)
            columns.append(column)
            used, offered = view.used[:, column], snapshot.allocatable[:, column]
            room = offered - request
        else:
            # One number for all nodes: a pod may name thousands that no node has.
            column = -1
            used = offered = np.broadcast_to(np.int64(0), (nodes,))
            room = np.broadcast_to(np.int64(-request), (nodes,))
        lacking = room < 0
        if name in stands_for:
            elsewhere = offered <= 0
            room = np.where(elsewhere, _LIMIT, room)
            lacking &= ~elsewhere
        too_small |= lacking
        checks.append(_Check(name, column, used, room))
    pods = _Check("pods", 0, view.used[:, 0], snapshot.allocatable[:, 0] - 1)
    return ResourcesFilter(tuple(columns), pods, tuple(checks), too_small)


def _extended(name: str) -> bool:
    """Return whether it is an extended resource: qualified, and not Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _ignored(profile: Profile, name: str) -> bool:
    group = name.partition("/")[0]
    return name in profile.ignored_resources or group in profile.ignored_resource_groups
