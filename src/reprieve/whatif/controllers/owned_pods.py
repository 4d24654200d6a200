"""What stands under which owner, and how many pods of an owner are in which state, as they change.

An owner's pods are those that name it, or name something of the same namespace that is there and
stands under it, at any depth. Their numbers are kept with every change of an object, so that a
controller that is stood in for needs not look at all pods of a set whenever one of them changes.
Source: the controllers of Kubernetes 1.37, as far as they count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubeworld.objects.paths import Json
from kubeworld.objects.pods import OVER
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["COMPLETION_INDEX", "Key", "OwnedPods", "PodFacts", "Tally", "facts_in", "facts_of"]

#: The label of an indexed Job's pods.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
Key = tuple[Resource, str, str]  # with namespace and name


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_POD: Final = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What controllers look at in a pod. `index`: of an indexed Job, empty without."""

    name: str
    succeeded: bool = False
    over: bool = False
    leaving: bool = False
    ready: bool = False
    index: str = ""


@dataclass(slots=True)
class Tally:
    """The pods of one owner.

    Attributes:
        pods: all of them.
        active: those that are neither over nor leaving.
        ready: active ones that are ready.
        leaving: those that are being deleted.
        succeeded: those that succeeded.
        names: of all of them, with whether each is ready, leaving or not.
        chosen: how many pods of an indexed Job stand for an index: active ones, or over.
        losses: how often one was deleted, was ready no more, or gave up its index.
    """

    pods: int = 0
    active: int = 0
    ready: int = 0
    leaving: int = 0
    succeeded: int = 0
    names: dict[str, bool] = field(default_factory=dict)
    chosen: Counter[str] = field(default_factory=Counter)
    losses: int = 0

    def add(self, pod: PodFacts) -> None:
        """Count a pod."""
        self._count(pod, 1)
        self.names[pod.name] = pod.ready

    def remove(self, pod: PodFacts) -> None:
        """Count a pod no more."""
        self._count(pod, -1)
        del self.names[pod.name]
        self.losses += 1

    def change(self, old: PodFacts, new: PodFacts) -> None:
        """A pod came to another state."""
        self._count(old, -1)
        self._count(new, 1)
        self.names[new.name] = new.ready
        self.losses += (old.ready and not new.ready) or (_accepts(old) and not _accepts(new))

    def _count(self, pod: PodFacts, by: int) -> None:
        active = not pod.over and not pod.leaving
        self.pods += by
        self.active += by * active
        self.ready += by * (active and pod.ready)
        self.leaving += by * pod.leaving
        self.succeeded += by * pod.succeeded
        if _accepts(pod):
            self.chosen[pod.index] += by
            if not self.chosen[pod.index]:
                del self.chosen[pod.index]


def facts_in(raw: bytes) -> PodFacts:
    """Return what controllers look at in a pod that is JSON yet."""
    pod = _POD.decode(raw)
    conditions = pod.status.conditions or ()
    return PodFacts(
        pod.metadata.name,
        pod.status.phase == "Succeeded",
        pod.status.phase in OVER,
        bool(pod.metadata.deletion_timestamp),
        any(each.type == "Ready" and each.status == "True" for each in conditions),
        (pod.metadata.labels or {}).get(COMPLETION_INDEX, ""),
    )


def facts_of(pod: Json) -> PodFacts:
    """Return what controllers look at in a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    phase = status.get("phase")
    return PodFacts(
        metadata["name"],
        phase == "Succeeded",
        phase in OVER,
        bool(metadata.get("deletionTimestamp")),
        any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in status.get("conditions") or ()
        ),
        str((metadata.get("labels") or {}).get(COMPLETION_INDEX, "")),
    )


class OwnedPods:
    """The index. It is given every object that has owners, or may be one, before and after."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._below: dict[str, dict[Key, None]] = defaultdict(dict)  # by the owner's uid
        self._above: dict[str, tuple[str, ...]] = {}  # owners' uids, of what is there but pods
        self._tallies: dict[str, Tally] = {}
        self._pods: dict[tuple[str, str], tuple[PodFacts, frozenset[str]]] = {}

    def below(self, uid: str) -> Iterator[Json]:
        """Yield the pods that stand under an owner."""
        for resource, namespace, name in list(self._below.get(uid, ())):
            found = self._overlay.get(resource, namespace, name)
            if found is None:
                continue
            if resource == PODS:
                yield found
            else:
                yield from self.below(found["metadata"]["uid"])

    def of(self, uid: str) -> Tally:
        """Return the numbers of an owner's pods, as they are now."""
        return self._tallies.setdefault(uid, Tally())

    def changed(self, resource: Resource, old: Json | None, new: Json | None) -> None:
        """An object was created, changed or deleted."""
        found = new if new is not None else old
        assert found is not None, "one of them is there"
        metadata = found["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        before = () if old is None else _owners(old["metadata"])
        owners = () if new is None else _owners(new["metadata"])
        for uid in before:
            if uid not in owners:
                self._below[uid].pop(key, None)
        for uid in owners:
            self._below[uid][key] = None
        if resource == PODS:
            self._count(key[1:], owners, None if new is None else facts_of(new))
        else:
            self._stand(metadata["uid"], owners)

    def found(
        self, key: Key, uid: str, owners: tuple[str, ...], facts: PodFacts | None = None
    ) -> None:
        """An object that has owners was there from the start; pods come last, with `facts`."""
        for owner in owners:
            self._below[owner][key] = None
        if facts is None:
            self._above[uid] = owners
        else:
            self._count(key[1:], owners, facts)

    def gone(self, uid: str) -> list[Key]:
        """Forget a deleted owner; return what named it, to be looked at."""
        return list(self._below.pop(uid, ()))

    def _count(self, place: tuple[str, str], owners: Sequence[str], facts: PodFacts | None) -> None:
        """Count a pod for all that it stands under; None: it is deleted."""
        old, above = self._pods.pop(place, (None, frozenset[str]()))
        now = frozenset[str]() if facts is None else self._all_above(owners)
        for uid in above | now:
            tally = self.of(uid)
            if old is not None and uid in above and (facts is None or uid not in now):
                tally.remove(old)
            elif facts is not None and (old is None or uid not in above):
                tally.add(facts)
            elif old is not None and facts is not None and old != facts:
                tally.change(old, facts)
        if facts is not None and now:
            self._pods[place] = facts, now

    def _stand(self, uid: str, owners: tuple[str, ...]) -> None:
        """Something was created, changed or deleted: with other owners, its pods are theirs."""
        if self._above.get(uid, ()) == owners:
            return
        if owners:
            self._above[uid] = owners
        else:
            del self._above[uid]
        for pod in self.below(uid):
            metadata = pod["metadata"]
            place = (metadata.get("namespace", ""), metadata["name"])
            self._count(place, _owners(metadata), facts_of(pod))

    def _all_above(self, owners: Sequence[str]) -> frozenset[str]:
        found: set[str] = set()
        left = list(owners)
        while left:
            uid = left.pop()
            if uid not in found:
                found.add(uid)
                left += self._above.get(uid, ())
        return frozenset(found)


def _accepts(pod: PodFacts) -> bool:
    return bool(pod.index) and (pod.over or not pod.leaving)


def _owners(metadata: Json) -> tuple[str, ...]:
    return tuple(each["uid"] for each in metadata.get("ownerReferences") or ())
