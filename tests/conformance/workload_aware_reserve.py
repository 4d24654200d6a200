"""The fake plugin of a vector: it filters, and remembers in Reserve how many pods it let through.

A pod with `appliesToLabel` fails where (reserved so far + pods on the node with `countLabel`) is
`maxPods` or more. It runs in the place of DynamicResources, which Reserve belongs to as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from reprieve.engine.cluster.arrays import U8
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement import filters
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection
from tests.engine.api_objects import Json

_REFUSED = Rejection.DEVICES_TAKEN


class ReservePlugin:
    """One pending pod's view of the plugin."""

    name = FilterName.DYNAMIC_RESOURCES

    def __init__(self, view: View, most: int, counted: tuple[str, str]) -> None:
        self._snapshot = view.snapshot
        self._most = most
        self._counted = counted
        self._reserved = 0
        self._on: Counter[int] = Counter()
        for slot in np.flatnonzero(view.present).tolist():
            if self._counts(int(view.snapshot.pod_labels[slot])):
                self._on[int(view.snapshot.pod_node[slot])] += 1

    def _counts(self, labels: int) -> bool:
        return self._counted in labels_of(self._snapshot, labels)

    def codes(self) -> U8:
        nodes = range(len(self._snapshot.nodes))
        return np.array([self.code_at(node) for node in nodes], np.uint8)

    def code_at(self, node: int) -> int:
        return int(_REFUSED) if self._reserved + self._on[node] >= self._most else 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        return (Reason(_REFUSED, "reserved"),) if self.code_at(node) else ()

    def add(self, pod: Placed) -> Reach:
        self._on[pod.node] += self._counts(pod.labels)
        return Reach.DOMAINS

    def remove(self, pod: Placed) -> Reach:
        self._on[pod.node] -= self._counts(pod.labels)
        return Reach.DOMAINS

    def reserve(self, pending: Pending, node: int) -> None:
        self._reserved += 1

    def release(self, pending: Pending, node: int) -> None:
        self._reserved -= 1


def labels_of(snapshot: Snapshot, number: int) -> tuple[tuple[str, str], ...]:
    found = snapshot.labels[number]
    return () if found is None else found.labels


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _compiled(given: Json) -> Callable[[View, Pending], ReservePlugin | None]:
    def compile_plugin(view: View, pending: Pending) -> ReservePlugin | None:
        if _pair(given["appliesToLabel"]) not in labels_of(view.snapshot, pending.labels):
            return None
        return ReservePlugin(view, given["maxPods"], _pair(given["countLabel"]))

    return compile_plugin


@contextmanager
def reserve_plugin(given: Json | None) -> Iterator[None]:
    """Run the plugin of a case, if it has one."""
    if given is None:
        yield
        return
    run = {**filters._COMPILE, FilterName.DYNAMIC_RESOURCES: _compiled(given)}
    with patch.object(filters, "_COMPILE", run):
        yield
