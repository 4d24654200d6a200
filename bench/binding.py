"""Binds pods for a benchmark of the other machines: in turn, to nodes that all have room."""

from __future__ import annotations

from collections.abc import Iterable

from kubelocal.machines.events import EventLog
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.units.clock import Clock

__all__ = ["with_binder"]


class Binder:
    """Gives each pod without a node the next node."""

    name = "binder"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._nodes: list[str] = []
        self._next = 0

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "nodes" and change.type is ChangeType.ADDED:
            self._nodes.append(change.object["metadata"]["name"])
        if change.resource == "pods" and not change.object["spec"].get("nodeName"):
            yield key_of("pods", change.object)

    async def reconcile(self, key: Key) -> None:
        pod = self._informer.at(key)
        if pod is None or pod["spec"].get("nodeName") or not self._nodes:
            return
        self._next = (self._next + 1) % len(self._nodes)
        await self._informer.bind(pod, self._nodes[self._next])


def with_binder(informer: Informer, clock: Clock, events: EventLog) -> Binder:
    """Make the binder, as one more of the machines."""
    del clock, events
    return Binder(informer)
