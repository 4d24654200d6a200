"""How a status is written, for every plane and every kind.

1. Sent is what differs (`kube.bodies.merge_changes`), so that what others write beside it stays;
   nothing is sent where nothing differs.
2. A patch names the uid, and the resourceVersion that was judged: an object that has changed since,
   or was made anew under its name, refuses it, and who wrote it judges again. Where a status is
   written without having been read whole (pods and pod groups, which others write all the time),
   the uid alone is named.

No work is evicted or moved by a status. The client is one whose writes are fenced. Source: the
design's "State that can be trusted"; the API conventions, "Concurrency Control and Consistency".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from reprieve.kube.bodies import Json, PatchType, merge_changes
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource

__all__ = ["StatusChange", "write_status"]

T = TypeVar("T")


class _Metadata(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


@dataclass(frozen=True, slots=True)
class StatusChange:
    """What is written into a status of which object, over which version of it.

    Attributes:
        changes: fields of the status with their new values, None removes one.
        version: the resourceVersion that was judged; empty where any is as good.
        patch_type: strategic where entries of a list are merged by their key.
        subresource: whether the kind has its status apart.
    """

    resource: Resource
    namespace: str
    name: str
    uid: str
    changes: Json
    version: str = ""
    patch_type: PatchType = PatchType.MERGE
    subresource: bool = True

    @classmethod
    def over(
        cls, resource: Resource, metadata: _Metadata, before: Any, after: Any
    ) -> StatusChange | None:
        """Return what leads from one status to the other over this version, None for nothing."""
        changes = merge_changes(before, after)
        if not changes:
            return None
        return cls(
            resource,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            changes,
            metadata.resource_version,
        )


async def write_status(client: Client, change: StatusChange, wire: type[T]) -> T:
    """Write the change and return the object as it is stored.

    Raises:
        NotFound: the object is deleted.
        Conflict: it is another one, or another version of it.
        ApiError: the API server refused.
    """
    metadata: Json = {"uid": change.uid}
    if change.version:
        metadata["resourceVersion"] = change.version
    return await client.patch(
        change.resource,
        change.namespace,
        change.name,
        {"metadata": metadata, "status": change.changes},
        wire,
        patch_type=change.patch_type,
        subresource="status" if change.subresource else "",
    )
