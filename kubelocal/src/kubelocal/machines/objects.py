"""What the machines need of a store: a small protocol, its errors and the stream of changes.

`embedded.EmbeddedObjects` implements it in this process; a caller with a client of its own supplies
an adapter onto a real API server. A resource is named as the API names it: `pods`, `jobs.batch`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

__all__ = [
    "FREQUENT",
    "AlreadyThere",
    "Change",
    "ChangeType",
    "Changed",
    "Gone",
    "Object",
    "Objects",
    "Refused",
    "StoreError",
    "Unanswered",
]

FREQUENT: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")
"""Resources of which no machine wants to know, and which change most."""

Object: TypeAlias = dict[str, Any]
"""An API object as JSON would give it, `apiVersion` and `kind` included."""


class StoreError(Exception):
    """The store refused. The machines try again later, whatever the reason."""


class AlreadyThere(StoreError):
    """An object of this name exists."""


class Changed(StoreError):
    """The resourceVersion or the uid is not the present one."""


class Gone(StoreError):
    """There is no such object."""


class Refused(StoreError):
    """The object or the request is not accepted: invalid, forbidden, or an unknown resource."""


class Unanswered(Refused):
    """No answer in time, or the server failed: a write may have happened."""


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"  # every object that existed at the start has been given; once, no object


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `object` is the state after it, for DELETED the last state."""

    type: ChangeType
    resource: str
    object: Object


class Objects(Protocol):
    """A store of API objects with optimistic concurrency."""

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None when it or its resource does not exist.

        The namespace does not count for cluster-scoped resources.
        """
        ...

    async def create(self, resource: str, obj: Object) -> Object:
        """Store a new object and return it as stored.

        Raises:
            AlreadyThere: an object of this name exists.
            Refused: not accepted.
        """
        ...

    async def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object, or its `status`, and return it as stored.

        Raises:
            Changed: `metadata.resourceVersion` is not the present one.
            Gone: there is no such object.
            Refused: not accepted.
        """
        ...

    async def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete the object; one that does not exist is no error.

        Raises:
            Changed: the object of this name has another uid.
            Refused: not accepted.
        """
        ...

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Assign the pod to the node.

        Raises:
            Changed: the pod has a node already, or another uid.
            Gone: there is no such pod.
        """
        ...

    def resource_of(self, api_version: str, kind: str) -> str | None:
        """Return the resource that stores this kind; None when no such kind is served."""
        ...

    def changes(self, resources: Sequence[str] | None = None) -> AsyncIterator[Change]:
        """Give every existing object as ADDED, then SYNCED, then each change as it happens.

        `resources` None means all that are served, also those that are served later; the `FREQUENT`
        ones may be left out. A resource
        that is not served counts as empty. Changes of one resource come in order; a gap in the feed
        is filled in by giving what exists now, and DELETED for what was deleted.
        """
        ...
