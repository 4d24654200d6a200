"""Turns on nodes that several schedulers of ours fill (`--shared-nodes`).

A binding is no transaction: two schedulers that do not know of each other's calls can both use the
last capacity of a node. So each of them, before it binds, writes the pods that it is about to bind
into an annotation of the node, by resourceVersion: of two writers one fails and decides again. A
scheduler that sees the annotation counts those pods on the node before they are seen there. An
entry counts for a minute, in which the binding is seen or has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.execution.fence import Fence
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.objects import version_number
from reprieve.kube.resource import NODES
from reprieve.kube.retry import UNSETTLED
from reprieve.kube.writes import Priority
from reprieve.units.ids import Uid

__all__ = ["ANNOTATION", "NodeTurns"]

ANNOTATION: Final = "reprieve.dev/bindings"
_COUNTS: Final = MINUTE


class _Entry(msgspec.Struct, frozen=True):
    """A pod that is being bound: by whom, and the Unix second in which that began."""

    owner: str
    uid: str
    since: int


class NodeTurns:
    """What stands in the annotations of nodes, and our own turns.

    `claimed` is called with a pod that another scheduler binds to a node.
    """

    def __init__(
        self, client: Client, fence: Fence, clock: Clock, claimed: Callable[[Uid, str], None]
    ) -> None:
        self._writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._claimed = claimed
        self._versions: dict[str, int] = {}
        self._entries: dict[str, tuple[_Entry, ...]] = {}
        self._foreign: dict[str, int] = {}  # how many entries of others were seen, by node
        self._locks: dict[str, asyncio.Lock] = {}

    def seen(self, node: str, version: int, annotation: str) -> None:
        """Apply a node as it was read; an older one than what is known changes nothing."""
        if version <= self._versions.get(node, -1):
            return
        self._versions[node] = version
        entries = _read(annotation)
        known = {entry.uid for entry in self._entries.get(node, ())}
        self._entries[node] = entries
        for entry in entries:
            if entry.uid not in known and entry.owner != self._fence.identity:
                self._foreign[node] = self._foreign.get(node, 0) + 1
                self._claimed(Uid(entry.uid), node)

    def mark(self, node: str) -> int:
        """Return what to hand to `announce`, at the moment in which a decision is committed."""
        return self._foreign.get(node, 0)

    async def announce(self, node: str, uid: Uid, mark: int, known: Callable[[Uid], bool]) -> bool:
        """Announce a binding; return whether the decision still holds for this node.

        `known`: whether a pod is known here, as one that is not cannot have been counted.

        Raises:
            Deposed: the fence is closed.
            ApiError: the API server refused.
        """
        async with self._locks.setdefault(node, asyncio.Lock()):
            now = self._clock.wall() // SECOND
            entries = [
                entry
                for entry in self._entries.get(node, ())
                if now - entry.since < _COUNTS // SECOND
            ]
            others = [entry for entry in entries if entry.owner != self._fence.identity]
            if self.mark(node) != mark or not all(known(Uid(entry.uid)) for entry in others):
                return False
            entries.append(_Entry(self._fence.identity, uid, now))
            text = msgspec.json.encode(entries).decode()
            patch = {
                "metadata": {
                    "resourceVersion": str(self._versions.get(node, 0)),
                    "annotations": {ANNOTATION: text},
                }
            }
            try:
                answer: Json = await self._writer.patch(NODES, "", node, patch, dict)
            except (NotFound, *UNSETTLED):
                return False
            version = version_number(answer["metadata"]["resourceVersion"])
            if version > self._versions.get(node, -1):
                self._versions[node] = version
                self._entries[node] = tuple(entries)
            return True


def _read(annotation: str) -> tuple[_Entry, ...]:
    if not annotation:
        return ()
    try:
        return tuple(msgspec.json.decode(annotation, type=list[_Entry]))
    except (msgspec.DecodeError, RecursionError):
        return ()
