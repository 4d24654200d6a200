"""What was read of a cluster at one instant: lists as bytes, and what could not be read.

Objects stay the bytes that the API server sent until a write changes them: fifty thousand pods are
decoded once, by the plane that reads them, into the few fields that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kubeworld.units.instants import Nanos
from reprieve.kube.resource import Resource

__all__ = ["KindKey", "Listed", "Snapshot", "Unseen"]

#: API group and plural.
KindKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Unseen:
    """A kind of which something could not be listed. `namespaces`: which; empty: in none."""

    resource: Resource
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Listed:
    """The objects of one kind, by namespace and name, as JSON. `version`: of the list."""

    resource: Resource
    objects: Mapping[tuple[str, str], bytes]
    version: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """What a cluster holds, as far as the caller may read it. Immutable: any number of overlays.

    Attributes:
        at: the instant at which reading ended, nanoseconds since the Unix epoch.
        kinds: what is served, by group and plural; a kind that is not in here is not.
        documents: discovery documents by path; one that is not served is None.
        single: objects that were read one by one, by path; one that is not there is None.
        unseen: kinds of which something was refused.
        namespaces: how many there are, None where they cannot be listed.
    """

    at: Nanos
    kinds: Mapping[KindKey, Listed] = field(default_factory=dict)
    documents: Mapping[str, bytes | None] = field(default_factory=dict)
    single: Mapping[str, bytes | None] = field(default_factory=dict)
    unseen: tuple[Unseen, ...] = ()
    namespaces: int | None = None

    def serves(self, group: str, plural: str) -> bool:
        """Return whether the API server serves a kind."""
        return (group, plural) in self.kinds

    def count(self, plural: str, group: str = "") -> int:
        """Return how many objects of a kind were read."""
        listed = self.kinds.get((group, plural))
        return 0 if listed is None else len(listed.objects)

    def refuses(self, resource: Resource) -> bool:
        """Return whether nothing could be listed of a kind without namespaces."""
        return any(
            (each.resource.group, each.resource.plural) == (resource.group, resource.plural)
            for each in self.unseen
        )

    def knowing(self, single: Mapping[str, bytes | None]) -> Snapshot:
        """Return the snapshot with more objects that were read one by one."""
        return replace(self, single={**self.single, **single})
