"""Queued pods by what they belong to: their group, the set that they stand below, who made them.

Source: specification of the quota plane, section 10.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import PARENT, annotations_of, controller_of, group_of, is_managed
from reprieve.planes.quota.pod_reconcilers.pod_records import (
    CONTROLLER,
    GROUP,
    SET,
    owner_name,
    set_key,
)
from reprieve.planes.quota.watches import Held, Watches

__all__ = ["GROUP_PREFIX", "PodLookup", "group_key"]

#: Of the keys under which groups are looked at; no kind has such a name.
GROUP_PREFIX: Final = "group|"
_MADE: Final = ("apps/v1", "StatefulSet")


def group_key(namespace: str, group: str) -> str:
    """Return the key under which a group is looked at."""
    return f"{GROUP_PREFIX}{namespace}/{group}"


class PodLookup:
    """Reads the cache of pods, where there is one."""

    def __init__(self, watches: Watches, kinds: Sequence[JobKind]) -> None:
        self.kind = next((kind for kind in kinds if kind.gate), None)
        self._watches = watches
        self._parents = {
            kind.framework: kind for kind in kinds if kind.passes_on and kind.passes_on.total
        }

    def members(self, at: str) -> list[Json]:
        """Return the pods of the group `namespace/name`, by name."""
        return self._by(GROUP, at)

    def below(self, kind: JobKind, namespace: str, name: str) -> list[Json]:
        """Return the pods of one set, by name."""
        return self._by(SET, set_key(kind, namespace, name))

    def is_of_its_set(self, pod: Json) -> bool:
        """Return whether the set that a pod states to stand below is there and controls it.

        The pods of some kinds are controlled by StatefulSets that their set has made.
        """
        parent = self._parents.get(annotations_of(pod).get(PARENT, ""))
        if parent is None or parent.passes_on is None:
            return False
        namespace, name = pod["metadata"]["namespace"], owner_name(parent.passes_on, pod)
        held = self._watches.jobs[parent.key].cache.named(namespace, name) if name else None
        if held is None:
            return False
        if parent.passes_on.set_label:
            return any(
                each.get("controller") and (each.get("apiVersion"), each.get("kind")) == _MADE
                for each in first(pod, "metadata.ownerReferences") or ()
            )
        return controller_of(pod) == held.uid

    def owner(self, pod: Json) -> str:
        """Return whose pods are counted together: those of one controller, or of one group."""
        metadata = pod["metadata"]
        name = group_of(pod) or metadata["name"]
        return controller_of(pod) or f"{metadata['namespace']}/{name}"

    def number(self, pod: Json) -> int:
        """Return how many queued pods the owner of this one has."""
        index = CONTROLLER if controller_of(pod) else GROUP
        return len(self._found(index, self.owner(pod)))

    def keys(self, held: Held[Json]) -> Iterator[tuple[JobKind | None, str]]:
        """Yield what to look at when a pod has changed: a kind and a name, or a group."""
        pod = held.object
        if self.kind is None:
            return
        parent = self._parents.get(annotations_of(pod).get(PARENT, ""))
        if parent is not None and parent.passes_on is not None:
            yield parent, owner_name(parent.passes_on, pod)
        if is_managed(pod):
            group = group_of(pod)
            yield (None, group) if group else (self.kind, held.name)

    def _by(self, index: str, key: str) -> list[Json]:
        found = self._found(index, key)
        return [held.object for held in sorted(found, key=lambda held: held.name)]

    def _found(self, index: str, key: str) -> list[Held[Json]]:
        if self.kind is None:
            return []
        return self._watches.jobs[self.kind.key].cache.by(index, key)
