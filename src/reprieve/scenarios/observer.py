"""What a scenario sees of a cluster: its objects and every phase that a GpuWorkload had.

Fed by watches, queried by steps and by the live view. A phase that starts and ends between two
looks still stands in `transitions`; waits end at the change that fulfils them, not at the next
poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = ["CLUSTER_QUEUES", "GPUWORKLOADS", "WORKLOADS", "Observer", "Transition"]

GPUWORKLOADS: Final = "gpuworkloads.kaiwo.silogen.ai"
CLUSTER_QUEUES: Final = "clusterqueues.kueue.x-k8s.io"
WORKLOADS: Final = "workloads.kueue.x-k8s.io"

Object = Mapping[str, Any]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Transition:
    """A GpuWorkload changed from one phase to another; `new` is `gone` when it was removed."""

    at: Nanos
    namespace: str
    name: str
    old: str
    new: str
    root: str  # Kind/name
    reason: str


class Observer:
    """The present objects by resource, and the history of phases."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Resource (`pods`, `jobs.batch`) -> (namespace, name) -> object, as last seen.
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.transitions: list[Transition] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[str, Object | None], None]] = []

    def apply(self, resource: str, item: Object) -> None:
        """Apply an object that was added or changed."""
        before = self._objects.setdefault(resource, {}).get(_key(item))
        if before is not None and before["metadata"].get("resourceVersion") == item["metadata"].get(
            "resourceVersion"
        ):
            return
        self._objects[resource][_key(item)] = item
        if resource == GPUWORKLOADS:
            self._note(before, item)
        self._wake(resource, item)

    def drop(self, resource: str, item: Object) -> None:
        """Apply the deletion of an object."""
        before = self._objects.get(resource, {}).pop(_key(item), None)
        if before is not None:
            if resource == GPUWORKLOADS:
                self._note(before, None)
            self._wake(resource, None)

    def all(self, resource: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a resource in the order of namespace and name."""
        return [
            item
            for key, item in sorted(self._objects.get(resource, {}).items(), key=lambda e: e[0])
            if namespace is None or key[0] == namespace
        ]

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return one object as last seen."""
        return self._objects.get(resource, {}).get((namespace, name))

    def gpuworkload(self, namespace: str, root: str) -> Object | None:
        """Return the newest GpuWorkload whose `spec.workloadRef` is `root` (`Kind/name`)."""
        found = [
            item
            for key, item in self._objects.get(GPUWORKLOADS, {}).items()
            if key[0] == namespace and root_of(item) == root
        ]
        # Timestamps have whole seconds; among equals the one that was seen last is the newest.
        return max(
            reversed(found), key=lambda item: item["metadata"]["creationTimestamp"], default=None
        )

    def listen(self, listener: Callable[[str, Object | None], None]) -> None:
        """Call `listener(resource, object or None)` after every change."""
        self._listeners.append(listener)

    async def until(self, condition: Callable[[], Answer | None], seconds: float) -> Answer | None:
        """Return the first answer of `condition` that is not None; None after that time.

        The condition is evaluated at once and after every change that is seen.
        """
        deadline = asyncio.ensure_future(self._clock.sleep(round(seconds * SECOND)))
        try:
            while True:
                answer = condition()
                if answer is not None or deadline.done():
                    return answer
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(changed)
                await asyncio.wait({changed, deadline}, return_when=asyncio.FIRST_COMPLETED)
                self._waiters.discard(changed)
        finally:
            deadline.cancel()

    def phases_since(self, mark: int, namespace: str, root: str) -> Iterator[str]:
        """Yield the phases that the root's GpuWorkloads entered after `transitions[:mark]`."""
        for transition in self.transitions[mark:]:
            if transition.namespace == namespace and transition.root == root:
                yield transition.new

    def _note(self, before: Object | None, after: Object | None) -> None:
        item = after if after is not None else before
        assert item is not None
        old = phase_of(before) if before is not None else ""
        new = phase_of(after) if after is not None else "gone"
        if old != new:
            self.transitions.append(
                Transition(
                    at=self._clock.wall(),
                    namespace=_key(item)[0],
                    name=_key(item)[1],
                    old=old,
                    new=new,
                    root=root_of(item),
                    reason=_reason(after),
                )
            )

    def _wake(self, resource: str, item: Object | None) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for listener in self._listeners:
            listener(resource, item)


def phase_of(item: Object) -> str:
    """Return the phase of a GpuWorkload, empty before the first."""
    return str(item.get("status", {}).get("phase", ""))


def root_of(item: Object) -> str:
    """Return `Kind/name` of a GpuWorkload's root owner."""
    reference = item.get("spec", {}).get("workloadRef", {})
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _reason(item: Object | None) -> str:
    """Return why it is in its phase: the preemption's reason, else the condition's message."""
    if item is None:
        return ""
    status = item.get("status", {})
    if phase_of(item) in ("Preempting", "Preempted") and status.get("preemptionReason"):
        return str(status["preemptionReason"])
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PhaseUpdated":
            return str(condition.get("message", ""))
    return ""


def _key(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
