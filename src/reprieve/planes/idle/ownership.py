"""Which pods belong to which root.

A pod belongs to a root when it is the root, when one of its ownerReferences names the root, or, for
a pod that requests GPUs, when the way up through controlling owners meets an object with such a
reference. Only GPU pods have their way walked. A pod that the named owner does not know is none of
its own: a user who creates a pod may name any object. Source: specification of the idle plane,
section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprieve.api.core import Pod
from reprieve.engine.idle.discovery import Found, Root
from reprieve.kube.cache import Cache
from reprieve.planes.idle.records import PodRecord
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["BY_GROUP", "BY_OWNER", "Ownership", "Way", "pod_found"]

BY_OWNER = "owner"
BY_GROUP = "group"


@dataclass(frozen=True, slots=True)
class Way:
    """From a pod to its root: the uids of all owners on it, and of one that denies the pod."""

    root: Root
    ancestors: frozenset[str]
    denied: frozenset[str] = frozenset()


def pod_found(pod: PodRecord) -> Found:
    """Return a pod as the walk to its root wants it."""
    ref = Reference("v1", "Pod", pod.namespace, pod.name, Uid(pod.uid))
    return Found(ref, pod.owners, pod.labels)


class Ownership:
    """The way up of every GPU pod, and the pods below every root.

    `knows`: whether a root may have a pod that names it beside its controller.
    """

    def __init__(
        self, pods: Cache[Pod, PodRecord], knows: Callable[[Reference, Found], bool]
    ) -> None:
        self._pods = pods
        self._knows = knows
        # All and only pods whose root is known and that still exist.
        self._roots: dict[str, Root] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        self._below: dict[str, set[str]] = {}
        # By uid of the pod: the uid of the controller that it names and that does not know it.
        self._denied: dict[str, frozenset[str]] = {}

    def root_of(self, pod_uid: str) -> Root | None:
        """Return the root of a pod, None while it is not known."""
        return self._roots.get(pod_uid)

    def learn(self, pod: PodRecord, way: Way) -> None:
        """Keep the way up of a pod that exists."""
        self.forget(pod.uid)
        if pod.uid not in self._pods:
            return
        self._roots[pod.uid] = way.root
        self._ancestors[pod.uid] = way.ancestors
        if way.denied:
            self._denied[pod.uid] = way.denied
        for uid in way.ancestors:
            self._below.setdefault(uid, set()).add(pod.uid)

    def forget(self, pod_uid: str) -> None:
        """Forget a pod."""
        self._roots.pop(pod_uid, None)
        self._denied.pop(pod_uid, None)
        for uid in self._ancestors.pop(pod_uid, frozenset()):
            below = self._below.get(uid)
            if below is not None:
                below.discard(pod_uid)
                if not below:
                    del self._below[uid]

    def pods_of(self, root: Reference) -> list[PodRecord]:
        """Return the existing pods that belong to a root, in its namespace."""
        found: dict[str, PodRecord] = {}
        if root.kind == "Pod":
            itself = self._pods.get(root.uid)
            if itself is not None:
                found[itself.uid] = itself
        for record in self._pods.by(BY_OWNER, root.uid):
            if self._has(root, record):
                found[record.uid] = record
        for uid in self._below.get(root.uid, ()):
            below = self._pods.get(uid)
            if below is not None:
                found[uid] = below
        return [record for record in found.values() if record.namespace == root.namespace]

    def _has(self, root: Reference, pod: PodRecord) -> bool:
        """Return whether a root has a pod that names it."""
        if any(owner.controller and owner.uid == root.uid for owner in pod.owners):
            return root.uid not in self._denied.get(pod.uid, ())
        return self._knows(root, pod_found(pod))

    def owners_of(self, pod: PodRecord) -> set[str]:
        """Return the uids of everything this pod may count for."""
        return {
            pod.uid,
            *(owner.uid for owner in pod.owners),
            *self._ancestors.get(pod.uid, ()),
        }

    def roots(self) -> Iterator[Root]:
        """Return the root of each known GPU pod, each root once."""
        return iter({root.ref.uid: root for root in self._roots.values()}.values())

    def between(self) -> frozenset[str]:
        """Return the uids of all objects that some pod leads through."""
        return frozenset(self._below)
